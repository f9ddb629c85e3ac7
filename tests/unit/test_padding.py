"""worker/padding.py: collate and scatter are each other's inverse, whatever the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.messages import (
    PredictFailure,
    PredictRequest,
    PredictResult,
    pack_integers,
    unpack_floats,
    unpack_integers,
)
from worker.engines.base import PaddedBatch, TopTokens
from worker.padding import ModelLimits, Timings, collate, scatter

LIMITS = ModelLimits(vocabulary_size=100, max_tokens=16, pad_token_id=7)


def request(tokens: list[int], masks: list[int], top_k: int = 2, targets: tuple[int, ...] = ()) -> PredictRequest:
    packed_targets = pack_integers(targets) if targets else b""
    return PredictRequest(bytes(16), "f", 1000, pack_integers(tokens), pack_integers(masks), top_k, packed_targets)


def identifying(batch: PaddedBatch) -> TopTokens:
    """Rows that tell where they come from: token = row's first id + column, so any mix-up shows."""
    first = batch.token_ids[batch.mask_rows, 0] + batch.mask_columns
    ids = (first[:, None] + np.arange(batch.top_k)).astype(np.int32)
    probabilities = np.tile(0.5 ** np.arange(1, batch.top_k + 1, dtype=np.float32), (len(ids), 1))
    targets = (first[batch.target_masks] * 1000 + batch.target_ids).astype(np.float32)
    return TopTokens(ids, probabilities, targets)


def test_shapes_and_padding() -> None:
    batch = collate([request([1, 2, 3], [1]), request([4, 5, 6, 8, 9], [0, 4], top_k=5)], LIMITS)
    assert batch.token_ids.tolist() == [[1, 2, 3, 7, 7], [4, 5, 6, 8, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert (batch.mask_rows.tolist(), batch.mask_columns.tolist()) == ([0, 1, 1], [1, 0, 4])
    assert batch.top_k == 5
    assert batch.padded_tokens == 10


@pytest.mark.parametrize(
    "bad",
    [
        request([1, 100], [0]),
        request([-1], [0]),
        request([1, 2], [2]),
        request([1, 2], [-1]),
        request([1] * 17, [0]),
        request([1], [0], targets=(100,)),
        request([1, 2], []),
    ],
    ids=["id too high", "id negative", "mask behind the end", "mask negative", "too long", "target", "no mask"],
)
def test_what_would_break_a_device_is_refused_before_it(bad: PredictRequest) -> None:
    with pytest.raises(ValueError, match="outside"):
        collate([request([1, 2], [0]), bad], LIMITS)


requests = st.lists(
    st.builds(
        lambda tokens, masks, top_k, targets: request(
            tokens, sorted({mask % len(tokens) for mask in masks}), top_k, tuple(targets)
        ),
        st.lists(st.integers(0, 49), min_size=1, max_size=16),
        st.lists(st.integers(0, 15), min_size=1, max_size=4),
        st.integers(1, 10),
        st.lists(st.integers(0, 99), max_size=3, unique=True),
    ),
    min_size=1,
    max_size=8,
)


@given(requests)
def test_everybody_gets_his_own(asked: list[PredictRequest]) -> None:
    replies = scatter(identifying(collate(asked, LIMITS)), asked, Timings([0.0] * len(asked), 1.0))
    for one, reply in zip(asked, replies, strict=True):
        assert isinstance(reply, PredictResult)
        first = int(unpack_integers(one.token_ids)[0])
        marks = [first + int(column) for column in unpack_integers(one.mask_positions)]
        ids = unpack_integers(reply.token_ids).reshape(len(marks), reply.candidates).tolist()
        scores = unpack_floats(reply.probabilities).reshape(len(marks), reply.candidates).tolist()
        targets = unpack_integers(one.target_ids).tolist()
        if targets:
            best = sorted(targets, reverse=True)[: one.top_k]
            assert ids == [best for _ in marks]
            assert scores == [[mark * 1000 + target for target in best] for mark in marks]
        else:
            assert ids == [[mark + rank for rank in range(one.top_k)] for mark in marks]


def test_a_row_that_is_no_number_fails_its_own_request_only() -> None:
    asked = [request([1], [0]), request([2], [0]), request([3], [0])]
    top = identifying(collate(asked, LIMITS))
    top.probabilities[1] = np.nan
    good, bad, also_good = scatter(top, asked, Timings([0.0] * 3, 1.0))
    assert isinstance(good, PredictResult)
    assert isinstance(also_good, PredictResult)
    assert isinstance(bad, PredictFailure)
    assert bad.reason == "not_finite"
