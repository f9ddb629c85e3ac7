"""What a worker does beside its batches: heartbeat, lease, sweep, watchdog. One thread, driven by one clock.

It computes nothing: a request that it takes over goes to the pipeline, alone in its batch.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable

from common.connection import TRANSPORT_ERRORS, explain
from common.status import LOADING, READY
from common.transport import Delivery, WorkerTransport
from worker import metrics
from worker.health import Health
from worker.settings import WorkerSettings

log = logging.getLogger("fillmask.housekeeping")

HEARTBEAT_EVERY_S = 1.0
SWEEP_EVERY_S = 0.1
TIDY_EVERY_S = 30.0

_WHILE_LOADING_S = 0.01
"""Callers may be waiting for what is handed over to a worker that takes a dead one's place: it looks as soon as it is ready."""


class Held:
    """Entries that this worker has taken and not yet finished. The lease of those held for long is renewed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._since_s: dict[bytes, float] = {}

    def add(self, deliveries: Iterable[Delivery]) -> None:
        now_s = time.monotonic()
        with self._changed:
            self._since_s |= dict.fromkeys((delivery.entry_id for delivery in deliveries), now_s)

    def remove(self, deliveries: Iterable[Delivery]) -> None:
        with self._changed:
            for delivery in deliveries:
                self._since_s.pop(delivery.entry_id, None)
            self._changed.notify_all()

    def longer_than(self, age_s: float) -> list[bytes]:
        limit_s = time.monotonic() - age_s
        with self._changed:
            return [entry_id for entry_id, since_s in self._since_s.items() if since_s < limit_s]

    def wait_until_finished(self, delivery: Delivery, most_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: delivery.entry_id not in self._since_s, most_s)


class Housekeeping:
    def __init__(self, transport: WorkerTransport, health: Health, held: Held, settings: WorkerSettings) -> None:
        self._transport = transport
        self._health = health
        self._held = held
        self._settings = settings
        self._away = ""
        self._taken_over: Delivery | None = None
        self._taken_over_count = 0

    def run(self, stopping: threading.Event, take_over: Callable[[Delivery], None]) -> None:
        """Until `stopping` is set. Raises SystemError if the device hangs: the process must then end."""
        heartbeat_at_s = renew_at_s = tidy_at_s = 0.0
        announced = ""
        lease_s = self._settings.lease_ms / 1000
        while not stopping.is_set():
            now_s = time.monotonic()
            if self._health.stalled_for_s() > self._settings.stall_s:
                raise SystemError(f"the device has been busy with one batch for {self._settings.stall_s} s")
            try:
                status = self._health.status()
                if now_s >= heartbeat_at_s or status.state != announced:
                    self._transport.announce(status)
                    announced = status.state
                    heartbeat_at_s = now_s + HEARTBEAT_EVERY_S
                if now_s >= renew_at_s:
                    self._renew(lease_s / 3)
                    renew_at_s = now_s + lease_s / 3
                if now_s >= tidy_at_s:
                    self._transport.tidy(int(TIDY_EVERY_S * 1000))
                    tidy_at_s = now_s + TIDY_EVERY_S * random.uniform(0.8, 1.2)
                if status.state == READY:
                    self._sweep(take_over)
                self._away = ""
            except TRANSPORT_ERRORS as error:
                self._note_away(explain(error))
            stopping.wait(_WHILE_LOADING_S if announced == LOADING else SWEEP_EVERY_S * random.uniform(0.8, 1.2))

    def _renew(self, older_than_s: float) -> None:
        entry_ids = self._held.longer_than(older_than_s)
        if entry_ids:
            self._transport.renew(entry_ids)

    def _sweep(self, take_over: Callable[[Delivery], None]) -> None:
        """Takes over one request at a time: should it kill this worker too, no innocent one has been claimed beside it.

        Nothing any more once the worker drains: the next one might come too late to be computed here.
        """
        if self._taken_over and not self._held.wait_until_finished(self._taken_over, SWEEP_EVERY_S):
            return
        while not self._health.draining and (delivery := self._next_silent()):
            metrics.TAKEN_OVER.inc()
            self._taken_over_count += 1
            take_over(delivery)
            self._taken_over = delivery
            if not self._held.wait_until_finished(delivery, SWEEP_EVERY_S):
                return
        if self._taken_over_count:
            log.warning("took over %d requests of a silent worker", self._taken_over_count)
        self._taken_over, self._taken_over_count = None, 0

    def _next_silent(self) -> Delivery | None:
        return self._transport.sweep(self._settings.lease_ms, self._settings.max_deliveries)

    def _note_away(self, reason: str) -> None:
        if reason != self._away:
            log.warning("%s; trying again", reason)
        self._away = reason
