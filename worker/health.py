"""What a worker knows of itself: its state, its pace, and since when the device has been busy. Shared by its threads.

Each access is one assignment, and only the state has two writers (infer, and whoever stops the worker): no lock is needed.
"""

import time

from common.transport import WorkerStatus

_MEMORY = 0.98
"""How much of the measured pace each batch keeps: the last fifty batches count."""


class Health:
    def __init__(self, worker: str, engine: str) -> None:
        self.worker = worker
        self.engine = engine
        self.state = "loading"
        self.reason = ""
        self.device_busy_since_s = 0.0
        self.last_batch_s = 0.001
        self._requests = 0.0
        self._busy_s = 0.0

    def batch_begins(self, now_s: float) -> None:
        self.device_busy_since_s = now_s

    def batch_ends(self, requests: int) -> float:
        """Notes the pace of the batch that began last; returns how long it took, in seconds."""
        took_s = time.monotonic() - self.device_busy_since_s
        self.device_busy_since_s = 0.0
        self.last_batch_s = took_s
        self._requests = self._requests * _MEMORY + requests
        self._busy_s = self._busy_s * _MEMORY + took_s
        return took_s

    def stalled_for_s(self) -> float:
        """How long the batch on the device has been running; 0 if there is none."""
        since_s = self.device_busy_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def status(self) -> WorkerStatus:
        capacity = self._requests / self._busy_s if self._busy_s else 0.0
        return WorkerStatus(self.worker, self.state, self.engine, round(capacity, 1), self.reason)
