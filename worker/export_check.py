"""Does an exported graph say what torch says? Random rows, padded together in the graph, alone and unpadded in torch.

So one comparison covers the export, the head at the mask positions only, and the padding. It judges no model's quality.
"""

from collections.abc import Callable
from typing import TypedDict

import numpy as np

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.agreement import Feed, Logits, Run

ABSOLUTE = 1e-3
RELATIVE = 1e-4
"""float32 keeps seven digits and twelve layers cost two of them, so large logits are given room in proportion."""


class Deviation(TypedDict):
    count: int
    longest: int
    masks: int
    max_logit_difference: float


def compare(graph: Run, reference: Callable[[list[int]], Logits], checkpoint: Checkpoint) -> list[Deviation]:
    """Raises StartupError if any logit differs by more than 1e-3 + 1e-4 of its size; so the best tokens differ but in ties.

    `graph` gives float32[masks, vocabulary]; `reference`, of the token ids of one row, float32[length, vocabulary].
    """
    generator = np.random.default_rng(20)
    deviations = []
    for count, longest in ((1, 3), (2, 17), (8, min(512, checkpoint.max_tokens)), (5, 9)):
        feed = _random_rows(generator, count, longest, checkpoint)
        found = graph(feed)
        expected = np.concatenate([_alone(reference, feed, row) for row in range(count)])
        _refuse_difference(found, expected, f"{count} x {longest} tokens")
        difference = float(np.abs(found - expected).max())
        deviations.append(Deviation(count=count, longest=longest, masks=len(found), max_logit_difference=difference))
    return deviations


def _random_rows(generator: np.random.Generator, count: int, longest: int, checkpoint: Checkpoint) -> Feed:
    """Rows of random lengths, the first the longest, with two places to predict in each."""
    lengths = generator.integers(3, longest + 1, count)
    lengths[0] = longest
    ids = generator.integers(0, checkpoint.vocabulary_size, (count, longest))
    ids[ids == checkpoint.pad_token_id] = checkpoint.mask_token_id
    inside = np.arange(longest) < lengths[:, None]
    rows = np.repeat(np.arange(count), 2)
    return {
        "input_ids": np.where(inside, ids, checkpoint.pad_token_id),
        "attention_mask": inside.astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
        "mask_rows": rows,
        "mask_columns": generator.integers(0, lengths[rows]),
    }


def _alone(reference: Callable[[list[int]], Logits], feed: Feed, row: int) -> Logits:
    """float32[masks of the row, vocabulary]"""
    real = feed["input_ids"][row][feed["attention_mask"][row] == 1]
    logits: Logits = reference(real.tolist())[feed["mask_columns"][feed["mask_rows"] == row]]
    return logits


def _refuse_difference(found: Logits, expected: Logits, where: str) -> None:
    if found.shape != expected.shape:
        raise StartupError(f"the exported graph gives {found.shape} logits where torch gives {expected.shape}")
    if not np.allclose(found, expected, atol=ABSOLUTE, rtol=RELATIVE):
        worst = float(np.abs(found - expected).max())
        raise StartupError(f"the exported graph differs from torch by {worst:.2g} at {where}")
