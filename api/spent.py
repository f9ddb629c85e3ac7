"""Where a call's time went and what to beware of: the headers that every fill route's answer carries beside its body."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import Response
from pydantic_core import to_json

from api.tokenization import EncodedText
from common.messages import PredictResult

Headers = list[tuple[bytes, bytes]]

TOLD = (
    b"x-fillmask-tokenize-ms",
    b"x-fillmask-queue-ms",
    b"x-fillmask-inference-ms",
    b"x-fillmask-batch-size",
    b"x-fillmask-model-revision",
    b"x-fillmask-warnings",
)
"""The names in `Spent.headers`; the last only where there is something to beware of."""


@dataclass(slots=True)
class Spent:
    """The slowest text of a step counts; steps one after the other add up. `batch_requests` is the largest batch met."""

    tokenize_ms: float = 0.0
    queue_ms: float = 0.0
    inference_ms: float = 0.0
    batch_requests: int = 0
    tokens: int = 0
    unknown_tokens: int = 0

    def encoded(self, texts: Iterable[EncodedText], started: float) -> None:
        """Notes the end of tokenising that began at `started`, of time.perf_counter()."""
        self.tokenize_ms += (time.perf_counter() - started) * 1000
        for text in texts:
            self.tokens += len(text.token_ids)
            self.unknown_tokens += text.unknown_tokens

    def predicted(self, results: Sequence[PredictResult]) -> None:
        self.queue_ms += max([result.queue_ms for result in results])
        self.inference_ms += max([result.inference_ms for result in results])
        self.batch_requests = max(self.batch_requests, *[result.batch_requests for result in results])

    def headers(self, revision: str) -> Headers:
        told = [
            b"%.3f" % self.tokenize_ms,
            b"%.3f" % self.queue_ms,
            b"%.3f" % self.inference_ms,
            b"%d" % self.batch_requests,
            revision.encode("ascii", "replace"),
        ]
        if self.unknown_tokens:
            told.append(b"unknown_tokens=%d" % self.unknown_tokens)
        return list(zip(TOLD, told, strict=False))


def answer(body: object, headers: Headers | None = None, status: int = 200) -> Response:
    """A JSON body, and what `Spent.headers` tells."""
    response = Response(to_json(body), status, media_type="application/json")
    response.raw_headers += headers or ()
    return response
