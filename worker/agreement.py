"""How well does a rounded graph agree with the exact one? Gaps made in whole texts, and what both put first in them.

Texts come in as token ids: a worker has no tokenizer. Pure, numpy only; it judges a graph's arithmetic, not a model's quality.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint
from common.errors import StartupError

FEWEST_TEXTS = 100

_HELD_OUT_GAPS = 1024
"""Or as many as the texts have room for. An agreement of 98 % is then known to half a percent; of 200 gaps, to a whole one."""

_BESIDE = 8
"""So many texts are padded together to see whether neighbours matter."""

Feed: TypeAlias = dict[str, NDArray[np.int64]]
Logits: TypeAlias = NDArray[np.float32]
Run: TypeAlias = Callable[[Feed], Logits]
"""The inputs that worker/export.py names -> float32[masks, vocabulary]."""


class Gaps(NamedTuple):
    """One mask each. What is calibrated with is never compared on."""

    calibration: list[Feed]
    held_out: list[Feed]


class Agreement(NamedTuple):
    """Parts of the held-out gaps. Differences are of probabilities of what the exact graph puts first."""

    compared_gaps: int
    same_first_choice: float
    median_difference: float
    worst_difference: float
    same_beside_others: float
    """Whose first choice the rounded graph keeps when seven other texts are in the batch."""

    @property
    def least(self) -> float:
        return min(self.same_first_choice, self.same_beside_others)


def gaps(checkpoint: Checkpoint, rows: Sequence[Sequence[int]]) -> Gaps:
    """`rows` are token ids of whole texts, special tokens included; texts that the model cannot take are left out.

    Raises StartupError if there are fewer than a hundred others.
    """
    fitting = [row for row in rows if len(row) <= checkpoint.max_tokens and _ordinary(checkpoint, row)]
    if len(fitting) < FEWEST_TEXTS:
        raise StartupError(f"{len(fitting)} usable texts are too few to calibrate with; give at least {FEWEST_TEXTS}")
    each = -(-_HELD_OUT_GAPS // (len(fitting) // 2))
    found = Gaps([], [])
    for index, row in enumerate(fitting):
        feeds, count = (found.held_out, each) if index % 2 else (found.calibration, 1)
        feeds.extend(_masked(checkpoint, row, count, seed=index))
    return found


def beside_others(run: Run, feeds: Sequence[Feed]) -> Logits:
    """The logits at each feed's mask, eight texts padded together at a time."""
    return np.concatenate([run(_padded(feeds[first : first + _BESIDE])) for first in range(0, len(feeds), _BESIDE)])


def compare(wanted: Logits, rounded: Run, feeds: Sequence[Feed]) -> Agreement:
    """`wanted` are the exact graph's logits, for which neighbours do not matter; the rounded one gets each text alone as well."""
    found = np.concatenate([rounded(feed) for feed in feeds])
    beside = beside_others(rounded, feeds)
    first = wanted.argmax(axis=1)
    masks = np.arange(len(first))
    differences = np.abs(_probabilities(wanted)[masks, first] - _probabilities(found)[masks, first])
    return Agreement(
        compared_gaps=len(feeds),
        same_first_choice=round(float((found.argmax(axis=1) == first).mean()), 4),
        median_difference=float(np.median(differences)),
        worst_difference=float(differences.max()),
        same_beside_others=round(float((beside.argmax(axis=1) == found.argmax(axis=1)).mean()), 4),
    )


def _ordinary(checkpoint: Checkpoint, row: Sequence[int]) -> list[int]:
    """Positions of ordinary tokens."""
    return [position for position, token_id in enumerate(row) if token_id not in checkpoint.special_token_ids]


def _masked(checkpoint: Checkpoint, row: Sequence[int], count: int, seed: int) -> Iterator[Feed]:
    """The text with one ordinary token masked, up to `count` times over."""
    ordinary = _ordinary(checkpoint, row)
    generator = np.random.default_rng(seed)
    for position in generator.choice(ordinary, min(count, len(ordinary)), replace=False):
        ids = np.array([row], np.int64)
        ids[0, position] = checkpoint.mask_token_id
        yield _feed(ids, np.ones_like(ids), np.array([position], np.int64))


def _padded(feeds: Sequence[Feed]) -> Feed:
    """Several texts of one mask each as one batch."""
    longest = max(feed["input_ids"].shape[1] for feed in feeds)
    ids, inside = np.zeros((2, len(feeds), longest), np.int64)
    for row, feed in enumerate(feeds):
        length = feed["input_ids"].shape[1]
        ids[row, :length] = feed["input_ids"]
        inside[row, :length] = 1
    return _feed(ids, inside, np.concatenate([feed["mask_columns"] for feed in feeds]))


def _feed(ids: NDArray[np.int64], inside: NDArray[np.int64], columns: NDArray[np.int64]) -> Feed:
    return {
        "input_ids": ids,
        "attention_mask": inside,
        "token_type_ids": np.zeros_like(ids),
        "mask_rows": np.arange(len(ids)),
        "mask_columns": columns,
    }


def _probabilities(logits: Logits) -> Logits:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Logits = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities
