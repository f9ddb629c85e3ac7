"""*Fetch -> infer -> reply*: three threads, each handing the next one noun; when one dies, all die (worker/service.py).

    fetch   takes deliveries from the queue, chooses a batch, pads it     -> Prepared
    infer   loads the engine, then runs batch after batch on it           -> Outcome (Computed or Failed)
    reply   turns rows into replies, and finishes the requests in Redis

One batch is prepared while one is computed, and no more: what is chosen late is chosen well. A device that takes two has the
next one started before the last one is answered, so that it never waits for Python. The threads share the GIL, but spend their
time where it is free: in Redis' socket, in the engine, in Redis' socket.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ParamSpec

from redis.exceptions import ResponseError

from common.connection import BLOCK_MS, TRANSPORT_ERRORS, backoff_s, explain
from common.messages import PredictFailure, Reply
from common.tracing import Traces
from common.transport import Delivery, WorkerTransport
from worker import journal, metrics
from worker.batching import BatchPolicy, choose_batch
from worker.health import Health
from worker.housekeeping import Held
from worker.inference import Inference, Prepared, Running
from worker.isolation import Computed, Failed, Outcome
from worker.padding import Timings, scatter

log = logging.getLogger("fillmask.pipeline")

P = ParamSpec("P")

_LOOKS_A_BATCH = 4
"""How often a busy worker looks for more while a batch runs."""

_LOOK_AHEAD = 2
"""How many batches' worth of requests are looked at, to put like lengths together."""

_WAITS_FOR_NEXT = 0.5
"""A batch's answer is not asked for during this part of the time that it should take: the next batch may come, and start."""

_INSISTS_S = 5.0
"""How long a stopping worker goes on telling Redis what it has computed: half of what `fillmask up` gives it to end in."""

_END = Prepared((), None, holds_slot=False)
"""No batch comes after it."""


class Pipeline:
    def __init__(
        self,
        transport: WorkerTransport,
        inference: Inference,
        health: Health,
        policy: BatchPolicy,
        held: Held,
        traces: Traces | None = None,
    ) -> None:
        self._transport = transport
        self._inference = inference
        self._health = health
        self._policy = policy
        self._held = held
        self._traces = traces
        self._loaded = threading.Event()
        self._idle = threading.Event()
        self._stopping = threading.Event()
        self._insists_until_s = math.inf
        self._slot = threading.Semaphore(1)  # free: fetch may prepare the next batch
        self._prepared: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()

    def stop(self) -> None:
        """Takes nothing more; what is prepared or being computed is still answered, what only waits is handed back."""
        self._health.draining = True
        self._insists_until_s = min(self._insists_until_s, time.monotonic() + _INSISTS_S)
        self._stopping.set()

    def take_over(self, delivery: Delivery) -> None:
        """Runs a request alone in its batch: it may be what silenced the worker that had it before."""
        self._held.add([delivery])
        self._prepared.put(self._inference.prepare([delivery], holds_slot=False))

    def fetch(self) -> None:
        waiting: list[Delivery] = []
        while self._free_slot():
            waiting = self._fetch_once(waiting)
        if waiting:
            self._insist(self._transport.hand_back, [delivery.entry_id for delivery in waiting])
        self._prepared.put(_END)

    def infer(self, check: Callable[[], None]) -> None:
        """`check` runs when the engine is loaded; what it raises ends the worker before it was ready."""
        engine = self._inference.engine
        engine.load()
        check()
        self._policy = self._inference.warm_up(self._policy)
        self._health.loaded = True
        self._loaded.set()
        log.info("ready: engine %s", engine.name)
        self._serve()
        engine.close()
        self._outcomes.put(None)

    def _serve(self) -> None:
        running: Running | None = None
        while (prepared := self._next_prepared(running)) is not _END:
            begun = self._begin(prepared, running) if prepared else None
            self._end(running, begun)
            running = begun
            if not self._inference.overlaps:
                self._end(running, None)
                running = None
        self._end(running, None)

    def _begin(self, prepared: Prepared, running: Running | None) -> Running:
        if prepared.holds_slot:
            self._slot.release()
        return self._inference.begin(prepared, running)

    def _end(self, running: Running | None, following: Running | None) -> None:
        if running:
            for outcome in self._inference.end(running, following):
                self._outcomes.put(outcome)

    def _next_prepared(self, running: Running | None) -> Prepared | None:
        """The next batch. None if one is running and no other comes soon; if none is, the device idles, and says so."""
        with suppress(queue.Empty):
            return self._prepared.get(timeout=self._inference.expected_s(running) * _WAITS_FOR_NEXT if running else 0)
        if running:
            return None
        self._idle.set()
        prepared = self._prepared.get()
        self._idle.clear()
        return prepared

    def reply(self) -> None:
        while (outcome := self._outcomes.get()) is not None:
            replies = _replies(outcome)
            if not self._insist(self._transport.finish, list(zip(outcome.deliveries, replies, strict=True))):
                continue  # still held: service.py hands it over, should Redis be back by then
            self._held.remove(outcome.deliveries)
            _count(outcome, replies)
            journal.tell(outcome, replies, self._traces)

    def _free_slot(self) -> bool:
        """Waits until a batch may be prepared; False when there shall be none any more."""
        while not self._stopping.is_set():
            if self._loaded.wait(0.1) and self._slot.acquire(timeout=0.1):
                return True
        return False

    def _fetch_once(self, waiting: list[Delivery]) -> list[Delivery]:
        """Prepares at most one batch; returns what still waits."""
        waiting = self._take(waiting)
        choice = choose_batch(waiting, self._policy, time.monotonic())
        if choice.expired:
            self._outcomes.put(Failed(choice.expired, "deadline", "its deadline passed while it waited"))
        if choice.batch:
            self._prepared.put(self._inference.prepare(choice.batch, holds_slot=True))
        else:
            self._slot.release()
        return choice.leftover

    def _take(self, waiting: list[Delivery]) -> list[Delivery]:
        """What waited here and what has come since.

        Only an idle worker waits in Redis. A busy one looks now and then for what no idle sibling wanted, so that two workers
        share what there is, and one batch is prepared all the same whenever requests pile up.
        """
        if waiting or not self._idle.is_set():
            taken = self._take_at_most(_LOOK_AHEAD * self._policy.max_batch_requests - len(waiting), 0)
            if not waiting and not taken:
                self._idle.wait(self._health.last_batch_s / _LOOKS_A_BATCH)
            return [*waiting, *taken]
        taken = self._take_at_most(self._policy.max_batch_requests, BLOCK_MS)
        until_s = time.monotonic() + self._policy.max_wait_s
        while taken and (room := self._policy.max_batch_requests - len(taken)):
            left_ms = int((until_s - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            taken += self._take_at_most(room, left_ms)
        return taken

    def _take_at_most(self, count: int, block_ms: int) -> list[Delivery]:
        taken: list[Delivery] = []
        self._patiently(lambda: taken.extend(self._transport.take(count, block_ms)), self._stopping.wait)
        self._held.add(taken)
        return taken

    def _insist(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Makes a call that others wait for, even while the worker stops. False if Redis was away to the end."""
        return self._patiently(partial(call, *args, **kwargs), self._must_end_after)

    def _must_end_after(self, wait_s: float) -> bool:
        if self._stopping.wait(wait_s):
            time.sleep(wait_s)
        return time.monotonic() > self._insists_until_s

    def _patiently(self, call: Callable[[], None], given_up_after: Callable[[float], bool]) -> bool:
        """A call on Redis, repeated with back-off until it succeeds. `given_up_after` waits, and tells whether to give up."""
        told = ""
        for wait_s in backoff_s():
            try:
                call()
            except TRANSPORT_ERRORS as error:
                told = self._after(error, told)
            else:
                return True
            if given_up_after(wait_s):
                break
        return False

    def _after(self, error: BaseException, told: str) -> str:
        """Mends what can be mended after a failed call. A lost group means an emptied server: it is made again."""
        if isinstance(error, ResponseError) and str(error).startswith("NOGROUP"):
            try:
                self._transport.join()
                log.warning("the queue was gone and is made anew")
            except TRANSPORT_ERRORS as again:
                error = again
        reason = explain(error)
        if reason != told:
            log.warning("%s; trying again", reason)
        return reason


def _replies(outcome: Outcome) -> list[Reply]:
    requests = [delivery.request for delivery in outcome.deliveries]
    if isinstance(outcome, Failed):
        return [PredictFailure(request.request_id, outcome.reason, outcome.message) for request in requests]
    # The server's clock is known to about a millisecond: what was taken at once may seem to have been put after that.
    queue_ms = [max(0.0, outcome.started_s - delivery.put_at_s) * 1000 for delivery in outcome.deliveries]
    return scatter(outcome.top, requests, Timings(queue_ms, outcome.took_s * 1000))


def _count(outcome: Outcome, replies: Sequence[Reply]) -> None:
    failures = [reply.reason for reply in replies if isinstance(reply, PredictFailure)]
    metrics.REQUESTS.labels("ok").inc(len(replies) - len(failures))
    for reason in failures:
        metrics.REQUESTS.labels(reason).inc()
    if isinstance(outcome, Computed):
        metrics.BATCH_REQUESTS.observe(len(replies))
        metrics.DEVICE_SECONDS.observe(outcome.took_s)
        metrics.BUSY_SECONDS.inc(outcome.took_s)
        metrics.QUEUE_SECONDS.observe(max(0.0, outcome.started_s - outcome.deliveries[0].put_at_s))
        tokens = sum(delivery.request.length_tokens for delivery in outcome.deliveries)
        metrics.TOKENS.inc(tokens)
        metrics.PADDING_RATIO.observe(outcome.padded_tokens / tokens)
