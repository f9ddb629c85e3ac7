"""Logits at the mask positions -> the top tokens and their probabilities. Pure, numpy only; every host engine ends here."""

import numpy as np
from numpy.typing import NDArray

from worker.engines.base import PaddedBatch, TopTokens

_BLOCKS = 64
"""A row is folded so many times before its top k are looked for: the k-th largest of the folded maxima is a floor that
at least k tokens reach and hardly more, and costs a quarter of a partition of the whole row."""


def rank(logits: NDArray[np.float32], batch: PaddedBatch) -> TopTokens:
    """float32[masks, vocabulary] -> the batch's TopTokens, by logit descending, then by id ascending: no tie is random.

    `batch.top_k` must not exceed the vocabulary. Probabilities are over the whole vocabulary. A row that holds NaN or an
    infinity comes back as NaN; its ids mean nothing. `logits` is left as it was.
    """
    logits = np.ascontiguousarray(logits, dtype=np.float32)
    highest = logits.max(axis=1, keepdims=True)
    bad = ~np.isfinite(highest[:, 0]) | ~np.isfinite(logits.min(axis=1))
    if bad.any():
        logits = np.where(bad[:, None], np.float32(0), logits)
        highest[bad] = 0
    with np.errstate(over="ignore"):  # a difference beyond float32 is -inf, and its exponential the 0 that it should be
        exponentials = np.subtract(logits, highest)
    total = np.exp(exponentials, out=exponentials).sum(axis=1)
    total[bad] = np.nan

    token_ids = _top_ids(logits, batch.top_k)
    probabilities = np.take_along_axis(exponentials, token_ids, axis=1) / total[:, None]
    targets = exponentials[batch.target_masks, batch.target_ids] / total[batch.target_masks]
    return TopTokens(token_ids.astype(np.int32), probabilities, targets)


def _top_ids(logits: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """int64[masks, top_k]"""
    masks, vocabulary = logits.shape
    if top_k == 0 or masks == 0:
        return np.empty((masks, top_k), np.int64)
    reached = np.flatnonzero(logits >= _floor(logits, top_k)[:, None])
    rows, ids = np.divmod(reached, vocabulary)
    order = np.lexsort((-logits[rows, ids], rows))  # stable, so equal logits stay in the order of their ids
    first = np.searchsorted(rows, np.arange(masks))
    top: NDArray[np.int64] = ids[order[first[:, None] + np.arange(top_k)]]
    return top


def _floor(logits: NDArray[np.float32], top_k: int) -> NDArray[np.float32]:
    """float32[masks]: a value that at least `top_k` logits of the row reach."""
    masks, vocabulary = logits.shape
    width = vocabulary // _BLOCKS
    sample = logits
    if top_k * 4 <= width:
        sample = logits[:, : width * _BLOCKS].reshape(masks, _BLOCKS, width).max(axis=1)
    floor: NDArray[np.float32] = np.partition(sample, -top_k, axis=1)[:, -top_k]
    return floor
