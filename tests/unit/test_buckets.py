"""worker/engines/buckets.py: which shapes there are, which one a batch is rounded up to, and what is written into it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engines.base import PaddedBatch
from worker.engines.buckets import Bucket, Buckets, fill, size, split

BUCKETS = Buckets(max_rows=512, max_padded_tokens=16_384, longest=500)
PAD = 7


def batch(lengths: list[int], masks_of_rows: list[int]) -> PaddedBatch:
    """Row i is full of 100 + i; its masks are at its first places."""
    ids = np.full((len(lengths), max(lengths)), PAD, np.int64)
    real = np.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length], real[row, :length] = 100 + row, 1
    columns = np.concatenate([np.arange(masks) for masks in masks_of_rows])
    nothing = np.empty(0, np.int64)
    return PaddedBatch(ids, real, np.repeat(np.arange(len(lengths)), masks_of_rows), columns, 5, nothing, nothing)


def test_the_largest_shape_comes_first_and_none_is_beyond_the_limits() -> None:
    shapes = list(BUCKETS)
    sizes = [shape.padded_tokens for shape in shapes]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(shapes)) == len(shapes) < 200
    assert {shape.longest for shape in shapes} == {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 500}
    assert {1, 2, 4, 8, 16, 32, 48, 64, 96, 512} <= {shape.rows for shape in shapes}
    assert max(sizes) <= BUCKETS.max_padded_tokens


@pytest.mark.parametrize("longest", [1, 5, 8, 9, 64])
def test_no_shape_is_longer_than_the_model(longest: int) -> None:
    assert max(shape.longest for shape in Buckets(4, 1000, longest)) == longest


@given(st.integers(1, 512), st.integers(1, 500))
def test_a_batch_gets_the_smallest_shape_that_holds_it(rows: int, longest: int) -> None:
    found = BUCKETS.holding(batch([longest] * rows, [1] * rows))
    holding = [shape for shape in BUCKETS if shape.rows >= rows and shape.longest >= longest]
    assert found == (min(holding, key=lambda shape: (shape.rows, shape.longest)) if holding else None)
    if found and rows > 32 and longest > 16:
        assert found.padded_tokens < 1.5 * 1.5 * rows * longest


def test_a_row_with_two_masks_is_two_rows() -> None:
    assert BUCKETS.holding(batch([9, 9, 9], [2, 1, 2])) == Bucket(8, 16)


def test_many_masks_in_a_row_are_no_case_for_a_bucket() -> None:
    assert BUCKETS.holding(batch([300], [40])) is None


def test_what_is_too_large_has_no_bucket() -> None:
    assert BUCKETS.holding(batch([400] * 60, [1] * 60)) is None
    assert BUCKETS.holding(batch([8] * 513, [1] * 513)) is None


rows_with_masks = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 2)), min_size=1, max_size=20).map(
    lambda rows: [(length, min(length, masks)) for length, masks in rows]
)


@given(rows_with_masks)
def test_the_batch_is_in_it_and_the_rest_is_padding(rows: list[tuple[int, int]]) -> None:
    given_batch = batch([length for length, _ in rows], [masks for _, masks in rows])
    bucket = BUCKETS.holding(given_batch)
    assert bucket is not None
    flat = np.full(size(bucket), -1, np.int64)
    fill(flat, bucket, given_batch, PAD)
    ids, real, columns = split(flat, bucket)
    masks = len(given_batch.mask_rows)
    expected = [rows[row][0] * [100 + row] for row in given_batch.mask_rows]
    assert [row[kept == 1].tolist() for row, kept in zip(ids[:masks], real[:masks], strict=True)] == expected
    assert columns[:masks].tolist() == given_batch.mask_columns.tolist()
    assert (ids[real == 0] == PAD).all()
    assert (real.sum(axis=1) > 0).all(), "a row without a token to attend to becomes NaN"
    assert ((columns >= 0) & (columns < bucket.longest)).all()
    assert (flat >= 0).all(), "nothing is left of the batch before"
