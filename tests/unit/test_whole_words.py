"""api/whole_words.py and the tokenizer's part in it, with a made-up model in place of Redis and workers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import build_checkpoint

from api.calls import Caller, Wanted
from api.filling import FillMask, FillRequest
from api.refusals import TooManySteps
from api.settings import ApiSettings
from api.tokenization import EncodedText, TextTokenizer
from api.whole_words import decode_jointly, score_targets
from common.checkpoint import Checkpoint, open_checkpoint
from common.errors import BadTarget, DeadlineExceeded, InvalidParameter
from common.messages import PredictResult, pack_integers

TEXT = "今天[MASK]很好"


class MadeUp:
    """Stands in for the dispatcher: a distribution over the Chinese part of the vocabulary that depends on the whole text."""

    def __init__(self, chinese: list[int]) -> None:
        self._chinese = np.array(chinese)
        self.calls: list[int] = []

    async def predict(self, texts: Sequence[EncodedText], wanted: Wanted) -> list[PredictResult]:
        self.calls.append(len(texts))
        return [self._result(text, wanted) for text in texts]

    def _result(self, text: EncodedText, wanted: Wanted) -> PredictResult:
        ids, scores = [], []
        for position in text.mask_positions:
            seed = hashlib.sha256(repr((text.token_ids, position)).encode()).digest()[:8]
            weights = np.exp(np.random.default_rng(int.from_bytes(seed, "little")).normal(0, 3, len(self._chinese)))
            given = dict(zip(self._chinese.tolist(), (weights / weights.sum()).tolist(), strict=True))
            asked = wanted.target_ids or sorted(given, key=lambda token_id: -given[token_id])
            ranked = sorted(asked, key=lambda token_id: -given.get(token_id, 0.0))[: wanted.top_k]
            ids += ranked
            scores += [given.get(token_id, 0.0) for token_id in ranked]
        packed = np.array(scores, dtype="<f4").tobytes()
        return PredictResult(bytes(16), wanted.top_k, pack_integers(ids), packed, 1.0, 2.0, 3)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(str(build_checkpoint("bert", tmp_path_factory.mktemp("models") / "bert")))


def make(checkpoint: Checkpoint, **limits: int) -> tuple[FillMask, MadeUp]:
    settings = ApiSettings(model=str(checkpoint.folder), **limits)  # type: ignore[arg-type]
    service = FillMask(settings, checkpoint, None)  # type: ignore[arg-type]
    chinese = [token for token in range(checkpoint.vocabulary_size) if service.tokenizer.word(token).text > "\u4e00"]
    made_up = MadeUp(chinese)
    service.dispatcher = made_up  # type: ignore[assignment]
    return service, made_up


async def never() -> None:
    raise AssertionError("nobody listens here")


def ask(*texts: str, top_k: int = 5, targets: list[str] | None = None, timeout_s: float = 5.0) -> FillRequest:
    return FillRequest(texts, top_k, targets, timeout_s, Caller(never))


async def test_targets_of_any_length_are_ranked_in_place_of_the_mask(checkpoint: Checkpoint) -> None:
    service, made_up = make(checkpoint)
    targets = ["天气", "心", "山水", "月"]
    filled = await score_targets(service, ask(TEXT, targets=targets))
    words = filled.texts[0][0].words
    assert {word.word for word in words} == set(targets)
    assert [word.log_likelihood for word in words] == sorted([word.log_likelihood for word in words], reverse=True)
    assert made_up.calls == [4], (
        "one question for all single tokens, three for two of two tokens: their first is the same"
    )
    assert filled.spent.batch_requests == 3
    for word in words:
        assert word.filled_text == TEXT.replace("[MASK]", word.word)


async def test_single_tokens_score_what_they_score_everywhere(checkpoint: Checkpoint) -> None:
    service, _ = make(checkpoint)
    plain = (await service.fill(ask(TEXT, targets=["心", "月"]))).texts[0].masks[0]
    whole = (await score_targets(service, ask(TEXT, targets=["心", "月"]))).texts[0][0].words
    assert [word.word for word in whole] == [candidate.word.text for candidate in plain]
    assert [word.score for word in whole] == pytest.approx([candidate.score for candidate in plain])


async def test_words_decoded_together_score_what_they_score_as_targets(checkpoint: Checkpoint) -> None:
    service, made_up = make(checkpoint)
    decoded = await decode_jointly(service, ask("今天[MASK][MASK]很好", "[MASK]月[MASK][MASK][MASK]"))
    assert made_up.calls == [3, 2 * 8, 8], "all runs take their steps together"
    assert [[len(gap.masks) for gap in gaps] for gaps in decoded.texts] == [[2], [1, 3]]
    words = decoded.texts[0][0].words
    assert len(words) == 5
    as_targets = await score_targets(service, ask(TEXT, targets=[word.word for word in words]))
    again = as_targets.texts[0][0].words
    assert [word.word for word in again] == [word.word for word in words]
    for word, other in zip(words, again, strict=True):
        assert word.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-5)
        assert word.filled_text == f"今天{word.word}很好"
    masks_stay = decoded.texts[1]
    assert masks_stay[0].words[0].filled_text.endswith("月[MASK][MASK][MASK]")
    assert masks_stay[1].words[0].filled_text.startswith("[MASK]月")


@pytest.mark.parametrize("target", ["", " ", "天[MASK]", "[UNK]", "鿿气", "天" * 65, "天" * 100_000, "好\u200b[SEP]"])
async def test_targets_that_cannot_stand_there(checkpoint: Checkpoint, target: str) -> None:
    service, _ = make(checkpoint)
    with pytest.raises(BadTarget) as raised:
        await score_targets(service, ask(TEXT, targets=["天气", target]))
    assert raised.value.details["targets"] == [1]


async def test_targets_that_grow_together_with_their_neighbours(checkpoint: Checkpoint) -> None:
    service, _ = make(checkpoint)
    with pytest.raises(BadTarget):
        await score_targets(service, ask("the b[MASK]k", targets=["oo"]))


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta", "albert", "modernbert"])
async def test_targets_of_other_tokenizers(architecture: str, tmp_path: Path) -> None:
    """Whatever pieces a target has in its sentence, they are the target and nothing else."""
    tokenizer = TextTokenizer(open_checkpoint(str(build_checkpoint(architecture, tmp_path / architecture))), 1000, 64)
    mask = tokenizer._checkpoint.mask_token
    for text, target in (
        ("The weather is {} today.", "nice"),
        ("{} is nice.", "Paris"),
        ("今天{}很好", "月"),
        ("今{}很好", "天"),
    ):
        (encoded,) = await tokenizer.encode([text.format(mask)])
        ((token_ids, positions),) = await tokenizer.place(encoded, [target])
        assert positions == list(range(positions[0], positions[0] + len(positions)))
        inner: Any = tokenizer._tokenizer
        assert inner.decode([token_ids[position] for position in positions]).strip() == target
        assert inner.decode(token_ids).replace(" ", "") == text.format(target).replace(" ", "")
    (encoded,) = await tokenizer.encode([f"今天{mask}很好"])
    for bad in ("", " ", mask, f"天{mask}"):
        with pytest.raises(BadTarget):
            await tokenizer.place(encoded, [bad])


async def test_a_text_that_is_full(checkpoint: Checkpoint) -> None:
    service, _ = make(checkpoint)
    full = "好" * (checkpoint.max_tokens - 3) + "[MASK]"
    assert (await score_targets(service, ask(full, targets=["天"]))).texts[0][0].words
    with pytest.raises(BadTarget):
        await score_targets(service, ask(full, targets=["天气"]))


async def test_whole_targets_need_exactly_one_mask(checkpoint: Checkpoint) -> None:
    service, _ = make(checkpoint)
    with pytest.raises(InvalidParameter) as raised:
        await score_targets(service, ask(TEXT, "[MASK][MASK]", targets=["天气"]))
    assert raised.value.details["index"] == 1


async def test_the_questions_of_one_request_are_limited(checkpoint: Checkpoint) -> None:
    service, made_up = make(checkpoint, max_texts=9)
    await decode_jointly(service, ask("[MASK][MASK]"))
    with pytest.raises(TooManySteps) as raised:
        await decode_jointly(service, ask("[MASK][MASK][MASK]"))
    assert (raised.value.details["steps"], raised.value.details["limit"]) == (17, 9)
    with pytest.raises(TooManySteps):
        await score_targets(
            service, ask(TEXT, targets=["天气", "心情", "山水", "月光", "地方", "人民", "国家", "大小", "上下"])
        )
    assert sum(made_up.calls) == 9


async def test_all_steps_share_one_deadline(checkpoint: Checkpoint) -> None:
    service, _ = make(checkpoint)
    with pytest.raises(DeadlineExceeded):
        await decode_jointly(service, ask("[MASK][MASK]", timeout_s=0.0))


@pytest.mark.parametrize(
    ("text", "tokens", "word", "filled"),
    [
        ("今天[MASK][MASK]很好", ["天", "气"], "天气", "今天天气很好"),
        ("a [MASK][MASK].", ["good", "book"], "good book", "a good book."),
        ("a [MASK] [MASK].", ["good", "book"], "good book", "a good book."),
        ("a [MASK][MASK].", ["book", "##ing"], "booking", "a booking."),
        ("「[MASK] [MASK]」", ["月", "光"], "月 光", "「月 光」"),
    ],
)
async def test_words_stand_in_the_text_as_one_would_write_them(
    checkpoint: Checkpoint, text: str, tokens: list[str], word: str, filled: str
) -> None:
    service, _ = make(checkpoint)
    tokenizer: Any = service.tokenizer
    ids = [tokenizer._tokenizer.token_to_id(token) for token in tokens]
    (encoded,) = await service.tokenizer.encode([text])
    parts = [service.tokenizer.word(token_id) for token_id in ids]
    assert service.tokenizer.filled_run(encoded, range(len(ids)), parts) == (word, filled)
