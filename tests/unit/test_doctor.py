"""Each check of `fillmask doctor`, on machines that are not this one."""

import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from common.checkpoint import open_checkpoint
from common.command_line import parse
from deploy.doctor import (
    Gpu,
    check_cores,
    check_cuda,
    check_engine,
    check_model,
    check_packages,
    check_python,
    check_redis,
    main,
)
from worker.settings import WorkerSettings


def settings(*options: str) -> WorkerSettings:
    return parse(WorkerSettings, list(options), "fillmask doctor")


@pytest.mark.parametrize(("found", "status"), [((3, 11, 0), "ok"), ((3, 14, 1), "ok"), ((3, 10, 9), "fail")])
def test_python(found: tuple[int, ...], status: str) -> None:
    assert check_python(found).status == status


@pytest.mark.parametrize(("missing", "status"), [("", "ok"), ("hiredis", "warn"), ("tokenizers", "fail")])
def test_packages(missing: str, status: str) -> None:
    def installed(name: str) -> str:
        if name == missing:
            raise PackageNotFoundError(name)
        return "1.0"

    finding = check_packages(installed)
    assert finding.status == status
    assert missing in finding.text


def test_redis_that_is_away_and_one_that_up_would_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("FILLMASK_REDIS_URL", raising=False)
    finding = check_redis(settings("--redis-url", "redis://:secret@127.0.0.1:1"))
    assert finding.status == "fail"
    assert "cannot be reached" in finding.text
    assert "secret" not in finding.text
    assert "would start" in check_redis(settings()).text


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    finding, checkpoint = check_model(settings("--model", str(tmp_path / "nothing")))
    assert (finding.status, checkpoint) == ("fail", None)


def test_the_engine_that_auto_means(tmp_path: Path) -> None:
    wanted = settings("--cache-dir", str(tmp_path))
    checkpoint = open_checkpoint(wanted.model)
    assert "auto means onnx" in check_engine(wanted, checkpoint).text
    assert "auto means cuda" in check_engine(wanted, checkpoint, has_cuda=True).text
    assert not list(tmp_path.iterdir()), "it changes nothing"


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("onnx", "holds no weights"),
        ("openvino", "holds no weights"),
        ("onnx-int8", "fillmask export --dynamic-int8 makes one"),
        ("openvino-int8", "fillmask export --int8 makes one"),
        ("torch", "holds no weights"),
        ("cuda", "no CUDA device can be used"),
    ],
)
def test_an_engine_that_would_not_start(tmp_path: Path, engine: str, told: str) -> None:
    """A graph that lies where no engine looks for it helps none of them."""
    facts = shutil.ignore_patterns("model.*")
    folder = shutil.copytree(settings().model, tmp_path / "model", ignore=facts)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "model.onnx").touch()
    wanted = settings("--engine", engine, "--cache-dir", str(tmp_path / "cache"))
    finding = check_engine(wanted, open_checkpoint(str(folder)), has_cuda=False)
    assert finding.status == "fail"
    assert told in finding.text


@pytest.mark.parametrize("engine", ["onnx", "openvino", "torch"])
def test_an_engine_that_would_start(engine: str) -> None:
    wanted = settings("--engine", engine)
    assert check_engine(wanted, open_checkpoint(wanted.model)) == ("engine", "ok", engine)


@pytest.mark.parametrize(
    ("threads", "host", "allowed", "usable", "status", "told"),
    [
        (0, 64, 64, 2, "ok", "by the cgroup quota; one worker would run 2 threads"),
        (0, 64, 8, 8, "ok", "8 usable of the host's 64 (affinity mask: 8); one worker would run 8 threads"),
        (1, 2, 2, 2, "ok", "one worker would run 1 threads"),
        (64, 64, 64, 2, "warn", "64 threads would take turns"),
    ],
)
def test_cores(threads: int, host: int, allowed: int, usable: int, status: str, told: str) -> None:
    finding = check_cores(threads, host, allowed, usable)
    assert finding.status == status
    assert told in finding.text


@pytest.mark.parametrize(
    ("gpu", "engines", "status", "told"),
    [
        (Gpu(False, None, 0), ("onnx",), "ok", "workers run on the CPU"),
        (Gpu(False, "", 0), ("onnx", "cuda"), "ok", "workers run on the CPU"),
        (Gpu(True, None, 0), ("onnx", "cuda"), "warn", "torch is missing"),
        (Gpu(True, "", 0), ("onnx", "cuda"), "warn", "silently not be used"),
        (Gpu(True, "13.0", 0), ("onnx", "cuda"), "warn", "sees no device"),
        (Gpu(True, "13.0", 2), ("onnx",), "warn", "no engine of this release"),
        (Gpu(True, "13.0", 2), ("onnx", "cuda"), "ok", "sees 2 device(s)"),
    ],
)
def test_cuda(gpu: Gpu, engines: tuple[str, ...], status: str, told: str) -> None:
    finding = check_cuda(gpu, engines)
    assert finding.status == status
    assert told in finding.text


def test_the_command_fails_when_a_check_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.doctor.look_for_gpu", lambda: Gpu(False, None, 0))
    assert main(["--model", str(tmp_path / "nothing")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert any(line.startswith("fail  model") for line in lines)
