"""What every engine promises, on every architecture: the same answer alone and in any batch, and transformers' answer."""

from typing import Any

import numpy as np
import pytest
from batches import assert_same, batch_of, masks_of, random_row

from common.checkpoint import Checkpoint
from common.messages import PredictRequest, PredictResult, pack_integers, unpack_floats, unpack_integers
from worker.engines.base import Engine, TopTokens
from worker.padding import ModelLimits, Timings, collate, scatter

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


def test_b11_a_hundred_texts_alone_and_in_random_batches(bert_engine: Engine, bert: Checkpoint) -> None:
    generator = np.random.default_rng(11)
    lengths = [3, 512, *generator.integers(3, 129, 90), *generator.integers(129, 513, 8)]
    rows = [random_row(bert, int(length), generator) for length in lengths]
    alone = [bert_engine.predict(batch_of([row], bert)) for row in rows]
    order = generator.permutation(len(rows)).tolist()
    while order:
        count = int(generator.integers(2, 33))
        chosen, order = order[:count], order[count:]
        together = bert_engine.predict(batch_of([rows[index] for index in chosen], bert))
        for place, index in enumerate(chosen):
            assert_same(masks_of(together, slice(place, place + 1)), alone[index])


def test_b09_each_request_of_a_batch_has_its_own_way(bert_engine: Engine, bert: Checkpoint) -> None:
    """top_k of 1, 5 and 20, one mask or three, targets or none: each gets what it gets alone."""
    generator = np.random.default_rng(9)
    asked = [
        _request(bert, random_row(bert, 9, generator), top_k=1),
        _request(bert, random_row(bert, 30, generator), top_k=20),
        _request(bert, [*random_row(bert, 5, generator), *[bert.mask_token_id] * 2], top_k=5),
        _request(bert, random_row(bert, 7, generator), top_k=2, targets=(20, 90, 50)),
        _request(bert, [*random_row(bert, 6, generator), bert.mask_token_id], top_k=9, targets=(33, 21)),
        _request(bert, random_row(bert, 3, generator), top_k=1000),
    ]
    together = _replies(bert_engine, bert, asked)
    for request, reply in zip(asked, together, strict=True):
        (alone,) = _replies(bert_engine, bert, [request])
        targets = len(unpack_integers(request.target_ids))
        assert reply.candidates == min(request.top_k, targets or bert.vocabulary_size)
        shape = (-1, reply.candidates)
        found, expected = (
            TopTokens(
                unpack_integers(one.token_ids).reshape(shape),
                unpack_floats(one.probabilities).reshape(shape),
                np.empty(0, np.float32),
            )
            for one in (reply, alone)
        )
        assert_same(found, expected)


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


def test_an_answer_may_be_asked_for_later(engine: Engine, checkpoint: Checkpoint) -> None:
    """As many batches may be started as the engine says; their answers do not write over one another."""
    generator = np.random.default_rng(12)
    batches = [batch_of([random_row(checkpoint, 9, generator)], checkpoint) for _ in range(2)]
    expected = [engine.predict(batch) for batch in batches]
    answers = [engine.start(batch) for batch in batches]
    for answer, alone in zip(answers, expected, strict=True):
        assert_same(answer(), alone)


def test_warm_up_takes_the_largest_shape(engine: Engine, checkpoint: Checkpoint) -> None:
    engine.warm_up([(1, 1), (2, checkpoint.max_tokens)])


def _request(checkpoint: Checkpoint, row: list[int], top_k: int, targets: tuple[int, ...] = ()) -> PredictRequest:
    masks = [place for place, token_id in enumerate(row) if token_id == checkpoint.mask_token_id]
    return PredictRequest(
        bytes(16), "f", 0, pack_integers(row), pack_integers(masks), top_k, pack_integers(targets) if targets else b""
    )


def _replies(engine: Engine, checkpoint: Checkpoint, requests: list[PredictRequest]) -> list[PredictResult]:
    top = engine.predict(collate(requests, ModelLimits.of(checkpoint)))
    replies = scatter(top, requests, Timings([0.0] * len(requests), 0.0))
    assert all(isinstance(reply, PredictResult) for reply in replies)
    return [reply for reply in replies if isinstance(reply, PredictResult)]
