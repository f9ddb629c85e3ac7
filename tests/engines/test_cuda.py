"""worker/engines/cuda.py where there is no GPU: it says so at the start, and never runs on the CPU unasked."""

import pytest
import torch
from batches import CheckpointOf

from common.errors import StartupError
from worker.engines.cuda import TorchEngine


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_asked_for_cuda_and_none_there(checkpoint_of: CheckpointOf) -> None:
    engine = TorchEngine(checkpoint_of("bert"), "cuda", "float16", threads=1)
    with pytest.raises(StartupError, match="no CUDA device"):
        engine.load()
