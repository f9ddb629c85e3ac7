"""The buckets of worker/engines/buckets.py made ready on a device: static tensors, and for each bucket one call that fills them.

All share the same tensors, since a device computes one at a time, in order. It knows a model only as the step it is given.
"""

import gc
import logging
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from common.checkpoint import Checkpoint
from worker.engines.base import PaddedBatch
from worker.engines.buckets import Bucket, Buckets, fill, size, split
from worker.engines.device import Device, held_by

log = logging.getLogger("fillmask.worker")

READY_TOP_K = 32
"""A bucket finds so many top tokens, whoever asks; for the rare request that wants more they are looked for once again."""

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(token ids, attention mask, mask columns) -> logits [rows, vocabulary] in the model's precision"""


class Found(NamedTuple):
    """At each mask, on the device: the probabilities of the whole vocabulary, and the top tokens. The first may be written
    over by the next batch, the others not."""

    probabilities: Tensor
    token_ids: Tensor
    top_probabilities: Tensor


def top_of(probabilities: Tensor, top_k: int) -> Found:
    best, token_ids = probabilities.topk(top_k, sorted=True)
    return Found(probabilities, token_ids.int(), best)


class ReadyShapes:
    def __init__(self, step: Step, device: Device, buckets: Buckets, checkpoint: Checkpoint) -> None:
        self._step = step
        self._device = device
        self._buckets = buckets
        self._pad_token_id = checkpoint.pad_token_id
        self._top_k = min(READY_TOP_K, checkpoint.vocabulary_size)
        rows = max(bucket.rows for bucket in buckets)
        where = device.at()
        self._inputs = torch.zeros(max(map(size, buckets)), dtype=torch.int64, device=where)
        self._probabilities = torch.zeros((rows, checkpoint.vocabulary_size), dtype=torch.float32, device=where)
        self._best = torch.zeros((rows, self._top_k), dtype=torch.float32, device=where)
        self._best_ids = torch.zeros((rows, self._top_k), dtype=torch.int64, device=where)
        self._runs: dict[Bucket, Callable[[], None]] = {}

    def make_ready(self) -> None:
        """Runs, and on a CUDA device captures, every bucket. One that the device's memory does not hold is left out."""
        gc.collect()
        gc.freeze()  # some releases of torch collect at each capture: a hundred times all that has been imported
        try:
            for bucket in self._buckets:
                self._make_ready(bucket)
        finally:
            gc.unfreeze()
        log.info("made %d shapes ready, up to %d rows", len(self._runs), len(self._best))

    def holding(self, batch: PaddedBatch) -> Bucket | None:
        bucket = self._buckets.holding(batch)
        return bucket if bucket in self._runs else None

    def run(self, bucket: Bucket, batch: PaddedBatch, kept: list[Tensor]) -> Found:
        """Sends the batch and starts the computation. What must outlive it is added to `kept`."""
        host = self._device.room(size(bucket))
        fill(held_by(host), bucket, batch, self._pad_token_id)
        there = self._device.sent(host)
        kept += [host, there]
        self._inputs[: size(bucket)].copy_(there)
        self._runs[bucket]()
        masks = len(batch.mask_rows)
        probabilities = self._probabilities[:masks]
        if batch.top_k > self._top_k:
            return top_of(probabilities, batch.top_k)
        best = self._best[:masks, : batch.top_k].clone(memory_format=torch.contiguous_format)
        return Found(probabilities, self._best_ids[:masks, : batch.top_k].int(), best)

    def _make_ready(self, bucket: Bucket) -> None:
        # One real token a row, as fill() leaves empty rows: with none, the first run would put NaN into the buffers.
        self._inputs.zero_()
        split(self._inputs, bucket).attention_mask[:, 0] = 1
        try:
            self._runs[bucket] = self._device.ready_made(lambda: self._compute(bucket))
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            log.warning("no memory for batches of %d x %d tokens to be made ready", *bucket)

    def _compute(self, bucket: Bucket) -> None:
        """From static tensors into static tensors: what a graph consists of."""
        inputs = split(self._inputs, bucket)
        logits = self._step(inputs.token_ids, inputs.attention_mask, inputs.mask_columns)
        probabilities = self._probabilities[: bucket.rows]
        torch.softmax(logits, -1, dtype=torch.float32, out=probabilities)
        best = (self._best[: bucket.rows], self._best_ids[: bucket.rows])
        torch.topk(probabilities, self._top_k, sorted=True, out=best)
