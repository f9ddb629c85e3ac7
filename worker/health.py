"""What a worker knows of itself: its state, its pace, and since when the device has been busy. Shared by its threads.

Each access is one assignment with one writer: no lock is needed. The pace is written by infer, the window by housekeeping.
"""

import time
from typing import NamedTuple

from common.status import DRAINING, LOADING, READY, WorkerStatus

_MEMORY = 0.98
"""How much of the measured pace each batch keeps: the last fifty batches count."""

_WINDOW_S = 1.0
"""Over how long the busy fraction and the tokens a second are taken; a heartbeat is as long."""


class Pace(NamedTuple):
    """Sums over the batches that succeeded lately, the older the less."""

    batches: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    padded_tokens: float = 0.0
    busy_s: float = 0.0

    def and_then(self, batch: "Pace") -> "Pace":
        return Pace(*(before * _MEMORY + now for before, now in zip(self, batch, strict=True)))


class Window(NamedTuple):
    """What was counted when it began, and what the one before it came to."""

    began_s: float
    tokens: int
    busy_s: float
    tokens_s: float = 0.0
    busy: float = 0.0


class Health:
    def __init__(self, worker: str, engine: str) -> None:
        self.worker = worker
        self.engine = engine
        self.loaded = False
        self.draining = False
        self.device_busy_since_s = 0.0
        self.last_batch_s = 0.001
        self._pace = Pace()
        self._tokens = 0
        self._busy_s = 0.0
        self._window = Window(time.monotonic(), 0, 0.0)

    @property
    def state(self) -> str:
        """A stop that comes while the model is being loaded is not forgotten when it is."""
        if self.draining:
            return DRAINING
        return READY if self.loaded else LOADING

    def batch_begins(self, now_s: float) -> None:
        self.device_busy_since_s = now_s

    def batch_ends(self) -> float:
        """How long the batch that began last took, in seconds, whatever became of it."""
        took_s = time.monotonic() - self.device_busy_since_s
        self.device_busy_since_s = 0.0
        self.last_batch_s = took_s
        self._busy_s += took_s
        return took_s

    def learn(self, requests: int, tokens: int, padded_tokens: int, took_s: float) -> None:
        """From a batch that succeeded."""
        self._tokens += tokens
        self._pace = self._pace.and_then(Pace(1, requests, tokens, padded_tokens, took_s))

    def stalled_for_s(self) -> float:
        """How long the batch on the device has been running; 0 if there is none."""
        since_s = self.device_busy_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def status(self) -> WorkerStatus:
        """Called by one thread only: it turns the window."""
        window, pace = self._turn(time.monotonic()), self._pace
        return WorkerStatus(
            self.worker,
            self.state,
            self.engine,
            capacity_requests_s=round(pace.requests / pace.busy_s, 1) if pace.busy_s else 0.0,
            tokens_s=round(window.tokens_s, 1),
            batch_requests=round(pace.requests / pace.batches, 1) if pace.batches else 0.0,
            padding_ratio=round(pace.padded_tokens / pace.tokens, 3) if pace.tokens else 0.0,
            busy=round(window.busy, 3),
        )

    def _turn(self, now_s: float) -> Window:
        """The device's time under way counts too: a single long batch keeps it busy."""
        window = self._window
        lasted_s = now_s - window.began_s
        if lasted_s >= _WINDOW_S:
            busy_s, tokens = self._busy_s + self.stalled_for_s(), self._tokens
            fraction = (busy_s - window.busy_s) / lasted_s
            tokens_s = (tokens - window.tokens) / lasted_s
            self._window = Window(now_s, tokens, busy_s, tokens_s, min(max(fraction, 0.0), 1.0))
        return self._window
