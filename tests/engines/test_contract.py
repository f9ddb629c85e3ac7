"""What every engine promises, on every architecture: the same answer alone and in any batch, and transformers' answer."""

from typing import Any

import numpy as np
import pytest
from batches import assert_same, batch_of, masks_of, random_row

from common.checkpoint import Checkpoint
from worker.engines.base import Engine, TopTokens

TEXTS = (
    "今天天气很好，我们去公园走走{mask}。",
    "The capital of France is {mask}.",
    "{mask}",
    "床前{mask}月光，疑是地上{mask}。",
)


def test_alone_is_as_in_any_batch(engine: Engine, checkpoint: Checkpoint) -> None:
    generator = np.random.default_rng(3)
    longest = min(checkpoint.max_tokens, 64)
    rows = [random_row(checkpoint, length, generator) for length in (1, 2, 3, 5, 9, 17, 17, 40, longest)]
    alone = [engine.predict(batch_of([row], checkpoint)) for row in rows]
    for _ in range(6):
        chosen = generator.permutation(len(rows))[: generator.integers(2, len(rows) + 1)]
        together = engine.predict(batch_of([rows[index] for index in chosen], checkpoint))
        for place, index in enumerate(chosen):
            assert_same(masks_of(together, slice(place, place + 1)), alone[index])


def test_rows_have_answers_of_their_own(engine: Engine, checkpoint: Checkpoint) -> None:
    """Else the test above could not fail."""
    generator = np.random.default_rng(4)
    found = engine.predict(batch_of([random_row(checkpoint, 9, generator) for _ in range(12)], checkpoint))
    assert len({tuple(ids) for ids in found.token_ids.tolist()}) > 8


def test_heavy_padding_changes_nothing(engine: Engine, checkpoint: Checkpoint) -> None:
    generator = np.random.default_rng(5)
    short, long = random_row(checkpoint, 3, generator), random_row(checkpoint, checkpoint.max_tokens, generator)
    together = engine.predict(batch_of([short, long], checkpoint))
    assert all(np.isfinite(part).all() for part in together)
    for index, row in enumerate((short, long)):
        alone = engine.predict(batch_of([row], checkpoint))
        assert_same(masks_of(together, slice(index, index + 1)), alone)


@pytest.mark.parametrize("text", TEXTS)
def test_transformers_own_pipeline_says_the_same(
    engine: Engine, checkpoint: Checkpoint, pipeline: Any, text: str
) -> None:
    text = text.format(mask=checkpoint.mask_token)
    row = pipeline.tokenizer(text)["input_ids"]
    expected = pipeline(text, top_k=5)
    expected = expected if isinstance(expected[0], list) else [expected]  # one mask: transformers leaves a list out
    found = engine.predict(batch_of([row, row[:2] + [checkpoint.mask_token_id] * 30], checkpoint))
    own = masks_of(found, slice(len(expected)))
    ids = np.array([[candidate["token"] for candidate in mask] for mask in expected], np.int32)
    scores = np.array([[candidate["score"] for candidate in mask] for mask in expected], np.float32)
    assert_same(own, TopTokens(ids, scores, own.target_probabilities))


def test_the_whole_vocabulary(engine: Engine, checkpoint: Checkpoint) -> None:
    rows = [random_row(checkpoint, length, np.random.default_rng(length)) for length in (4, 11)]
    found = engine.predict(batch_of(rows, checkpoint, top_k=checkpoint.vocabulary_size))
    assert found.token_ids.dtype == np.int32
    assert found.probabilities.dtype == np.float32
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    assert (np.diff(found.probabilities, axis=1) <= 0).all()
    assert (np.sort(found.token_ids, axis=1) == np.arange(checkpoint.vocabulary_size)).all()


@pytest.mark.parametrize("top_k", [0, 1, 7])
def test_top_k_is_the_head_of_the_whole_list(engine: Engine, checkpoint: Checkpoint, top_k: int) -> None:
    rows = [random_row(checkpoint, 8, np.random.default_rng(8))]
    whole = engine.predict(batch_of(rows, checkpoint, top_k=checkpoint.vocabulary_size))
    found = engine.predict(batch_of(rows, checkpoint, top_k=top_k))
    assert found.token_ids.tolist() == whole.token_ids[:, :top_k].tolist()
    assert found.probabilities.tolist() == whole.probabilities[:, :top_k].tolist()


def test_targets_have_the_probabilities_of_the_list(engine: Engine, checkpoint: Checkpoint) -> None:
    rows = [random_row(checkpoint, length, np.random.default_rng(length)) for length in (6, 10)]
    targets = [(1, 20), (0, 20), (1, checkpoint.vocabulary_size - 1), (1, 20)]
    found = engine.predict(batch_of(rows, checkpoint, checkpoint.vocabulary_size, targets))
    for (mask, token_id), probability in zip(targets, found.target_probabilities, strict=True):
        place = found.token_ids[mask].tolist().index(token_id)
        assert probability == pytest.approx(found.probabilities[mask, place], abs=1e-7)
    bare = engine.predict(batch_of(rows, checkpoint, 0, targets))
    np.testing.assert_allclose(bare.target_probabilities, found.target_probabilities, atol=1e-7)
    assert bare.token_ids.shape == (2, 0)


def test_warm_up_takes_the_largest_shape(engine: Engine, checkpoint: Checkpoint) -> None:
    engine.warm_up([(1, 1), (2, checkpoint.max_tokens)])
