"""A pure inverse pair: collate(requests) -> PaddedBatch, scatter(TopTokens, requests) -> replies.

Both are a handful of numpy calls a batch and a few slices a request: this is most of the worker's own work per request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.checkpoint import Checkpoint
from common.messages import (
    Float32,
    Int32,
    PredictFailure,
    PredictRequest,
    PredictResult,
    Reply,
    unpack_integers,
)
from worker.engines.base import PaddedBatch, TopTokens


@dataclass(frozen=True)
class ModelLimits:
    """What the model's tables hold. An id or position beyond them would break a GPU for good, so collate refuses it."""

    vocabulary_size: int
    max_tokens: int
    pad_token_id: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "ModelLimits":
        return cls(checkpoint.vocabulary_size, checkpoint.max_tokens, checkpoint.pad_token_id)


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each request of a batch waited, and how long the batch took."""

    queue_ms: Sequence[float]
    inference_ms: float


def collate(requests: Sequence[PredictRequest], limits: ModelLimits) -> PaddedBatch:
    """Rectangular arrays for all requests. Raises ValueError if one of them does not fit the model."""
    lengths = np.array([request.length_tokens for request in requests])
    real = np.arange(lengths.max()) < lengths[:, None]  # bool[count, longest]
    token_ids = np.full(real.shape, limits.pad_token_id, dtype=np.int64)
    token_ids[real] = unpack_integers(b"".join([request.token_ids for request in requests]))
    mask_counts = [len(request.mask_positions) // Int32.itemsize for request in requests]
    mask_rows = np.repeat(np.arange(len(requests)), mask_counts)
    mask_columns = unpack_integers(b"".join([request.mask_positions for request in requests])).astype(np.int64)
    target_masks, target_ids = _targets(requests, mask_counts)
    fits = (
        lengths.max() <= limits.max_tokens
        and _within(token_ids, limits.vocabulary_size)
        and _within(target_ids, limits.vocabulary_size)
        and _within(mask_columns, lengths[mask_rows])
        and all(mask_counts)
    )
    if not fits:
        raise ValueError("token ids, targets or positions outside the model's tables")
    top_k = min(max(request.top_k for request in requests), limits.vocabulary_size)
    return PaddedBatch(token_ids, real.astype(np.int64), mask_rows, mask_columns, top_k, target_masks, target_ids)


def scatter(top: TopTokens, requests: Sequence[PredictRequest], timings: Timings) -> list[Reply]:
    """One reply a request, in order: its own rows, cut to its own top_k. NaN rows fail their own request only."""
    finite = np.isfinite(top.probabilities).all(axis=1)
    all_finite = bool(finite.all() and np.isfinite(top.target_probabilities).all())
    token_ids = top.token_ids.astype(Int32, copy=False)
    probabilities = top.probabilities.astype(Float32, copy=False)
    replies: list[Reply] = []
    mask = target = 0
    for index, request in enumerate(requests):
        masks = slice(mask, mask + len(request.mask_positions) // Int32.itemsize)
        mask = masks.stop
        if request.target_ids:
            targets = unpack_integers(request.target_ids)
            scores = top.target_probabilities[target : target + targets.size * (masks.stop - masks.start)]
            target += scores.size
            ids, scored = _best_targets(targets, scores.reshape(-1, targets.size), request.top_k)
        else:
            ids, scored = token_ids[masks, : request.top_k], probabilities[masks, : request.top_k]
        if not all_finite and not np.isfinite(scored).all():
            replies.append(PredictFailure(request.request_id, "not_finite", "the model's answer is not a number"))
            continue
        replies.append(
            PredictResult(
                request.request_id, ids.shape[1], ids.tobytes(), scored.tobytes(),
                timings.queue_ms[index], timings.inference_ms, len(requests),
            )
        )  # fmt: skip
    return replies


def _targets(requests: Sequence[PredictRequest], mask_counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Flat (mask index, token id) pairs, request by request, mask by mask; requests without targets add none."""
    masks: list[int] = []
    ids: list[int] = []
    first = 0
    for request, count in zip(requests, mask_counts, strict=True):
        if request.target_ids:
            targets = unpack_integers(request.target_ids).tolist()
            masks += [mask for mask in range(first, first + count) for _ in targets]
            ids += targets * count
        first += count
    return np.array(masks, dtype=np.int64), np.array(ids, dtype=np.int64)


def _best_targets(targets: np.ndarray, scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The targets of each mask, most probable first, cut to top_k. scores: float32[masks, targets]."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    return targets[order].astype(Int32, copy=False), np.take_along_axis(scores, order, axis=1).astype(
        Float32, copy=False
    )


def _within(values: np.ndarray, limit: int | np.ndarray) -> bool:
    return bool(((values >= 0) & (values < limit)).all())
