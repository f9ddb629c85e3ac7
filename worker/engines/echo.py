"""An engine without a model: what it answers is computed from the asking row alone, so any mix-up of rows shows.

It measures the bare pipe (HTTP, Redis, batching) and stands in for a model in tests. It predicts nothing.
"""

import numpy as np
from numpy.typing import NDArray

from worker.engines.base import AtOnce, PaddedBatch, TopTokens


class EchoEngine(AtOnce):
    """Candidate i at any mask of a row is (the sum of the row's token ids + i) mod vocabulary, with probability 2^-(i+1)."""

    name = "echo"

    def __init__(self, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size

    def load(self) -> None:
        pass

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        pass

    def predict(self, batch: PaddedBatch) -> TopTokens:
        """A target's probability is that of its rank among the candidates, as if all the vocabulary had been asked for."""
        sums = (batch.token_ids * batch.attention_mask).sum(axis=1)[batch.mask_rows]
        ranks = np.arange(batch.top_k, dtype=np.int64)
        token_ids = (sums[:, None] + ranks) % self._vocabulary_size
        target_ranks = (batch.target_ids - sums[batch.target_masks]) % self._vocabulary_size
        probabilities = np.broadcast_to(_halved(ranks), token_ids.shape)
        return TopTokens(token_ids.astype(np.int32), probabilities, _halved(target_ranks))

    def close(self) -> None:
        pass


def _halved(ranks: NDArray[np.int64]) -> NDArray[np.float32]:
    """2^-(rank+1), down to 2^-126, the least normal float32."""
    halved: NDArray[np.float32] = np.ldexp(np.float32(1), -(np.minimum(ranks, 125) + 1))
    return halved
