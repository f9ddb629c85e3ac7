"""A batch in the engine's hands: started, answered, timed, and run again in halves if it failed. No threads, no Redis.

A device that takes two batches has the next one started before the last one is answered, so that it never waits for Python.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from common.errors import EngineBroken
from common.messages import PredictRequest, pack_integers
from common.transport import Delivery
from worker.batching import BatchPolicy
from worker.engines.base import Engine, PaddedBatch, TopTokens
from worker.health import Health
from worker.isolation import Computed, Outcome, in_halves
from worker.limits import SENTENCE_TOKENS, fitted
from worker.padding import ModelLimits, collate

log = logging.getLogger("fillmask.pipeline")


class Prepared(NamedTuple):
    """A batch for the engine; `padded` is None if it does not fit the model, and halves will find the request to blame."""

    deliveries: Sequence[Delivery]
    padded: PaddedBatch | None
    holds_slot: bool


class Running(NamedTuple):
    deliveries: Sequence[Delivery]
    padded: PaddedBatch | None
    answer: Callable[[], TopTokens]


class Inference:
    def __init__(self, engine: Engine, health: Health, limits: ModelLimits, measured_dir: Path | None = None) -> None:
        self.engine = engine
        self._health = health
        self._limits = limits
        self._measured_dir = measured_dir
        self._token_s = 0.0

    @property
    def overlaps(self) -> bool:
        return self.engine.in_flight > 1

    def prepare(self, deliveries: Sequence[Delivery], holds_slot: bool) -> Prepared:
        try:
            return Prepared(deliveries, self._collate(deliveries), holds_slot)
        except ValueError:
            return Prepared(deliveries, None, holds_slot)

    def warm_up(self, asked: BatchPolicy) -> BatchPolicy:
        """Pays what the first request would pay; learns how large batches should be, and the pace that admission needs to
        know from the start."""
        length = min(SENTENCE_TOKENS, self._limits.max_tokens)
        self.engine.warm_up([(1, length)])
        policy = fitted(self.engine, asked, self._limits, self._measured_dir)
        fitting = min(policy.max_batch_requests, policy.max_padded_tokens // length)
        blank = PredictRequest(b"", "", 0, pack_integers([0] * length), pack_integers([1]), top_k=5)
        self._run([Delivery(b"", blank, put_at_s=0.0, expires_at_s=0.0)] * fitting)
        return policy

    def begin(self, prepared: Prepared, running: Running | None) -> Running:
        """Starts it, behind the one that is running. What goes wrong is told when the answer is asked for."""
        if not running:
            self._health.batch_begins(time.monotonic())
        try:
            answer = self._start(prepared.padded)
        except EngineBroken:
            raise
        except Exception as error:
            answer = partial(_raise, error)
        return Running(prepared.deliveries, prepared.padded, answer)

    def expected_s(self, running: Running) -> float:
        """How long it should take at the last batch's pace. A small one takes longer, and that is the safe side."""
        return self._token_s * running.padded.padded_tokens if running.padded is not None else 0.0

    def end(self, running: Running, following: Running | None) -> Iterable[Outcome]:
        """Waits for its answer. The device has gone on to the following batch by then, if there is one."""
        yield from self._outcomes(running)
        if following:
            self._health.batch_begins(time.monotonic())

    def _outcomes(self, running: Running) -> Iterable[Outcome]:
        try:
            return [self._computed(running)]
        except EngineBroken:
            raise
        except Exception as error:
            log.warning("a batch of %d failed (%s): trying halves", len(running.deliveries), type(error).__name__)
        return in_halves(running.deliveries, self._run)

    def _run(self, deliveries: Sequence[Delivery]) -> Computed:
        padded = self._collate(deliveries)
        self._health.batch_begins(time.monotonic())
        return self._computed(Running(deliveries, padded, self._start(padded)))

    def _computed(self, running: Running) -> Computed:
        """Its time on the device counts from when the device was free for it."""
        deliveries, padded, answer = running
        started_s = self._health.device_busy_since_s
        try:
            top = answer()
        finally:
            took_s = self._health.batch_ends()
        tokens, padded_tokens = 0, 0
        if padded is not None:  # always, where there is an answer
            tokens, padded_tokens = int(padded.attention_mask.sum()), padded.padded_tokens
            self._token_s = took_s / padded_tokens
            self._health.learn(len(deliveries), tokens, padded_tokens, took_s)
        return Computed(deliveries, top, padded_tokens, started_s, took_s)

    def _start(self, padded: PaddedBatch | None) -> Callable[[], TopTokens]:
        if padded is None:
            raise ValueError("a request of the batch does not fit the model")
        return self.engine.start(padded)

    def _collate(self, deliveries: Sequence[Delivery]) -> PaddedBatch:
        return collate([delivery.request for delivery in deliveries], self._limits)


def _raise(error: Exception) -> NoReturn:
    raise error
