"""Half precision, as a GPU runs by default, on the CPU: close to float32, finite beside padding. Ids are the field cases'."""

from typing import Any

import evaluate
import numpy as np
import pytest
from batches import CheckpointOf, batch_of, masks_of, random_row
from checkpoints import ARCHITECTURES
from tokenizers import Tokenizer

from common.checkpoint import Checkpoint, open_checkpoint
from common.settings import DEMO_MODEL
from worker.engines.base import TopTokens
from worker.engines.cuda import TorchEngine, TorchOptions

MOST_APART = {"float16": 0.01, "bfloat16": 0.05}


def engine(checkpoint: Checkpoint, dtype: str) -> TorchEngine:
    loaded = TorchEngine(checkpoint, TorchOptions("cpu", dtype))
    loaded.load()
    return loaded


def golden_rows() -> list[list[int]]:
    """Token ids of the nine sentences: each character masked in turn, alone and with another sentence on either side."""
    tokenizer: Any = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    whole = [masked.replace("[MASK]", answer) for masked, answer in evaluate.NINE]
    texts = []
    for sentence, other in zip(whole, [*whole[1:], whole[0]], strict=True):
        gaps = [f"{sentence[:place]}[MASK]{sentence[place + 1 :]}" for place in range(len(sentence))]
        texts += [text for gap in gaps for text in (gap, gap + other, other + gap)]
    return [tokenizer.encode(text).ids for text in texts[:200]]


def answers(checkpoint: Checkpoint, dtype: str, rows: list[list[int]]) -> TopTokens:
    loaded = engine(checkpoint, dtype)
    found = [loaded.predict(batch_of(rows[first : first + 32], checkpoint)) for first in range(0, len(rows), 32)]
    return TopTokens(*[np.concatenate(part) for part in zip(*found, strict=True)])


@pytest.mark.parametrize("dtype", MOST_APART)
def test_m20_scores_are_those_of_float32(dtype: str) -> None:
    """Softmax is float32's: in half precision small scores would be 0, and equal ones in any order."""
    checkpoint, rows = open_checkpoint(str(DEMO_MODEL)), golden_rows()
    assert len(rows) == 200
    half, full = answers(checkpoint, dtype, rows), answers(checkpoint, "float32", rows)
    same_best = half.token_ids[:, 0] == full.token_ids[:, 0]
    assert same_best.mean() >= (0.99 if dtype == "float16" else 0.95)
    assert np.abs(half.probabilities - full.probabilities)[same_best, 0].max() <= MOST_APART[dtype]
    assert (half.probabilities > 0).all()
    assert (half.probabilities <= 1).all()
    assert (np.diff(half.probabilities, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("architecture", "dtype"), [*[(architecture, "float16") for architecture in ARCHITECTURES], ("bert", "bfloat16")]
)
def test_m21_a_short_text_beside_the_longest_is_finite(
    checkpoint_of: CheckpointOf, architecture: str, dtype: str
) -> None:
    checkpoint, generator = checkpoint_of(architecture), np.random.default_rng(21)
    loaded = engine(checkpoint, dtype)
    rows = [random_row(checkpoint, length, generator) for length in (3, checkpoint.max_tokens)]
    together = loaded.predict(batch_of(rows, checkpoint))
    for index, row in enumerate(rows):
        alone = loaded.predict(batch_of([row], checkpoint))
        beside = masks_of(together, slice(index, index + 1))
        assert np.isfinite(beside.probabilities).all()
        np.testing.assert_allclose(beside.probabilities, alone.probabilities, atol=MOST_APART[dtype])
