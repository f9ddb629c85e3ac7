"""What `--engine auto` means: CUDA, else int8 that the model brings, else the faster of two, and why."""

import logging
import shutil
from pathlib import Path

import pytest
from batches import CheckpointOf

from common.checkpoint import Checkpoint, open_checkpoint
from common.command_line import parse
from common.errors import StartupError
from common.settings import DEMO_MODEL
from worker.engines.choice import Choice, choose, make_engine
from worker.engines.fastest import Pace, measured, remembered
from worker.settings import WorkerSettings

BOTH = ("onnx", "openvino")


def settings(cache_dir: Path, *options: str) -> WorkerSettings:
    return parse(WorkerSettings, ["--cache-dir", str(cache_dir), "--threads", "1", *options], "fillmask worker")


def auto(checkpoint: Checkpoint, cache_dir: Path, has_cuda: bool, pace: Pace | None) -> Choice:
    return choose(settings(cache_dir), checkpoint, has_cuda, pace_of=lambda *_: pace)


@pytest.mark.parametrize(
    ("pace", "engine"),
    [
        ({"onnx": 90.0, "openvino": 100.0}, "openvino"),
        ({"onnx": 100.0, "openvino": 90.0}, "onnx"),
        (None, "onnx"),
    ],
)
def test_the_faster_of_two(checkpoint_of: CheckpointOf, tmp_path: Path, pace: Pace | None, engine: str) -> None:
    found = auto(checkpoint_of("bert"), tmp_path, False, pace)
    assert found.engine == engine
    assert ("onnx 90, openvino 100" in found.why or "onnx 100, openvino 90" in found.why) == bool(pace)


def test_int8_that_the_model_brings_goes_before_float32_and_cuda_before_both(
    checkpoint_of: CheckpointOf, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint_of("bert").folder, tmp_path / "model")
    (folder / "openvino-int8").mkdir()
    (folder / "openvino-int8" / "model.xml").touch()
    checkpoint = open_checkpoint(str(folder))
    assert auto(checkpoint, tmp_path, True, None).engine == "cuda"
    assert auto(checkpoint, tmp_path, False, {"onnx": 2.0, "openvino": 1.0}).engine == "openvino-int8"
    (folder / "model.safetensors").unlink()
    assert auto(checkpoint, tmp_path, True, None).engine == "openvino-int8", "a GPU needs weights"


def test_dynamic_int8_is_never_chosen(checkpoint_of: CheckpointOf, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint_of("bert").folder, tmp_path / "model")
    (folder / "onnx-int8").mkdir()
    shutil.copy(folder / "model.onnx", folder / "onnx-int8")
    assert auto(open_checkpoint(str(folder)), tmp_path, False, None).engine == "onnx"


def test_measured_once_and_remembered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The real thing, in a child: the demo model on both engines."""
    checkpoint = open_checkpoint(str(DEMO_MODEL))
    wanted = settings(tmp_path)
    assert remembered(checkpoint, BOTH, 1, tmp_path) is None
    with caplog.at_level(logging.INFO, "fillmask.worker"):
        first = make_engine(wanted, checkpoint).name
        again = make_engine(wanted, checkpoint).name
    pace = remembered(checkpoint, BOTH, 1, tmp_path)
    assert pace is not None
    assert first == again == max(BOTH, key=lambda engine: pace[engine])
    said = [record.message for record in caplog.records]
    assert sum(line.startswith("measured onnx and openvino") for line in said) == 1
    assert sum(line.startswith(f"engine {first}: the fastest float32 here") for line in said) == 2
    assert remembered(checkpoint, BOTH, 2, tmp_path) is None, "another number of threads is another question"


def test_a_cache_that_cannot_be_written_is_no_trouble(checkpoint_of: CheckpointOf, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert measured(checkpoint_of("bert"), BOTH, 1, tmp_path / "cache") is not None


def test_a_model_that_is_yet_to_be_exported_is_not_measured(checkpoint_of: CheckpointOf, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint_of("bert").folder, tmp_path / "model")
    (folder / "model.onnx").unlink()
    assert measured(open_checkpoint(str(folder)), BOTH, 1, tmp_path / "cache") is None


def test_what_is_asked_for_is_what_is_run(checkpoint_of: CheckpointOf, tmp_path: Path) -> None:
    for name in (*BOTH, "onnx-int8", "openvino-int8"):
        assert make_engine(settings(tmp_path, "--engine", name), checkpoint_of("bert")).name == name
    with pytest.raises(StartupError, match="no CUDA device"):
        make_engine(settings(tmp_path, "--engine", "cuda"), checkpoint_of("bert")).load()
