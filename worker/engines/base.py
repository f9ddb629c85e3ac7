"""What every engine is: rectangular batches in, the top tokens at the mask positions out. It knows nothing of requests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class BatchLimits(NamedTuple):
    """How large a batch may be. The defaults are more than any CPU profits from."""

    max_requests: int = 64
    max_padded_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rectangular arrays for one run of the model.

    token_ids, attention_mask  int64[count, longest]; padding has mask 0
    mask_rows, mask_columns    int64[masks]: where the masks are
    top_k                      the largest number of candidates that any request of the batch wants; may be 0
    target_masks, target_ids   int64[targets]: the probability of token target_ids[i] at mask target_masks[i] is wanted
    """

    token_ids: Ids
    attention_mask: Ids
    mask_rows: Ids
    mask_columns: Ids
    top_k: int
    target_masks: Ids
    target_ids: Ids

    @property
    def padded_tokens(self) -> int:
        return int(self.token_ids.size)


def blank_batch(token_id: int, count: int, longest: int) -> PaddedBatch:
    """A batch of that shape, full of one token, with one mask a row: to warm up with."""
    ids = np.full((count, longest), token_id, np.int64)
    rows, nothing = np.arange(count), np.empty(0, np.int64)
    return PaddedBatch(ids, np.ones_like(ids), rows, np.full(count, longest - 1), 5, nothing, nothing)


class TopTokens(NamedTuple):
    """What the model says at each mask of a batch. Probabilities are over the whole vocabulary, computed in float32.

    A row whose logits were not finite holds NaN: the caller fails that request, never its neighbours.
    """

    token_ids: NDArray[np.int32]
    """int32[masks, top_k], most probable first."""
    probabilities: NDArray[np.float32]
    """float32[masks, top_k]"""
    target_probabilities: NDArray[np.float32]
    """float32[targets], in the order of PaddedBatch.target_ids."""


class Engine(Protocol):
    """One loaded model on one device. All calls come from one thread."""

    name: str
    largest: BatchLimits
    """Batches beyond it cannot be worth their while; within it worker/limits.py measures."""
    in_flight: int
    """How many batches may be started before the first is answered: 2 keeps a device busy while the next is prepared; an
    engine that computes in the caller's own time has 1."""

    def load(self) -> None:
        """Reads the weights. Raises StartupError in one line if they are missing, or have no masked-language-model head."""

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        """Runs each (count, longest) once, so that the first request pays for nothing."""

    def predict(self, batch: PaddedBatch) -> TopTokens:
        """Raises EngineBroken if the device is lost for good; any other exception concerns this batch alone."""

    def start(self, batch: PaddedBatch) -> Callable[[], TopTokens]:
        """Begins it; the call of what comes back waits for the answer. Both raise what predict raises."""

    def close(self) -> None:
        """Frees the device. Nothing is called after it."""


class AtOnce:
    """The part of an engine that computes in the caller's own time: a batch starts when its answer is asked for."""

    largest = BatchLimits()
    in_flight = 1

    def predict(self, batch: PaddedBatch) -> TopTokens:
        raise NotImplementedError

    def start(self, batch: PaddedBatch) -> Callable[[], TopTokens]:
        return partial(self.predict, batch)
