"""worker/probe.py: M01 of the field cases. A head that was never trained is refused; a vocabulary without the words is not."""

import shutil
from pathlib import Path

import pytest
from batches import CheckpointOf

from common.checkpoint import open_checkpoint
from common.errors import StartupError
from common.settings import DEMO_MODEL
from worker.engines.base import Engine
from worker.engines.cuda import TorchEngine, TorchOptions
from worker.engines.onnx import OnnxEngine
from worker.probe import check_head


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with the transform of its head drawn again, and nothing else changed."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("models") / "untrained"
    shutil.copytree(DEMO_MODEL, folder, ignore=shutil.ignore_patterns("*.onnx", "*.py", "*.xml", "*.bin"))
    weights = load_file(folder / "model.safetensors")
    dense = "cls.predictions.transform.dense.weight"
    drawn = torch.randn(weights[dense].shape, generator=torch.Generator().manual_seed(1))
    weights[dense] = (0.02 * drawn).to(weights[dense].dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def loaded(engine: Engine) -> Engine:
    engine.load()
    return engine


def test_the_demo_model_passes(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(DEMO_MODEL))
    check_head(loaded(OnnxEngine(checkpoint, threads=1, cache_dir=tmp_path)), checkpoint)


def test_m01_an_untrained_head_is_refused_and_named(untrained: Path) -> None:
    """With torch, which takes the weights as they are: an export would take ten seconds."""
    checkpoint = open_checkpoint(str(untrained))
    with pytest.raises(StartupError, match=r"masked-LM head of .* looks untrained"):
        check_head(loaded(TorchEngine(checkpoint, TorchOptions("cpu"))), checkpoint)


def test_a_vocabulary_without_the_words_is_not_judged(checkpoint_of: CheckpointOf, tmp_path: Path) -> None:
    checkpoint = checkpoint_of("roberta")
    check_head(loaded(OnnxEngine(checkpoint, threads=1, cache_dir=tmp_path)), checkpoint)
