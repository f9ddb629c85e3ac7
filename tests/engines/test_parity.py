"""From text to words as the service does it, beside transformers' own fill-mask pipeline, on every architecture."""

import asyncio
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.tokenization import EncodedText, TextTokenizer
from common.checkpoint import Checkpoint
from common.messages import PredictRequest, PredictResult, pack_integers, unpack_floats, unpack_integers
from worker.engines.base import Engine
from worker.padding import ModelLimits, Timings, collate, scatter

Candidates = list[tuple[int, float]]

RANDOM = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
MIXED = (
    "今天天气很好，我们去{mask}。",
    "The {mask} of France is {mask}.",
    "{mask}",
    "床前{mask}月光 iPhone-15 Pro，3.14元",
)


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Checkpoint) -> TextTokenizer:
    return TextTokenizer(checkpoint, max_text_chars=1000, max_masks=64)


def encode(tokenizer: TextTokenizer, texts: list[str]) -> list[EncodedText]:
    return asyncio.run(tokenizer.encode(texts))


def fill(engine: Engine, checkpoint: Checkpoint, encoded: list[EncodedText], top_k: int) -> list[list[Candidates]]:
    """All texts in one batch; for each text, for each mask: its candidates."""
    requests = [
        PredictRequest(bytes(16), "f", 0, pack_integers(text.token_ids), pack_integers(text.mask_positions), top_k)
        for text in encoded
    ]
    batch = collate(requests, ModelLimits.of(checkpoint))
    replies = scatter(engine.predict(batch), requests, Timings([0.0] * len(requests), 0.0))
    filled = []
    for reply in replies:
        assert isinstance(reply, PredictResult)
        ids = unpack_integers(reply.token_ids).tolist()
        pairs = list(zip(ids, unpack_floats(reply.probabilities).tolist(), strict=True))
        filled.append([pairs[first : first + reply.candidates] for first in range(0, len(pairs), reply.candidates)])
    return filled


@cache
def theirs(pipeline: Any, text: str, top_k: int) -> list[Candidates]:
    """Asked once for all engines."""
    found = pipeline(text, top_k=top_k)
    masks = found if isinstance(found[0], list) else [found]  # one mask: transformers leaves a list out
    return [[(candidate["token"], candidate["score"]) for candidate in mask] for mask in masks]


def assert_same(ours: list[Candidates], expected: list[Candidates]) -> None:
    """Same ids in the same order, but for candidates whose scores are equal to the last digits; scores within 1e-4."""
    assert len(ours) == len(expected)
    for mask, expected_mask in zip(ours, expected, strict=True):
        scores, expected_scores = dict(mask), dict(expected_mask)
        assert [score for _, score in mask] == pytest.approx([score for _, score in expected_mask], abs=1e-4)
        lowest = min(expected_scores.values())
        for token_id in scores.keys() ^ expected_scores.keys():
            assert (scores | expected_scores)[token_id] == pytest.approx(lowest, abs=1e-5), "a tie at the end"
        for token_id in scores.keys() & expected_scores.keys():
            assert scores[token_id] == pytest.approx(expected_scores[token_id], abs=1e-4)


@pytest.mark.parametrize("top_k", [1, 5, 50])
def test_a_list_of_all_kinds(
    engine: Engine, checkpoint: Checkpoint, tokenizer: TextTokenizer, pipeline: Any, top_k: int
) -> None:
    texts = [text.format(mask=checkpoint.mask_token) for text in MIXED]
    filled = fill(engine, checkpoint, encode(tokenizer, texts), top_k)
    for text, ours in zip(texts, filled, strict=True):
        assert_same(ours, theirs(pipeline, text, top_k))


@RANDOM
@given(before=st.text(max_size=12), after=st.text(max_size=12))
def test_random_unicode(
    engine: Engine, checkpoint: Checkpoint, tokenizer: TextTokenizer, pipeline: Any, before: str, after: str
) -> None:
    text = f"{before}{checkpoint.mask_token}{after}"
    (encoded,) = encode(tokenizer, [text])
    assert encoded.token_ids == pipeline.tokenizer(text)["input_ids"], "the checkpoint's own ids, nothing normalised"
    (ours,) = fill(engine, checkpoint, [encoded], 5)
    assert_same(ours, theirs(pipeline, text, 5))


def test_m23_words_stand_as_a_reader_expects(checkpoint: Checkpoint, tokenizer: TextTokenizer) -> None:
    (encoded,) = encode(tokenizer, [f"COVID is a {checkpoint.mask_token}."])
    for token_id in range(checkpoint.vocabulary_size):
        word = tokenizer.word(token_id)
        filled = tokenizer.filled(encoded, 0, word)
        assert filled == f"COVID is a {word.text}."
        assert not word.text.startswith(("Ġ", "▁", "##"))
    (tight,) = encode(tokenizer, [f"COVID is a{checkpoint.mask_token}."])
    spaced = [tokenizer.word(i) for i in range(checkpoint.vocabulary_size) if tokenizer.word(i).spaced]
    assert all(tokenizer.filled(tight, 0, word) == f"COVID is a {word.text}." for word in spaced)
