"""The recipe that every dialect shares: check limits, encode, predict, and turn numbers back into words.

FillRequest (a dialect's question) -> list[FilledText] (words with scores, per mask)
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import Request

from api.calls import Wanted
from api.dispatcher import Dispatcher
from api.settings import ApiSettings
from api.tokenization import EncodedText, TextTokenizer, Word
from common.checkpoint import Checkpoint
from common.errors import InvalidParameter
from common.messages import PredictResult, unpack_floats, unpack_integers

TIMEOUT_HEADER = "x-request-timeout-ms"


@dataclass(frozen=True, slots=True)
class FillRequest:
    """`targets` None: the top_k most probable tokens; else only these words are scored, at most top_k of them told."""

    texts: Sequence[str]
    top_k: int
    targets: Sequence[str] | None
    timeout_s: float
    hung_up: Callable[[], Coroutine[Any, Any, None]]


class Candidate(NamedTuple):
    token_id: int
    word: Word
    score: float


@dataclass(frozen=True, slots=True)
class FilledText:
    """`masks[i]` holds mask i's candidates, most probable first."""

    encoded: EncodedText
    masks: list[list[Candidate]]
    result: PredictResult


class FillMask:
    """One model behind one front-end; the routes call `fill`."""

    def __init__(self, settings: ApiSettings, checkpoint: Checkpoint, dispatcher: Dispatcher) -> None:
        self.settings = settings
        self.checkpoint = checkpoint
        self.dispatcher = dispatcher
        self.tokenizer = TextTokenizer(checkpoint, settings.max_text_chars, settings.max_masks)

    async def fill(self, asked: FillRequest) -> list[FilledText]:
        """Results in the order of the texts. Raises RequestRefused, Unavailable, DeadlineExceeded or PredictionFailed."""
        self._check_limits(asked)
        target_ids = self.tokenizer.target_ids(asked.targets) if asked.targets else []
        encoded = await self.tokenizer.encode(asked.texts)
        top_k = min(asked.top_k, self.checkpoint.vocabulary_size, len(target_ids) or asked.top_k)
        self._check_answer_size(encoded, top_k)
        results = await self.dispatcher.predict(encoded, Wanted(top_k, target_ids, asked.timeout_s, asked.hung_up))
        return [self._words(text, result) for text, result in zip(encoded, results, strict=True)]

    def asked(self, request: Request, texts: Sequence[str], top_k: int, targets: Sequence[str] | None) -> FillRequest:
        """A dialect's question, with what this HTTP request says of deadline and connection. Its body has been read."""

        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        return FillRequest(texts, top_k, targets, self._timeout_s(request), hung_up)

    def _timeout_s(self, request: Request) -> float:
        """The deadline that the caller's header asks for, or the default."""
        asked = request.headers.get(TIMEOUT_HEADER)
        if asked is None:
            return self.settings.request_timeout_ms / 1000
        most = self.settings.max_request_timeout_ms
        if not (asked.isascii() and asked.isdigit() and len(asked) < 10 and 1 <= int(asked) <= most):
            raise InvalidParameter(f"{TIMEOUT_HEADER} must be a whole number from 1 to {most}", limit=most)
        return int(asked) / 1000

    def _check_limits(self, asked: FillRequest) -> None:
        limits = self.settings
        counts = {
            "texts": (len(asked.texts), limits.max_texts),
            "top_k": (asked.top_k, limits.max_top_k),
            "targets": (len(asked.targets or ()), limits.max_targets),
        }
        for field, (found, most) in counts.items():
            if found > most:
                raise InvalidParameter(f"{field}: {found} is above the limit of {most}", field=field, limit=most)

    def _check_answer_size(self, encoded: Sequence[EncodedText], top_k: int) -> None:
        candidates = top_k * sum(len(text.mask_positions) for text in encoded)
        if candidates > self.settings.max_candidates:
            most = self.settings.max_candidates
            raise InvalidParameter(
                f"the answer would have {candidates} candidates (masks x top_k), above the limit of {most}", limit=most
            )

    def _words(self, encoded: EncodedText, result: PredictResult) -> FilledText:
        word = self.tokenizer.word
        token_ids = unpack_integers(result.token_ids).tolist()
        scores = unpack_floats(result.probabilities).tolist()
        candidates = [
            Candidate(token_id, word(token_id), score) for token_id, score in zip(token_ids, scores, strict=True)
        ]
        width = result.candidates
        masks = [candidates[first : first + width] for first in range(0, len(candidates), width)]
        return FilledText(encoded, masks, result)
