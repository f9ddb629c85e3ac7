"""Shapes that a device prepares for, and a batch rounded up to one of them. Pure, numpy only: it knows no device.

A captured graph runs one shape only. Rounding up costs computation, each shape costs time and memory at the start; the steps
are so fine that a large batch grows by at most a half in either direction, and choose_batch fills batches to the brim.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from worker.engines.base import PaddedBatch

_SHORTEST = 8
"""Tensor cores work on tiles of eight."""

_FULL_FROM = 32
"""Below so many rows a GPU is not full, and empty rows cost it next to nothing: there the counts double."""

_REPEATED = 2
"""A row with several masks is repeated for each; a batch that would grow more than this by it is no case for a bucket."""


class Bucket(NamedTuple):
    """Rows, and tokens in each; one mask a row."""

    rows: int
    longest: int

    @property
    def padded_tokens(self) -> int:
        return self.rows * self.longest


@dataclass(frozen=True)
class Buckets:
    """All shapes of at most so many rows and so many tokens in all, for rows of up to `longest` tokens."""

    max_rows: int
    max_padded_tokens: int
    longest: int

    def __iter__(self) -> Iterator[Bucket]:
        """The largest first: what they need of a shared memory pool is then enough for all that follow."""
        every = (Bucket(rows, longest) for rows in _counts(self.max_rows) for longest in _lengths(self.longest))
        fitting = (bucket for bucket in every if bucket.padded_tokens <= self.max_padded_tokens)
        return iter(sorted(fitting, key=lambda bucket: (bucket.padded_tokens, bucket.rows), reverse=True))

    def holding(self, batch: PaddedBatch) -> Bucket | None:
        """The smallest that holds the batch with one mask a row; None if there is none, or repeated rows would fill it."""
        given, longest = batch.token_ids.shape
        masks = len(batch.mask_rows)
        if masks > _REPEATED * given:
            return None
        rows = next((rows for rows in _counts(self.max_rows) if rows >= masks), None)
        length = next((length for length in _lengths(self.longest) if length >= longest), None)
        if not rows or not length or rows * length > self.max_padded_tokens:
            return None
        return Bucket(rows, length)


Flat = TypeVar("Flat")
"""An array, or a device's tensor, which slices and reshapes like one."""


class Feed(NamedTuple, Generic[Flat]):
    """A bucket's inputs, as views of `size(bucket)` integers in a row: one copy takes all of them to a device."""

    token_ids: Flat
    attention_mask: Flat
    mask_columns: Flat


def size(bucket: Bucket) -> int:
    return 2 * bucket.padded_tokens + bucket.rows


def split(flat: Flat, bucket: Bucket) -> Feed[Flat]:
    whole: Any = flat
    tokens, shape = bucket.padded_tokens, tuple(bucket)
    ids, mask = whole[:tokens].reshape(shape), whole[tokens : 2 * tokens].reshape(shape)
    return Feed(ids, mask, whole[2 * tokens : size(bucket)])


def fill(flat: NDArray[np.int64], bucket: Bucket, batch: PaddedBatch, pad_token_id: int) -> None:
    """Writes the batch, a row for each mask, and padding around it.

    An empty row attends to its first token: with nothing to attend to, attention would be 0/0, and NaN once in a buffer stays.
    """
    feed = split(flat, bucket)
    masks, longest = len(batch.mask_rows), batch.token_ids.shape[1]
    feed.token_ids[masks:] = pad_token_id
    feed.token_ids[:masks, longest:] = pad_token_id
    feed.token_ids[:masks, :longest] = batch.token_ids[batch.mask_rows]
    feed.attention_mask[masks:] = 0
    feed.attention_mask[masks:, 0] = 1
    feed.attention_mask[:masks, longest:] = 0
    feed.attention_mask[:masks, :longest] = batch.attention_mask[batch.mask_rows]
    feed.mask_columns[masks:] = 0
    feed.mask_columns[:masks] = batch.mask_columns


def _counts(most: int) -> Iterator[int]:
    """1, 2, 4, ... 32, 48, 64, 96, ... and `most`."""
    return _steps(1, _FULL_FROM, most)


def _lengths(longest: int) -> Iterator[int]:
    """8, 16, 24, 32, 48, 64, 96, ... and `longest`: a model has no positions beyond it."""
    return _steps(_SHORTEST, 2 * _SHORTEST, longest)


def _steps(first: int, halves_from: int, most: int) -> Iterator[int]:
    """Powers of two times `first`, from `halves_from` on with one step between each two, up to `most`, which ends it."""
    step = first
    while step < most:
        yield step
        if step >= halves_from and step * 3 // 2 < most:
            yield step * 3 // 2
        step *= 2
    yield most
