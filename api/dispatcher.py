"""*A call waits for its reply.* Admit, register the waiter, put, await the deadline, forget; and three tasks that talk to Redis.

    writer    all requests of an event-loop tick in one put
    reader    replies to their waiters, by request id
    watcher   once a second: is Redis there, how long is the queue, who serves

HTTP handlers touch Redis never: a cancelled handler just stops waiting, and cannot leave its answer on a connection.
What was accepted is kept until it is answered. Whenever Redis or a connection was lost, or came back empty, all of it
is put again with the same ids; a second answer to the same id finds no waiter and is counted as late.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from api import metrics
from api.admission import Limits, Load, refusal
from api.calls import Call, Listening, Waiter, Wanted
from api.tokenization import EncodedText
from common.connection import REFUSALS, TRANSPORT_ERRORS, backoff_s, explain
from common.errors import DeadlineExceeded, Overloaded, TransportAway
from common.messages import PredictRequest, PredictResult, pack_integers
from common.status import READY, WorkerStatus
from common.transport import FrontEndTransport

log = logging.getLogger("fillmask.dispatcher")

WATCH_EVERY_S = 1.0
LOOK_FOR_WORKERS_EVERY_S = 0.1


class Dispatcher:
    """Shared by all requests of one front-end process. `load` is what it knows; readiness and admission read it."""

    def __init__(self, transport: FrontEndTransport, front_end: str, limits: Limits) -> None:
        self._transport = transport
        self.front_end = front_end
        self._limits = limits
        self._waiting: dict[bytes, Waiter] = {}
        self._outbox: list[bytes] = []
        self._withdrawn: list[bytes] = []
        self._lost = False
        self._outbox_filled = asyncio.Event()
        self._nobody_waits = asyncio.Event()
        self._looked = asyncio.Event()
        self._epoch = b""
        self._id_prefix = secrets.token_bytes(8)
        self._id_counter = itertools.count()
        self.load = Load(away="Redis has not answered yet")
        self._served_at = float("-inf")
        self.workers: list[WorkerStatus] = []

    async def predict(self, texts: Sequence[EncodedText], wanted: Wanted) -> list[PredictResult]:
        """The results of all texts, in order. Raises Unavailable, DeadlineExceeded or PredictionFailed for the whole call."""
        refused = refusal(self.load, self._limits, len(texts), wanted.timeout_s)
        if refused:
            self._outbox_filled.set()  # an empty put tells the backlog, lest an old one goes on refusing
            raise refused
        loop = asyncio.get_running_loop()
        call = Call(len(texts), [None] * len(texts), loop.create_future())
        request_ids = self._register(call, texts, wanted, loop.time() + wanted.timeout_s)
        listening = Listening(call, wanted.caller.hung_up)
        try:
            async with asyncio.timeout(wanted.timeout_s):
                await call.done
        except TimeoutError:
            raise DeadlineExceeded(f"not answered within {wanted.timeout_s * 1000:.0f} ms") from None
        finally:
            listening.stop()
            self._forget(request_ids)
        return [result for result in call.results if result is not None]

    async def run(self) -> None:
        """Runs the three tasks until cancelled. One that fails for good ends the others: no half-alive front-end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._forever(self._write), name="writer")
            tasks.create_task(self._forever(self._read), name="reader")
            tasks.create_task(self._forever(self._watch), name="watcher")

    async def looked(self, most_s: float) -> None:
        """Returns when the first look at Redis and the workers is done, or when it takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._looked.wait()

    async def drained(self) -> None:
        """Not ready any more; returns when nobody waits."""
        self.load.draining = True
        if self._waiting:
            await self._nobody_waits.wait()

    def _register(self, call: Call, texts: Sequence[EncodedText], wanted: Wanted, expires_at: float) -> list[bytes]:
        """Waiters first, then the outbox: a reply can never come before somebody waits for it."""
        target_ids = pack_integers(wanted.target_ids) if wanted.target_ids else b""
        remaining_ms = int(wanted.timeout_s * 1000)
        request_ids = []
        for index, text in enumerate(texts):
            request_id = self._id_prefix + next(self._id_counter).to_bytes(8, "little")
            request = PredictRequest(
                request_id,
                self.front_end,
                remaining_ms,
                pack_integers(text.token_ids),
                pack_integers(text.mask_positions),
                wanted.top_k,
                target_ids,
                wanted.caller.http_request_id,
                wanted.caller.trace_context,
            )
            self._waiting[request_id] = Waiter(call, index, request, expires_at)
            request_ids.append(request_id)
        self._outbox += request_ids
        self._outbox_filled.set()
        self.load.in_flight = len(self._waiting)
        self.load.backlog += len(texts)  # until the put tells the true one
        metrics.TEXTS.inc(len(texts))
        metrics.TOKENS.inc(sum(len(text.token_ids) for text in texts))
        return request_ids

    def _forget(self, request_ids: Sequence[bytes]) -> None:
        """Nobody waits for these any more. What is still in the queue is taken back, before a worker takes it for nothing."""
        waiters = [waiter for request_id in request_ids if (waiter := self._waiting.pop(request_id, None))]
        self._withdrawn += [waiter.entry_id for waiter in waiters if waiter.entry_id]
        if self._withdrawn:
            self._outbox_filled.set()
        self.load.in_flight = len(self._waiting)
        if self.load.draining and not self._waiting:
            self._nobody_waits.set()

    async def _forever(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeats a step. After a failure all that waits is put again; after a second one in a row Redis counts as away.

        A front-end told to stop right after its start hung in 5 of 23 tries: a cancellation had been lost on the way, probably in
        the client library while it connected. So it is looked for, and 30 of 30 then ended.
        """
        waits = None
        task = asyncio.current_task()
        while not (task and task.cancelling()):
            try:
                await step()
                waits = None
            except TRANSPORT_ERRORS as error:
                if waits is None:
                    waits = backoff_s()  # a single lost connection is made again at once, and callers notice nothing
                else:
                    self._note_away(explain(error))
                    await asyncio.sleep(next(waits))
                self._put_all_again()

    async def _write(self) -> None:
        await self._outbox_filled.wait()
        self._outbox_filled.clear()
        if self._lost:
            self._take_all_back()
        outbox, self._outbox = self._outbox, []
        waiters = [waiter for request_id in outbox if (waiter := self._waiting.get(request_id))]
        again, first = [waiter for waiter in waiters if waiter.puts], [waiter for waiter in waiters if not waiter.puts]
        try:
            await self._withdraw()
            if again:
                await self._put(again, again=True)
            await self._put(first)
        except REFUSALS as error:  # full, or a replica: the server is there and took none of these
            for waiter in first:
                waiter.call.fail(TransportAway(explain(error)))
            raise
        await self._withdraw()

    async def _put(self, waiters: Sequence[Waiter], again: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        for waiter in waiters:
            waiter.puts += 1
        outcome = await self._transport.put([waiter.request_now(now) for waiter in waiters], again)
        for waiter, entry_id in zip(waiters, outcome.entry_ids, strict=False):
            waiter.entry_id = entry_id
            if waiter.request.request_id not in self._waiting:  # forgotten while it was being put
                self._withdrawn.append(entry_id)
        for waiter in waiters[len(outcome.entry_ids) :]:
            waiter.call.fail(Overloaded(f"{outcome.backlog} texts wait already, at most {self._limits.max_backlog}"))
        self._note(outcome.backlog, outcome.epoch)

    async def _withdraw(self) -> None:
        withdrawn = list(self._withdrawn)
        if withdrawn:
            await self._transport.withdraw(withdrawn)
            del self._withdrawn[: len(withdrawn)]  # only now: should Redis be away, they are taken back later
            metrics.WITHDRAWN.inc(len(withdrawn))

    async def _read(self) -> None:
        for reply in await self._transport.collect():
            waiter = self._waiting.pop(reply.request_id, None)
            if waiter is None:
                metrics.LATE_REPLIES.inc()
                continue
            waiter.deliver(reply)
            if waiter.puts > 1 and waiter.entry_id:  # the other copy need not be computed any more
                self._withdrawn.append(waiter.entry_id)
                self._outbox_filled.set()

    async def _watch(self) -> None:
        # Packets may vanish in a black hole: readiness must not wait for the socket's own time-out.
        async with asyncio.timeout(WATCH_EVERY_S):
            workers = await self._transport.watch()
        async with asyncio.timeout(WATCH_EVERY_S):
            outcome = await self._transport.put([])
        if self.load.away:
            log.info("Redis answers")
        self.workers = workers
        self.load.oldest_s = outcome.oldest_ms / 1000
        self.load.away = ""
        self.load.no_worker = _trouble(workers)
        now = asyncio.get_running_loop().time()
        self._served_at = self._served_at if self.load.no_worker else now
        self.load.no_worker_s = now - self._served_at
        self.load.capacity_requests_s = sum(worker.capacity_requests_s for worker in workers)
        self._note(outcome.backlog, outcome.epoch)
        self._looked.set()
        await asyncio.sleep(LOOK_FOR_WORKERS_EVERY_S if self.load.no_worker else WATCH_EVERY_S)

    def _note_away(self, reason: str) -> None:
        if self.load.away != reason:
            log.warning("%s; trying again", reason)
        self.load.away = reason

    def _note(self, backlog: int, epoch: bytes) -> None:
        self.load.backlog = backlog
        metrics.BACKLOG.set(backlog)
        metrics.IN_FLIGHT.set(len(self._waiting))
        if self._epoch and self._epoch != epoch:
            log.warning("the queue was made anew: putting %d texts again", len(self._waiting))
            self._put_all_again()
        self._epoch = epoch

    def _put_all_again(self) -> None:
        """Left to the writer: only when no put is under way is it known what lies where, and nothing is put twice at once."""
        self._lost = True
        self._outbox_filled.set()

    def _take_all_back(self) -> None:
        """What was put before is withdrawn first, as far as it is still there: nobody is to be computed twice."""
        self._lost = False
        metrics.PUT_AGAIN.inc(len(self._waiting))
        for waiter in self._waiting.values():
            if waiter.entry_id:
                self._withdrawn.append(waiter.entry_id)
            waiter.entry_id = b""
        self._outbox = list(self._waiting)


def _trouble(workers: Sequence[WorkerStatus]) -> str:
    """Why none of them can serve; empty if one can."""
    if any(worker.state == READY for worker in workers):
        return ""
    states = sorted({worker.state for worker in workers})
    return f"no worker is ready: {', '.join(states)}" if states else "no worker serves this model"
