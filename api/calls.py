"""A call and those in it who wait: one HTTP request's texts, each with its place. They know no Redis and no queue."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from common.errors import CallerGone, DeadlineExceeded, FillmaskError, PredictionFailed
from common.messages import PredictRequest, PredictResult, Reply

LISTEN_AFTER_S = 0.05


async def uncounted(_texts: int) -> None:
    """What a caller is charged where no rate is limited."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The HTTP request behind a call: how logs and traces name it, and when nobody is there any more."""

    hung_up: Callable[[], Coroutine[Any, Any, None]]
    """Returns when the caller's connection is gone."""
    http_request_id: str = ""
    trace_context: str = ""
    charge: Callable[[int], Coroutine[Any, Any, None]] = uncounted
    """Told how many texts the model is about to be asked; raises RateLimited if that is more than the caller's share."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller wants to know of each mask, and by when. With targets, top_k only limits how many of them come back."""

    top_k: int
    target_ids: list[int]
    timeout_s: float
    caller: Caller


@dataclass(slots=True)
class Call:
    """The texts of one HTTP request: complete when each has its result, failed with the first failure."""

    missing: int
    results: list[PredictResult | None]
    done: asyncio.Future[None]

    def resolve(self, index: int, result: PredictResult) -> None:
        self.results[index] = result
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: FillmaskError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Listening:
    """Listens for the end of the caller's connection, but only to calls that take long: the others need not pay for it."""

    def __init__(self, call: Call, hung_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._call = call
        self._hung_up = hung_up
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(LISTEN_AFTER_S, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        await self._hung_up()
        self._call.fail(CallerGone("the caller hung up"))


@dataclass(slots=True)
class Waiter:
    call: Call
    index: int
    request: PredictRequest
    expires_at: float
    entry_id: bytes = b""  # where it lies in the stream, once it does
    puts: int = 0  # how often it was put: after the first Redis may have it, whatever became of the answer

    def deliver(self, reply: Reply) -> None:
        if isinstance(reply, PredictResult):
            self.call.resolve(self.index, reply)
        elif reply.reason == "deadline":
            self.call.fail(DeadlineExceeded(reply.message))
        else:
            self.call.fail(PredictionFailed(reply.message, reply.reason))

    def request_now(self, now: float) -> PredictRequest:
        return self.request._replace(remaining_ms=max(0, int((self.expires_at - now) * 1000)))
