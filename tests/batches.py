"""Batches for tests of engines, made from rows of token ids, and what it means that two answers are the same."""

from collections.abc import Callable, Sequence

import numpy as np

from common.checkpoint import Checkpoint
from worker.engines.base import PaddedBatch, TopTokens

CheckpointOf = Callable[[str], Checkpoint]
"""An architecture's name -> its tiny checkpoint; the type of the fixture `checkpoint_of`."""

Targets = Sequence[tuple[int, int]]
"""(index of the mask in the batch, token id)"""


def batch_of(
    rows: Sequence[Sequence[int]], checkpoint: Checkpoint, top_k: int = 5, targets: Targets = ()
) -> PaddedBatch:
    """Pads the rows to the longest and asks at every mask token in them, row by row."""
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), checkpoint.pad_token_id, np.int64)
    inside = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        inside[index, : len(row)] = 1
    mask_rows, mask_columns = np.nonzero(ids == checkpoint.mask_token_id)
    pairs = np.array(targets, np.int64).reshape(-1, 2)
    return PaddedBatch(ids, inside, mask_rows, mask_columns, top_k, pairs[:, 0], pairs[:, 1])


def random_row(checkpoint: Checkpoint, length: int, generator: np.random.Generator) -> list[int]:
    """`length` ordinary tokens, one of them replaced by the mask."""
    ordinary = sorted(set(range(checkpoint.vocabulary_size)) - checkpoint.special_token_ids)
    row: list[int] = generator.choice(ordinary, length).tolist()
    row[int(generator.integers(length))] = checkpoint.mask_token_id
    return row


def masks_of(found: TopTokens, masks: slice) -> TopTokens:
    """The answers at some of the batch's masks, without targets."""
    return TopTokens(found.token_ids[masks], found.probabilities[masks], found.target_probabilities[:0])


def assert_same(found: TopTokens, expected: TopTokens, tolerance: float = 1e-4) -> None:
    """Probabilities within `tolerance`; ids equal but where neighbours in the list are as good as tied."""
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=tolerance, rtol=0)
    gaps = np.abs(np.diff(expected.probabilities, axis=1))
    to_next = np.pad(gaps, ((0, 0), (0, 1)), constant_values=0)  # the last may be tied with one that is not listed
    to_last = np.pad(gaps, ((0, 0), (1, 0)), constant_values=1)
    others = found.token_ids != expected.token_ids
    assert (np.minimum(to_next, to_last)[others] < 1e-5).all(), (found.token_ids, expected.token_ids)
