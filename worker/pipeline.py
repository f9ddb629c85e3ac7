"""*Fetch -> infer -> reply*: three threads, each handing the next one noun; when one dies, all die (worker/service.py).

    fetch   takes deliveries from the queue, chooses a batch, pads it     -> Prepared
    infer   loads the engine, then runs batch after batch on it           -> Outcome (Computed or Failed)
    reply   turns rows into replies, and finishes the requests in Redis

One batch is prepared while one is computed, and no more: what is chosen late is chosen well. The threads share the GIL,
but spend their time where it is free: in Redis' socket, in the engine, in Redis' socket.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, ParamSpec, TypeVar

from redis.exceptions import ResponseError

from common.connection import BLOCK_MS, TRANSPORT_ERRORS, backoff_s, explain
from common.errors import EngineBroken
from common.messages import PredictFailure, PredictRequest, Reply, pack_integers
from common.transport import Delivery, WorkerTransport
from worker import metrics
from worker.batching import BatchPolicy, choose_batch
from worker.engines.base import Engine, PaddedBatch
from worker.health import Health
from worker.housekeeping import Held
from worker.isolation import Computed, Failed, Outcome, in_halves
from worker.padding import ModelLimits, Timings, collate, scatter

log = logging.getLogger("fillmask.pipeline")

P = ParamSpec("P")
T = TypeVar("T")

_WARM_UP_TOKENS = 16
"""A sentence; the shape for which engines are compared throughout."""

_LOOKS_A_BATCH = 4
"""How often a busy worker looks for more while a batch runs."""

_LOOK_AHEAD = 2
"""How many batches' worth of requests are looked at, to put like lengths together."""


class Prepared(NamedTuple):
    """A batch for the engine; `padded` is None if it does not fit the model, and halves will find the request to blame."""

    deliveries: Sequence[Delivery]
    padded: PaddedBatch | None
    holds_slot: bool


class Pipeline:
    def __init__(
        self, transport: WorkerTransport, engine: Engine, health: Health, policy: BatchPolicy, limits: ModelLimits
    ) -> None:
        self.held = Held()
        self._transport = transport
        self._engine = engine
        self._health = health
        self._policy = policy
        self._limits = limits
        self._loaded = threading.Event()
        self._idle = threading.Event()
        self._stopping = threading.Event()
        self._slot = threading.Semaphore(1)  # free: fetch may prepare the next batch
        self._prepared: queue.SimpleQueue[Prepared | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()

    def stop(self) -> None:
        """Takes nothing more; what is prepared or being computed is still answered, what only waits is handed back."""
        self._health.state = "draining"
        self._stopping.set()

    def take_over(self, delivery: Delivery) -> None:
        """Runs a request alone in its batch: it may be what silenced the worker that had it before."""
        self.held.add([delivery])
        self._prepared.put(self._prepare([delivery], holds_slot=False))

    def fetch(self) -> None:
        waiting: list[Delivery] = []
        while self._free_slot():
            waiting = self._fetch_once(waiting)
        if waiting:
            self._patiently(self._transport.hand_back, [delivery.entry_id for delivery in waiting])
        self._prepared.put(None)

    def infer(self, check: Callable[[], None]) -> None:
        """`check` runs when the engine is loaded; what it raises ends the worker before it was ready."""
        self._engine.load()
        check()
        self._warm_up()
        self._health.state = "ready"
        self._loaded.set()
        metrics.READY.set(1)
        log.info("ready: engine %s", self._engine.name)
        while (prepared := self._next_prepared()) is not None:
            if prepared.holds_slot:
                self._slot.release()
            for outcome in self._compute(prepared):
                self._outcomes.put(outcome)
        self._engine.close()
        self._outcomes.put(None)

    def _next_prepared(self) -> Prepared | None:
        """The next batch, at once if it is prepared already; else the device idles, and says so."""
        with suppress(queue.Empty):
            return self._prepared.get_nowait()
        self._idle.set()
        prepared = self._prepared.get()
        self._idle.clear()
        return prepared

    def _warm_up(self) -> None:
        """Pays what the first request would pay, and learns the pace that admission needs to know from the start."""
        length = min(_WARM_UP_TOKENS, self._limits.max_tokens)
        fitting = min(self._policy.max_batch_requests, self._policy.max_padded_tokens // length)
        self._engine.warm_up([(1, length), (fitting, length)])
        blank = PredictRequest(b"", "", 0, pack_integers([0] * length), pack_integers([1]), top_k=5)
        delivery = Delivery(b"", blank, put_at_s=0.0, expires_at_s=0.0)
        self._run([delivery] * fitting, collate([blank] * fitting, self._limits))

    def reply(self) -> None:
        while (outcome := self._outcomes.get()) is not None:
            replies = _replies(outcome)
            self._patiently(self._transport.finish, list(zip(outcome.deliveries, replies, strict=True)))
            self.held.remove(outcome.deliveries)
            _count(outcome, replies)

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
            self._prepared.put(self._prepare(choice.batch, holds_slot=True))
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
        taken = self._patiently(self._transport.take, count, block_ms) or []
        self.held.add(taken)
        return taken

    def _prepare(self, deliveries: Sequence[Delivery], holds_slot: bool) -> Prepared:
        try:
            return Prepared(deliveries, self._collate(deliveries), holds_slot)
        except ValueError:
            return Prepared(deliveries, None, holds_slot)

    def _collate(self, deliveries: Sequence[Delivery]) -> PaddedBatch:
        return collate([delivery.request for delivery in deliveries], self._limits)

    def _compute(self, prepared: Prepared) -> Iterable[Outcome]:
        if prepared.padded is not None:
            try:
                return [self._run(prepared.deliveries, prepared.padded)]
            except EngineBroken:
                raise
            except Exception as error:
                log.warning("a batch of %d failed (%s): trying halves", len(prepared.deliveries), type(error).__name__)
        return in_halves(prepared.deliveries, lambda part: self._run(part, self._collate(part)))

    def _run(self, deliveries: Sequence[Delivery], padded: PaddedBatch) -> Computed:
        started_s = time.monotonic()
        self._health.batch_begins(started_s)
        try:
            top = self._engine.predict(padded)
        finally:
            took_s = self._health.batch_ends(len(deliveries))
        metrics.PADDING_RATIO.observe(padded.padded_tokens / padded.attention_mask.sum())
        return Computed(deliveries, top, started_s, took_s)

    def _patiently(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """A call on Redis, repeated with back-off until it succeeds; None if the worker is to stop before it does."""
        told = ""
        for wait_s in backoff_s():
            try:
                return call(*args, **kwargs)
            except TRANSPORT_ERRORS as error:
                told = self._after(error, told)
            if self._stopping.wait(wait_s):
                break
        return None

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
    queue_ms = [(outcome.started_s - delivery.put_at_s) * 1000 for delivery in outcome.deliveries]
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
        metrics.TOKENS.inc(sum(delivery.request.length_tokens for delivery in outcome.deliveries))
