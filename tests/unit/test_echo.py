"""EchoEngine: an answer that only its own row can give."""

import numpy as np

from worker.engines.base import PaddedBatch
from worker.engines.echo import EchoEngine


def test_candidates_and_targets_follow_from_the_row() -> None:
    ids, inside = np.array([[3, 4, 5], [8, 9, 99]]), np.array([[1, 1, 1], [1, 1, 0]])
    targets = (np.array([0, 1, 1]), np.array([12, 0, 16]))
    batch = PaddedBatch(ids, inside, np.array([0, 1]), np.array([1, 0]), 3, *targets)
    engine = EchoEngine(vocabulary_size=18)
    engine.load()
    engine.warm_up([(1, 1)])
    found = engine.predict(batch)
    assert found.token_ids.tolist() == [[12, 13, 14], [17, 0, 1]]
    assert found.probabilities.tolist() == [[0.5, 0.25, 0.125]] * 2
    assert found.target_probabilities.tolist() == [0.5, 0.25, 2.0**-18]
    assert found.token_ids.dtype == np.int32
    assert found.probabilities.dtype == np.float32
    engine.close()


def test_no_candidates_and_far_targets() -> None:
    cells = np.array([[5]])
    batch = PaddedBatch(cells, cells * 0 + 1, np.array([0]), np.array([0]), 0, np.array([0]), np.array([4]))
    found = EchoEngine(vocabulary_size=21_128).predict(batch)
    assert found.token_ids.shape == (1, 0)
    assert 0 < found.target_probabilities[0] < 1e-30
