"""Seven tiny checkpoints, each with its exported graph, made once a session: an export takes seconds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from batches import CheckpointOf
from checkpoints import ARCHITECTURES, build_checkpoint

from common.checkpoint import Checkpoint, open_checkpoint
from worker.engines.base import BatchLimits, Engine
from worker.engines.cuda import TorchEngine, TorchOptions
from worker.engines.onnx import OnnxEngine
from worker.engines.openvino import OpenVinoEngine
from worker.export import export_onnx

ENGINES: dict[str, Callable[[Checkpoint], Engine]] = {
    "onnx": lambda checkpoint: OnnxEngine(checkpoint, threads=1, cache_dir=checkpoint.folder / "cache"),
    "openvino": lambda checkpoint: OpenVinoEngine(checkpoint, threads=1, cache_dir=checkpoint.folder / "cache"),
    "torch": lambda checkpoint: TorchEngine(checkpoint, TorchOptions("cpu")),
    "torch in buckets": lambda checkpoint: TorchEngine(checkpoint, TorchOptions("cpu", largest=BatchLimits(8, 256))),
}
"""Every engine that runs a model; one more line here puts it under the whole contract."""


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> CheckpointOf:
    """An architecture's name -> its checkpoint, with model.onnx in its folder. Tests must not change what is in it."""
    opened: dict[str, Checkpoint] = {}

    def open_once(architecture: str) -> Checkpoint:
        if architecture not in opened:
            folder = build_checkpoint(architecture, tmp_path_factory.mktemp("models") / architecture)
            opened[architecture] = open_checkpoint(str(folder))
            export_onnx(opened[architecture], folder)
        return opened[architecture]

    return open_once


@pytest.fixture(scope="session", params=ARCHITECTURES)
def checkpoint(request: pytest.FixtureRequest, checkpoint_of: CheckpointOf) -> Checkpoint:
    return checkpoint_of(request.param)


def _loaded(engine: Engine) -> Iterator[Engine]:
    engine.load()
    engine.warm_up([])
    yield engine
    engine.close()


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[Engine]:
    yield from _loaded(ENGINES[request.param](checkpoint))


@pytest.fixture(scope="session")
def bert(checkpoint_of: CheckpointOf) -> Checkpoint:
    return checkpoint_of("bert")


@pytest.fixture(scope="module", params=ENGINES)
def bert_engine(request: pytest.FixtureRequest, bert: Checkpoint) -> Iterator[Engine]:
    """One architecture is enough for what does not depend on it."""
    yield from _loaded(ENGINES[request.param](bert))


@pytest.fixture(scope="session")
def pipeline(checkpoint: Checkpoint) -> Any:
    """transformers' own fill-mask of the same checkpoint: what every engine is compared with."""
    import transformers

    quiet: Any = transformers.utils.logging
    quiet.disable_progress_bar()
    return transformers.pipeline("fill-mask", model=str(checkpoint.folder), device="cpu")
