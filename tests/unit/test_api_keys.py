"""api/api_keys.py: which lines are keys, who is let in, and that a changed file holds without a restart."""

import hashlib
import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from api.api_keys import LOOK_EVERY_S, KeyRing, parse_keys, presented_key
from common.errors import StartupError


class Clock:
    """Moves when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def line(name: str, key: str) -> str:
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}"


def test_lines_comments_and_two_keys_of_one_name() -> None:
    text = f"# who may ask\n\n{line('alice', 'old')}  # until May\n{line('alice', 'new').upper().replace('ALICE', 'alice')}\n"
    keys = parse_keys(text.splitlines(), "keys")
    assert [key.name for key in keys] == ["alice", "alice"]
    assert keys[1].sha256 == hashlib.sha256(b"new").digest()


@pytest.mark.parametrize("wrong", ["alice", "alice:hunter2", "a lice:" + "0" * 64, ":" + "0" * 64, "alice:" + "0" * 63])
def test_a_wrong_line_is_told_by_its_number_alone(wrong: str) -> None:
    with pytest.raises(StartupError, match="keys: line 2 is not") as raised:
        parse_keys(["# one", wrong], "keys")
    assert "hunter2" not in raised.value.message


def test_keys_given_in_a_variable() -> None:
    ring = KeyRing(f"{line('alice', 'a')},{line('bob', 'b')}", None)
    assert (ring.name_of(b"a"), ring.name_of(b"b"), ring.name_of(b"c"), ring.name_of(b"")) == (
        "alice",
        "bob",
        None,
        None,
    )


def test_the_file_is_read_again_when_it_changes_and_at_most_once_a_second(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(line("alice", "a"))
    ring = KeyRing(line("root", "r"), file, clock)
    file.write_text(f"{line('bob', 'b')}\n{line('carol', 'c')}")
    assert (ring.name_of(b"a"), ring.name_of(b"b")) == ("alice", None), "not looked at yet"
    clock.now_s += LOOK_EVERY_S
    assert (ring.name_of(b"a"), ring.name_of(b"b"), ring.name_of(b"r")) == (None, "bob", "root")


def test_a_file_that_is_replaced_as_kubernetes_does_it(tmp_path: Path) -> None:
    """A symbolic link is turned to another folder; size and time of the file may be the same."""
    clock = Clock()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(line("alice", name))
        os.utime(tmp_path / name / "keys", (0, 0))
    (tmp_path / "now").symlink_to("a")
    ring = KeyRing("", tmp_path / "now" / "keys", clock)
    (tmp_path / "next").symlink_to("b")
    (tmp_path / "next").rename(tmp_path / "now")
    clock.now_s += LOOK_EVERY_S
    assert (ring.name_of(b"a"), ring.name_of(b"b")) == (None, "alice")


@pytest.mark.parametrize("spoilt", [None, b"\xff\xfe", b"alice\n"], ids=["gone", "no UTF-8", "a wrong line"])
def test_a_file_that_is_spoilt_later_locks_nobody_out(
    tmp_path: Path, spoilt: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(line("alice", "a"))
    ring = KeyRing("", file, clock)
    file.unlink()
    if spoilt is not None:
        file.write_bytes(spoilt)
    clock.now_s += LOOK_EVERY_S
    assert ring.name_of(b"a") == "alice"
    assert "still hold" in caplog.text


def test_a_file_that_holds_no_key_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# nobody yet\n")
    assert KeyRing("", tmp_path / "keys").name_of(b"") is None


def test_a_file_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be read: No such file"):
        KeyRing("", tmp_path / "none")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ""),
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc "}, "abc"),
        ({"authorization": "Basic abc"}, ""),
        ({"authorization": "Basic abc", "x-api-key": "def"}, "def"),
        ({"authorization": "abc"}, ""),
        ({"authorization": "Bearer"}, ""),
        ({"x-api-key": "def"}, "def"),
    ],
)
def test_where_a_key_is_presented(headers: dict[str, str], expected: str) -> None:
    assert presented_key(Headers(headers)) == expected
