"""Options: a flag wins over FILLMASK_*, that over the default; the help tells all of it; what is wrong is told in one line."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from api.settings import ApiSettings
from common.command_line import parse, variables
from common.settings import CommonSettings
from deploy.cli import COMMANDS, INTERRUPTED, main
from deploy.local import UpSettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).parent.parent.parent


class TripSettings(CommonSettings):
    place: str = Field(description="where to; 100 % required")
    travellers: int = Field(2, ge=1, description="how many")
    class_of_travel: Literal["first", "second"] = Field("second", description="how")
    by_night: bool = Field(False, description="sleeping car")
    budget: float | None = Field(None, description="what it may cost")
    ticket_dir: Path = Field(Path("/tickets"), description="where tickets are kept")

    @model_validator(mode="after")
    def _affordable(self) -> "TripSettings":
        if self.budget is not None and self.budget < self.travellers:
            raise ValueError("budget is below travellers")
        return self


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in (TripSettings, UpSettings):
        for name in settings.model_fields:
            for variable in variables(settings, name):
                monkeypatch.delenv(variable, raising=False)


def trip(*arguments: str) -> TripSettings:
    return parse(TripSettings, ["Paris", *arguments], "trip")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a wrong option brings."""
    with pytest.raises(SystemExit) as ended:
        trip(*arguments)
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("trip: ")
    assert told.err.endswith("; see trip --help\n")
    return told.err


def test_without_options_the_defaults_hold() -> None:
    settings = trip()
    assert (settings.place, settings.travellers, settings.by_night, settings.budget) == ("Paris", 2, False, None)


def test_flags_are_kebab_case_and_typed() -> None:
    settings = trip("--class-of-travel", "first", "--budget=12.5", "--ticket-dir", "/tmp/x", "--by-night")
    assert settings.class_of_travel == "first"
    assert settings.budget == 12.5
    assert settings.ticket_dir == Path("/tmp/x")
    assert settings.by_night is True


def test_a_flag_wins_over_the_variable_and_that_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILLMASK_TRAVELLERS", "3")
    monkeypatch.setenv("FILLMASK_BY_NIGHT", "true")
    assert (trip().travellers, trip().by_night) == (3, True)
    settings = trip("--travellers", "4", "--no-by-night")
    assert (settings.travellers, settings.by_night) == (4, False)


@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        ({}, [], "redis://127.0.0.1:6379/0"),
        ({"REDIS_URL": "redis://plain"}, [], "redis://plain"),
        ({"FILLMASK_REDIS_URL": "redis://prefixed"}, [], "redis://prefixed"),
        ({"REDIS_URL": "redis://plain", "FILLMASK_REDIS_URL": "redis://prefixed"}, [], "redis://prefixed"),
        ({"REDIS_URL": "redis://plain", "FILLMASK_REDIS_URL": "redis://prefixed"}, ["redis://flag"], "redis://flag"),
    ],
)
def test_where_redis_is(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], flags: list[str], expected: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = parse(ApiSettings, ["--redis-url", *flags] if flags else [], "fillmask api")
    assert settings.redis_url == expected
    assert ("redis_url" in settings.model_fields_set) == bool(environment or flags)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--travellers", "many"], "--travellers: Input should be a valid integer"),
        (["--travellers", "0"], "--travellers: Input should be greater than or equal to 1"),
        (["--travellers"], "--travellers: expected one argument"),
        (["--class-of-travel", "third"], "--class-of-travel: Input should be 'first' or 'second'"),
        (["--travelers", "1"], "unrecognized arguments: --travelers 1"),
        (["--travel", "1"], "unrecognized arguments: --travel 1"),
        (["--class_of_travel", "first"], "unrecognized arguments: --class_of_travel first"),
        (["Rome"], "unrecognized arguments: Rome"),
        (["--budget", "1"], "budget is below travellers"),
    ],
)
def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    assert expected in refusal(capsys, *arguments)


def test_a_wrong_variable_is_named_as_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILLMASK_TRAVELLERS", "hunter2")
    told = refusal(capsys)
    assert "FILLMASK_TRAVELLERS: Input should be a valid integer" in told
    assert "hunter2" not in told


def test_a_missing_positional_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(TripSettings, [], "trip")
    assert ended.value.code == 2
    assert "required: PLACE" in capsys.readouterr().err


def help_of(settings: type[BaseSettings], capsys: pytest.CaptureFixture[str], without: frozenset[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parse(settings, ["--help"], "program", without)
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("settings", [CommonSettings, ApiSettings, WorkerSettings, UpSettings, TripSettings])
def test_the_help_tells_flag_variable_default_and_meaning_of_every_option(
    settings: type[BaseSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    told = help_of(settings, capsys, frozenset())
    for name, field in settings.model_fields.items():
        assert field.description, name
        assert field.description in told
        if not field.is_required():
            assert f"--{name.replace('_', '-')}" in told
            assert re.search(rf"\[(\w+ or )?{variables(settings, name)[0]}[\] ,]", told), name
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            assert re.search(rf"{variables(settings, name)[0]}, default {field.default}\]", told)


def test_redis_url_has_two_variables(capsys: pytest.CaptureFixture[str]) -> None:
    told = help_of(ApiSettings, capsys, frozenset())
    assert "[FILLMASK_REDIS_URL or REDIS_URL, default redis://127.0.0.1:6379/0]" in told


def test_what_a_program_leaves_out_is_no_option_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--fd" not in help_of(UpSettings, capsys, frozenset({"fd"}))
    with pytest.raises(SystemExit):
        parse(UpSettings, ["--fd", "3"], "program", {"fd"})


def test_a_wrong_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert capsys.readouterr().err.startswith("fillmask: there is no command serve; there are up, api, worker,")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fillmask ")
    assert main([]) == main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {command} " in told for command in COMMANDS)


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """What makes --help come within 0.3 s; a clock in a test would measure the machine's other work."""
    heavy = ["fastapi", "numpy", "onnxruntime", "redis", "tokenizers", "torch", "huggingface_hub", "prometheus_client"]
    heavy += [] if command else ["pydantic", "pydantic_settings", "argparse", "subprocess"]
    program = f"""
import sys
from deploy.cli import main
try:
    main({[*command, "--help"]!r})
except SystemExit as ended:
    assert not ended.code
sys.exit(repr(imported) if (imported := sys.modules.keys() & {set(heavy)!r}) else 0)
"""
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "usage: fillmask" in told.stdout


@pytest.mark.parametrize("rate", ["100/second", "5/minute", "1000/hour", "999999999/day"])
def test_rates(rate: str) -> None:
    assert parse(ApiSettings, ["--rate-limit", rate], "fillmask api").rate_limit == rate


@pytest.mark.parametrize(
    "rate", ["0/second", "100", "100/fortnight", "-1/second", "1.5/second", "1/second;2/hour", "5/2 hours"]
)
def test_no_rates(capsys: pytest.CaptureFixture[str], rate: str) -> None:
    with pytest.raises(SystemExit):
        parse(ApiSettings, [f"--rate-limit={rate}"], "fillmask api")
    assert "--rate-limit: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "origin", ["*", "example.org", "https://a.org/", "https://a.org, *", "https://*.a.org", "null"]
)
def test_no_origins(capsys: pytest.CaptureFixture[str], origin: str) -> None:
    with pytest.raises(SystemExit):
        parse(ApiSettings, ["--cors-origins", origin], "fillmask api")
    assert "is no origin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "path"), [("", ""), ("/", ""), ("fill", "/fill"), ("/fill/", "/fill"), ("/a/b-c_d.e~", "/a/b-c_d.e~")]
)
def test_a_path_prefix_begins_with_a_slash_and_ends_without(told: str, path: str) -> None:
    assert parse(ApiSettings, [f"--root-path={told}"], "fillmask api").root_path == path


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--root-path=/a b", "'/a b' is no path such as /fillmask"),
        ("--root-path=//host/a?b", "is no path"),
        ("--root-path=https://host/a", "is no path"),
        ("--trusted-proxies=10.0.0.0/8,proxy", "'proxy' does not appear to be an IPv4 or IPv6 network"),
        ("--trusted-proxies=10.0.0.1/8", "10.0.0.1/8 has host bits set"),
    ],
)
def test_what_is_told_of_proxies_is_checked(capsys: pytest.CaptureFixture[str], option: str, told: str) -> None:
    with pytest.raises(SystemExit):
        parse(ApiSettings, [option], "fillmask api")
    assert told in capsys.readouterr().err


_INTERRUPTED_WHILE_IMPORTING = """
import signal
from deploy import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
cli.import_module = lambda _: signal.raise_signal(signal.SIGINT)
raise SystemExit(cli.main(["api"]))
"""


def test_ctrl_c_before_a_command_has_begun_is_told_by_the_exit_code_alone() -> None:
    command = [sys.executable, "-c", _INTERRUPTED_WHILE_IMPORTING]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, b"", b"")


def test_a_name_that_no_line_of_a_file_could_hold_gets_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["key", "alice:bob"])
    assert main(["key", "alice-2"]) == 0
    told = capsys.readouterr()
    key = next(line.strip() for line in told.err.splitlines() if "fm_" in line)
    assert told.out == f"alice-2:{hashlib.sha256(key.encode()).hexdigest()}\n"
    assert key not in told.out
