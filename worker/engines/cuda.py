"""torch on a CUDA device in half precision, or on the CPU in float32 by the same code. It knows neither requests nor text.

The vocabulary head runs at the mask positions only; softmax is computed in float32; the top tokens are found on the device,
and only they come back.
"""

import logging
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint
from common.errors import EngineBroken, StartupError
from worker.engines.base import PaddedBatch, TopTokens, blank_batch
from worker.masked_head import MaskedHead

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("fillmask.worker")

_STICKY = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "device-side assert")
"""Such an error leaves the CUDA context useless: every later call fails too, so the process has to end."""


class TorchEngine:
    """One model on one device: `cuda` (the first that CUDA_VISIBLE_DEVICES shows) or `cpu`."""

    def __init__(self, checkpoint: Checkpoint, device: str, dtype: str, threads: int) -> None:
        self.name = f"torch {device} {dtype}"
        self._checkpoint = checkpoint
        self._device = device
        self._dtype = dtype
        self._threads = threads

    def load(self) -> None:
        model = MaskedHead.load(self._checkpoint, attention="sdpa", dtype=self._dtype)
        import torch

        if self._device == "cuda" and not torch.cuda.is_available():
            built = torch.version.cuda or "none: a CPU build of torch"
            raise StartupError(f"no CUDA device can be used (torch's CUDA: {built}); --engine onnx runs on the CPU")
        torch.set_num_threads(self._threads)
        model.model.to(self._device)
        self._model = model
        self._torch = torch
        where = torch.cuda.get_device_name() if self._device == "cuda" else f"{self._threads} CPU threads"
        log.info("loaded %s in %s, to run on %s", self._checkpoint.title, self._dtype, where)

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        for count, longest in shapes:
            self.predict(blank_batch(self._checkpoint.mask_token_id, count, longest))

    def predict(self, batch: PaddedBatch) -> TopTokens:
        try:
            with self._torch.inference_mode():
                return self._ranked(self._logits(batch), batch)
        except self._torch.cuda.OutOfMemoryError:
            self._torch.cuda.empty_cache()  # the caller tries again in halves, and they need what this one left lying
            raise
        except RuntimeError as error:
            if any(word in str(error) for word in _STICKY):
                raise EngineBroken(f"the device is lost: {str(error).splitlines()[0]}") from error
            raise

    def close(self) -> None:
        del self._model

    def _logits(self, batch: PaddedBatch) -> "Tensor":
        """float32[masks, vocabulary], on the device."""
        ids = self._sent(batch.token_ids)
        inputs = {"input_ids": ids, "attention_mask": self._sent(batch.attention_mask)}
        if self._model.takes_segments:
            inputs["token_type_ids"] = self._torch.zeros_like(ids)
        return self._model.at_masks(inputs, self._sent(batch.mask_rows), self._sent(batch.mask_columns)).float()

    def _ranked(self, logits: "Tensor", batch: PaddedBatch) -> TopTokens:
        probabilities = logits.softmax(-1)
        # A row that is no number stays so: its request fails, and no other.
        best, ids = probabilities.topk(batch.top_k, sorted=True)
        targets = probabilities[self._sent(batch.target_masks), self._sent(batch.target_ids)]
        return TopTokens(ids.int().cpu().numpy(), best.cpu().numpy(), targets.cpu().numpy())

    def _sent(self, array: NDArray[np.int64]) -> "Tensor":
        """To the device; from pinned memory, so that the copy does not wait for the work before it."""
        tensor = self._torch.from_numpy(np.ascontiguousarray(array))
        if self._device != "cuda":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)
