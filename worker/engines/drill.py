"""An echo engine with a simulated device and faults on demand: for `make drill`, scale-out tests and tests of recovery.

The device costs a fixed time a batch and a time a padded token, spent asleep as a GPU's host would; like a GPU it takes the
next batch while it works on one. A fault is asked for by a request's top_k, so that it travels the whole way like any other
request. It is never picked by `auto`.
"""

import logging
import os
import signal
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial

import numpy as np

from common.errors import EngineBroken
from worker.engines.base import BatchLimits, PaddedBatch, TopTokens
from worker.engines.echo import EchoEngine

log = logging.getLogger("fillmask.drill")


class Fault(IntEnum):
    """The top_k that asks for it. A batch with such a request suffers it whole."""

    KILLS_WORKER = 91
    FAILS_BATCH = 92
    NOT_A_NUMBER = 93
    HANGS_DEVICE = 94
    LOSES_DEVICE = 95


class DrillEngine:
    name = "drill"
    largest = BatchLimits()
    in_flight = 2

    def __init__(self, vocabulary_size: int, batch_ms: float, token_us: float) -> None:
        self._echo = EchoEngine(vocabulary_size)
        self._batch_s = batch_ms / 1e3
        self._token_s = token_us / 1e6
        self._busy_until_s = 0.0

    def load(self) -> None:
        log.warning("this is the drill engine: it has no model and breaks when asked to")

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        pass

    def predict(self, batch: PaddedBatch) -> TopTokens:
        return self.start(batch)()

    def start(self, batch: PaddedBatch) -> Callable[[], TopTokens]:
        """Queued on the device, which works on one batch after the other."""
        self._busy_until_s = max(self._busy_until_s, time.monotonic())
        self._busy_until_s += self._batch_s + self._token_s * batch.padded_tokens
        return partial(self._answer, batch, self._busy_until_s)

    def _answer(self, batch: PaddedBatch, at_s: float) -> TopTokens:
        time.sleep(max(0.0, at_s - time.monotonic()))
        top = self._echo.predict(batch)
        match batch.top_k:
            case Fault.KILLS_WORKER:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.FAILS_BATCH:
                raise RuntimeError("a fault on demand")
            case Fault.NOT_A_NUMBER:
                return top._replace(probabilities=np.full(top.probabilities.shape, np.nan, np.float32))
            case Fault.HANGS_DEVICE:
                time.sleep(3600)
            case Fault.LOSES_DEVICE:
                raise EngineBroken("the device is lost, on demand")
        return top

    def close(self) -> None:
        pass
