"""The recipe that every dialect shares: check limits, encode, predict, and turn numbers back into words.

FillRequest (a dialect's question) -> Filled (for each text, words with scores, per mask)
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fastapi import Request

from api.calls import Caller, Wanted, uncounted
from api.dispatcher import Dispatcher
from api.refusals import AnswerTooLarge, TooManyTargets, TooManyTexts, TopKTooLarge, UnknownModel
from api.settings import ApiSettings
from api.spent import Headers, Spent
from api.tokenization import EncodedText, TextTokenizer, Word
from common.checkpoint import Checkpoint
from common.errors import InvalidParameter
from common.messages import PredictResult, unpack_floats, unpack_integers

TIMEOUT_HEADER = "x-request-timeout-ms"

DEFAULT_TOP_K = 5

MAX_ANSWER_CHARS = 2_000_000
"""Every candidate repeats its text: 64 masks in a long text with top_k 150 would make 13 MB, and 0.1 s for all other callers."""

_MANY_CANDIDATES = 500
"""Up to here, words and JSON take about a millisecond to make."""


@dataclass(frozen=True, slots=True)
class FillRequest:
    """`targets` None: the top_k most probable tokens; else only these words are scored, at most top_k of them told."""

    texts: Sequence[str]
    top_k: int
    targets: Sequence[str] | None
    timeout_s: float
    caller: Caller
    spent: Spent = field(default_factory=Spent)


class Candidate(NamedTuple):
    token_id: int
    word: Word
    score: float


@dataclass(frozen=True, slots=True)
class FilledText:
    """`masks[i]` holds mask i's candidates, most probable first."""

    encoded: EncodedText
    masks: list[list[Candidate]]


@dataclass(frozen=True, slots=True)
class Filled:
    texts: list[FilledText]
    spent: Spent


class FillMask:
    """One model behind one front-end; the routes call `fill`."""

    def __init__(self, settings: ApiSettings, checkpoint: Checkpoint, dispatcher: Dispatcher) -> None:
        self.settings = settings
        self.checkpoint = checkpoint
        self.dispatcher = dispatcher
        self._turns = asyncio.Lock()
        self.tokenizer = TextTokenizer(checkpoint, settings.max_text_chars, settings.max_masks)

    async def fill(self, asked: FillRequest) -> Filled:
        """Results in the order of the texts. Raises RequestRefused, Unavailable, DeadlineExceeded or PredictionFailed."""
        self.check_limits(asked)
        await asked.caller.charge(len(asked.texts))
        spent = asked.spent
        target_ids = self.tokenizer.target_ids(asked.targets) if asked.targets else []
        encoded = await self.encode(asked.texts, spent)
        top_k = min(asked.top_k, self.checkpoint.vocabulary_size, len(target_ids) or asked.top_k)
        candidates = self.check_answer_size(encoded, top_k)
        results = await self.dispatcher.predict(encoded, Wanted(top_k, target_ids, asked.timeout_s, asked.caller))
        spent.predicted(results)
        await self.turn(candidates)
        return Filled([self._words(text, result) for text, result in zip(encoded, results, strict=True)], spent)

    async def encode(self, texts: Sequence[str], spent: Spent) -> list[EncodedText]:
        started = time.perf_counter()
        encoded = await self.tokenizer.encode(texts)
        spent.encoded(encoded, started)
        return encoded

    def headers(self, spent: Spent) -> Headers:
        return spent.headers(self.checkpoint.revision)

    def check_model(self, model: str, version: str | None = None) -> None:
        """Raises UnknownModel unless a path names the served model, and its revision if it names one."""
        served, revision = self.checkpoint.title, self.checkpoint.revision
        if model != served or version not in (None, revision):
            raise UnknownModel(f"only the model {served} in its version {revision} is served here", model=served)

    def asked(
        self,
        request: Request,
        texts: Sequence[str],
        top_k: int | None,
        targets: Sequence[str] | None,
        timeout_ms: float | None = None,
    ) -> FillRequest:
        """A dialect's question, with what this HTTP request says of deadline and connection. Its body has been read.

        No `top_k` means DEFAULT_TOP_K, or all the targets: a default hides none of what was asked for.
        """

        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        timeout_s = self._timeout_s(request) if timeout_ms is None else self._checked_timeout_s(timeout_ms)
        state = request.scope["state"]
        charge = state.get("charge", uncounted)
        caller = Caller(hung_up, state["request_id"], state.get("trace_context", ""), charge)
        spent = state["spent"] = Spent()  # for the log line, too
        return FillRequest(texts, top_k or len(targets or ()) or DEFAULT_TOP_K, targets, timeout_s, caller, spent)

    def _timeout_s(self, request: Request) -> float:
        """The deadline that the caller's header asks for, or the default."""
        asked = request.headers.get(TIMEOUT_HEADER)
        if asked is None:
            return self.settings.request_timeout_ms / 1000
        most = self.settings.max_request_timeout_ms
        if not (asked.isascii() and asked.isdigit() and len(asked) < 10 and 1 <= int(asked) <= most):
            raise InvalidParameter(f"{TIMEOUT_HEADER} must be a whole number from 1 to {most}", limit=most)
        return int(asked) / 1000

    def _checked_timeout_s(self, timeout_ms: float) -> float:
        most = self.settings.max_request_timeout_ms
        if not 0 < timeout_ms <= most:
            raise InvalidParameter(f"the timeout is {timeout_ms:g} ms; at most {most} ms are granted", limit=most)
        return timeout_ms / 1000

    def check_limits(self, asked: FillRequest) -> None:
        """Raises TooManyTexts, TopKTooLarge or TooManyTargets."""
        limits, targets = self.settings, len(asked.targets or ())
        if len(asked.texts) > limits.max_texts:
            raise _above("texts", len(asked.texts), limits.max_texts, TooManyTexts)
        if targets > limits.max_targets:
            raise _above("targets", targets, limits.max_targets, TooManyTargets)
        if asked.top_k > limits.max_top_k:
            raise _above("top_k", asked.top_k, limits.max_top_k, TopKTooLarge)

    async def turn(self, candidates: int) -> None:
        """A batch's replies come at once, but one long answer is made in a round of the event loop: others are served between."""
        if candidates > _MANY_CANDIDATES:
            async with self._turns:
                await asyncio.sleep(0)

    def check_answer_size(self, encoded: Sequence[EncodedText], top_k: int) -> int:
        """How many candidates there will be. Raises AnswerTooLarge."""
        masks = sum([len(text.mask_positions) for text in encoded])
        candidates, most = top_k * masks, self.settings.max_candidates
        if candidates > most:
            told = f"the answer would have {candidates} candidates ({masks} masks x top_k), above the limit of {most}"
            raise AnswerTooLarge(told, candidates=candidates, masks=masks, limit=most)
        characters = top_k * sum([len(text.mask_positions) * len(text.text) for text in encoded])
        if characters > MAX_ANSWER_CHARS:
            told = (
                f"the filled texts would have {characters} characters together, above the limit of {MAX_ANSWER_CHARS}"
            )
            raise AnswerTooLarge(told, characters=characters, masks=masks, limit=MAX_ANSWER_CHARS)
        return candidates

    def _words(self, encoded: EncodedText, result: PredictResult) -> FilledText:
        word = self.tokenizer.word
        token_ids = unpack_integers(result.token_ids).tolist()
        scores = unpack_floats(result.probabilities).tolist()
        candidates = [
            Candidate(token_id, word(token_id), score) for token_id, score in zip(token_ids, scores, strict=True)
        ]
        width = result.candidates
        masks = [candidates[first : first + width] for first in range(0, len(candidates), width)]
        return FilledText(encoded, masks)


def _above(field: str, found: int, limit: int, kind: type[InvalidParameter]) -> InvalidParameter:
    return kind(f"{field}: {found} is above the limit of {limit}", field=field, found=found, limit=limit)
