"""worker/engines/ranking.py: exact order, safe softmax, and a bad row that harms no other."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engines.base import PaddedBatch, TopTokens
from worker.engines.ranking import rank


def ranked(logits: Any, top_k: int = 3, targets: tuple[tuple[int, int], ...] = ()) -> TopTokens:
    logits = np.asarray(logits, np.float32)
    masks = np.arange(len(logits))
    pairs = np.array(targets, np.int64).reshape(-1, 2)
    cells = np.zeros((len(logits), 1), np.int64)
    return rank(logits, PaddedBatch(cells, cells + 1, masks, masks * 0, top_k, pairs[:, 0], pairs[:, 1]))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 700), st.floats(0, 1), st.sampled_from([0.1, 3.0, 1e4])
)
def test_as_a_plain_sort_in_double_precision(
    seed: int, masks: int, vocabulary: int, share: float, width: float
) -> None:
    top_k = round(share * vocabulary)
    logits = np.random.default_rng(seed).normal(0, width, (masks, vocabulary)).astype(np.float32).round(1)  # many ties
    found = ranked(logits, top_k)
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    exact = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    assert found.token_ids.tolist() == ids.tolist()
    np.testing.assert_allclose(found.probabilities, np.take_along_axis(exact, ids, axis=1), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("vocabulary", [8, 7600])
def test_ties_go_by_id(vocabulary: int) -> None:
    found = ranked(np.zeros((2, vocabulary)), top_k=5)
    assert found.token_ids.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_huge_logits_do_not_overflow() -> None:
    found = ranked([[3e38, 1e38, -3e38]], top_k=3)
    assert found.probabilities.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_row_is_nan_and_its_neighbours_are_not(bad: float) -> None:
    logits = np.random.default_rng(0).normal(0, 1, (3, 500)).astype(np.float32)
    expected = ranked(logits, 4, ((0, 7), (1, 7), (2, 7)))
    logits[1, 70] = bad
    found = ranked(logits, 4, ((0, 7), (1, 7), (2, 7)))
    assert np.isnan(found.probabilities[1]).all()
    assert np.isnan(found.target_probabilities).tolist() == [False, True, False]
    for kept in (0, 2):
        assert found.token_ids[kept].tolist() == expected.token_ids[kept].tolist()
        assert found.probabilities[kept].tolist() == expected.probabilities[kept].tolist()


def test_targets_and_shapes() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))
    found = ranked(logits, 0, ((1, 0), (0, 2), (1, 0)))
    np.testing.assert_allclose(found.target_probabilities, [0.5, 0.7, 0.5], rtol=1e-6)
    assert (found.token_ids.shape, found.probabilities.shape) == ((2, 0), (2, 0))
    assert found.token_ids.dtype == np.int32
    assert found.probabilities.dtype == np.float32


def test_the_logits_stay_as_they_were() -> None:
    logits = np.random.default_rng(0).normal(0, 1, (4, 300)).astype(np.float32)
    before = logits.copy()
    ranked(logits)
    assert (logits == before).all()


def test_half_precision_is_widened_first() -> None:
    logits = np.random.default_rng(0).normal(0, 8, (2, 300)).astype(np.float16)
    assert (ranked(logits).probabilities == ranked(logits.astype(np.float32)).probabilities).all()


def test_a_large_batch_costs_little() -> None:
    """1.5 ms here; the bound only catches a sort of the whole vocabulary, which takes 80 ms."""
    logits = np.random.default_rng(0).normal(0, 3, (64, 21_128)).astype(np.float32)
    ranked(logits)
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        ranked(logits, 5)
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.04
