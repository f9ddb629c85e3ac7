"""torch on a CUDA device in half precision, or on the CPU in float32 by the same code. It knows neither requests nor text.

The vocabulary head, and where possible the last layer, run at the mask positions only; softmax is computed in float32; the top
tokens are found on the device, and only they come back. A batch is rounded up to a shape that was made ready at the start
(worker/engines/shapes.py); one that fits none, with many masks in a row, runs as it comes. Streams, copies and graphs:
worker/engines/device.py.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint
from common.errors import EngineBroken, StartupError
from worker.engines.base import BatchLimits, PaddedBatch, TopTokens, blank_batch
from worker.engines.buckets import Buckets
from worker.masked_head import MaskedHead

if TYPE_CHECKING:
    from torch import Tensor

    from worker.engines.shapes import Found, ReadyShapes

log = logging.getLogger("fillmask.worker")

_STICKY = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "device-side assert")
"""Such an error leaves the CUDA context useless: every later call fails too, so the process has to end."""

NO_DEVICE = "no CUDA device can be used; --engine onnx runs on the CPU"

LARGEST = BatchLimits(512, 16_384)
"""On a CUDA device, if nobody says otherwise. Larger ones are no faster a token, and each shape costs time at the start."""


@dataclass(frozen=True)
class TorchOptions:
    """`largest`: batches up to there are rounded up to shapes made ready; without it each runs as it comes, best for a CPU."""

    device: Literal["cuda", "cpu"]
    dtype: str = "float32"
    threads: int = 1
    largest: BatchLimits | None = None
    graphs: bool = True
    compiled: bool = False


class TorchEngine:
    """One model on one device: `cuda` (the first that CUDA_VISIBLE_DEVICES shows) or `cpu`."""

    def __init__(self, checkpoint: Checkpoint, options: TorchOptions) -> None:
        self.name = f"torch {options.device} {options.dtype}"
        self.in_flight = 2 if options.device == "cuda" else 1
        self.largest = options.largest or BatchLimits()
        self._checkpoint = checkpoint
        self._options = options
        self._shapes: ReadyShapes | None = None

    def load(self) -> None:
        try:
            import torch

            from worker.engines.device import device
        except ImportError as error:
            raise StartupError(f"torch models need {error.name}: pip install 'fillmask[export]'") from None
        self._torch = torch
        self._device = device(self._options.device, self._options.threads, self._options.graphs)
        self._model = MaskedHead.load(self._checkpoint, attention="sdpa", dtype=self._options.dtype)
        self._model.narrow_last_layer()
        self._model.model.to(self._device.at())
        if self._options.compiled:
            self._model.model.compile(dynamic=True)
        log.info("loaded %s in %s, to run on %s", self._checkpoint.title, self._options.dtype, self._device.name)

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        if self._options.largest and not self._shapes:
            self._make_shapes_ready(self._options.largest)
        for count, longest in shapes:
            self.predict(blank_batch(self._checkpoint.mask_token_id, count, longest))

    def predict(self, batch: PaddedBatch) -> TopTokens:
        return self.start(batch)()

    def start(self, batch: PaddedBatch) -> Callable[[], TopTokens]:
        kept: list[Tensor] = []  # the device still reads and writes what is in it: gone only when the answer is there
        with self._telling(), self._torch.inference_mode(), self._device.computing():
            found = self._find(batch, kept)
            targets = found.probabilities[self._sent(batch.target_masks, kept), self._sent(batch.target_ids, kept)]
            kept += [found.token_ids, found.top_probabilities, targets]
            wait = self._device.fetched(kept[-3:])

        def answer() -> TopTokens:
            with self._telling():
                top = TopTokens(*wait())
            kept.clear()
            return top

        return answer

    def close(self) -> None:
        self._shapes = None
        del self._model

    def _make_shapes_ready(self, largest: BatchLimits) -> None:
        from worker.engines.shapes import ReadyShapes

        buckets = Buckets(largest.max_requests, largest.max_padded_tokens, self._checkpoint.max_tokens)
        with self._telling(), self._torch.inference_mode():
            self._shapes = ReadyShapes(self._step, self._device, buckets, self._checkpoint)
            self._shapes.make_ready()

    def _find(self, batch: PaddedBatch, kept: "list[Tensor]") -> "Found":
        from worker.engines.shapes import top_of

        if self._shapes and (bucket := self._shapes.holding(batch)):
            return self._shapes.run(bucket, batch, kept)
        inputs = self._inputs(self._sent(batch.token_ids, kept), self._sent(batch.attention_mask, kept))
        rows, columns = self._sent(batch.mask_rows, kept), self._sent(batch.mask_columns, kept)
        logits = self._model.at_masks(inputs, rows, columns)
        return top_of(logits.softmax(-1, dtype=self._torch.float32), batch.top_k)

    def _step(self, token_ids: "Tensor", attention_mask: "Tensor", mask_columns: "Tensor") -> "Tensor":
        return self._model.at_one_mask_a_row(self._inputs(token_ids, attention_mask), mask_columns)

    def _inputs(self, token_ids: "Tensor", attention_mask: "Tensor") -> "dict[str, Tensor]":
        inputs = {"input_ids": token_ids, "attention_mask": attention_mask}
        if self._model.takes_segments:
            inputs["token_type_ids"] = self._torch.zeros_like(token_ids)
        return inputs

    def _sent(self, array: NDArray[np.int64], kept: "list[Tensor]") -> "Tensor":
        host = self._device.room(array.size)
        host.numpy()[:] = array.ravel()
        there = self._device.sent(host)
        kept += [host, there]
        return there.reshape(array.shape)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Raises EngineBroken for what ended the device; memory that ran out is given back, for the halves that follow."""
        try:
            yield
        except self._torch.cuda.OutOfMemoryError:
            self._torch.cuda.empty_cache()
            raise
        except RuntimeError as error:
            if any(word in str(error) for word in _STICKY):
                raise EngineBroken(f"the device is lost: {str(error).splitlines()[0]}") from error
            raise


def is_available() -> bool:
    """Whether torch can use a CUDA device here and now."""
    import torch

    return torch.cuda.is_available()
