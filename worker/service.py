"""One worker process put together: join, load, warm up, run, drain. The work itself is in worker/pipeline.py."""

import logging
import queue
import signal
import threading
from collections.abc import Callable
from functools import partial

from common.checkpoint import Checkpoint, open_checkpoint
from common.connection import TRANSPORT_ERRORS, backoff_s, explain, look_at_server
from common.errors import StartupError
from common.keys import Keys
from common.status import READY
from common.tracing import Traces
from common.transport import Delivery, WorkerTransport
from worker import journal, metrics
from worker.batching import BatchPolicy
from worker.engines.base import Engine
from worker.engines.choice import check_engine, make_engine
from worker.health import Health
from worker.housekeeping import Held, Housekeeping
from worker.inference import Inference
from worker.padding import ModelLimits
from worker.pipeline import Pipeline
from worker.probe import check_head
from worker.settings import WorkerSettings

log = logging.getLogger("fillmask.worker")

Ends = queue.SimpleQueue[tuple[str, BaseException | None]]
"""Which stage has ended, and of what; None: in peace."""

_LAST = "reply"


def run(settings: WorkerSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises StartupError before it is ready, anything else if a stage died."""
    Worker(settings).run()


class Worker:
    """The main thread only waits, so that a signal finds it free whatever is being fetched, measured or loaded meanwhile."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._health = Health(settings.name, settings.engine)
        self._transport: WorkerTransport | None = None
        self._pipeline: Pipeline | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ends = Ends()
        self._traces = Traces("fillmask-worker") if settings.traces else None

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        metrics.READY.set_function(lambda: self._health.state == READY)
        if self._settings.metrics_port:
            metrics.serve(self._settings.metrics_host, self._settings.metrics_port)
        try:
            self._start("infer", self._infer)
            self._wait()
            if self._health.loaded:
                log.info("drained: what was begun is answered, what only waited is handed back")
        finally:
            self._ended.set()
            if self._transport:
                _leave(self._transport)
            if self._traces:
                self._traces.close()

    def _stop(self, *_: object) -> None:
        self._stopping.set()
        self._health.draining = True
        if self._pipeline:
            self._pipeline.stop()
        if not self._health.loaded:
            self._ends.put((_LAST, None))  # it has taken nothing yet, and nobody waits for what it is loading

    def _infer(self) -> None:
        """The other stages start from here, as soon as there is something for them: what it is loading shows in its heartbeat."""
        settings, health = self._settings, self._health
        checkpoint = open_checkpoint(settings.model, settings.revision)
        policy = _policy(settings, checkpoint)
        check_engine(settings, checkpoint)
        keys = Keys(checkpoint.fingerprint, settings.shard)
        transport = WorkerTransport(settings.redis_url, keys, settings.name, journal.bury)
        if not _join(transport, settings.redis_url, self._stopping):
            return
        self._transport, held = transport, Held()
        housekeeping = Housekeeping(transport, health, held, settings)
        self._start("housekeeping", lambda: housekeeping.run(self._ended, self._take_over))
        engine = make_engine(settings, checkpoint)
        health.engine = engine.name
        inference = Inference(engine, health, ModelLimits.of(checkpoint), settings.measured_dir)
        pipeline = Pipeline(transport, inference, health, policy, held, self._traces)
        self._pipeline = pipeline
        self._start("fetch", pipeline.fetch)
        self._start(_LAST, pipeline.reply)
        pipeline.infer(partial(_check, engine, health, checkpoint, settings))

    def _take_over(self, delivery: Delivery) -> None:
        assert self._pipeline  # noqa: S101  it sweeps for a ready worker only
        self._pipeline.take_over(delivery)

    def _start(self, name: str, body: Callable[[], None]) -> None:
        """A thread for a stage. A daemon: once one has failed, the others may hang in a full queue or a socket."""

        def stage() -> None:
            try:
                body()
                self._ends.put((name, None))
            except BaseException as error:  # handed to the main thread, which raises it
                self._ends.put((name, error))

        threading.Thread(target=stage, name=name, daemon=True).start()

    def _wait(self) -> None:
        """Until the last stage is said to have ended. Raises what the first to fail raised."""
        while True:
            name, error = self._ends.get()
            if error is not None:
                raise error
            if name == _LAST:
                return


def _check(engine: Engine, health: Health, checkpoint: Checkpoint, settings: WorkerSettings) -> None:
    """Tells what was loaded, and looks at its head, unless there is none or the user knows better."""
    health.engine = engine.name  # some know only now which of a model's files they run
    metrics.MODEL_INFO.labels(checkpoint.title, checkpoint.revision, engine.name).set(1)
    if settings.engine not in ("echo", "drill") and not settings.allow_untrained_head:
        check_head(engine, checkpoint)


def _policy(settings: WorkerSettings, checkpoint: Checkpoint) -> BatchPolicy:
    if 0 < settings.max_padded_tokens < checkpoint.max_tokens:
        raise StartupError(
            f"max_padded_tokens is {settings.max_padded_tokens}, but one text of this model may have "
            f"{checkpoint.max_tokens} tokens and could never be served"
        )
    return BatchPolicy(settings.max_batch_requests, settings.max_padded_tokens, settings.max_wait_ms / 1000)


def _join(transport: WorkerTransport, url: str, stopping: threading.Event) -> bool:
    """Waits for Redis if need be: a worker may be started before it. False if it is to stop before."""
    told = ""
    for wait_s in backoff_s():
        try:
            for warning in look_at_server(url):
                log.warning(warning)
            transport.join()
        except TRANSPORT_ERRORS as error:
            if explain(error) != told:
                told = explain(error)
                log.warning("%s; waiting for it", told)
            if stopping.wait(wait_s):
                break
        else:
            return True
    return False


def _leave(transport: WorkerTransport) -> None:
    """What is still in its hands, because it failed or Redis was away, need not wait for its lease."""
    try:
        transport.hand_over()
    except TRANSPORT_ERRORS as error:
        log.warning("left without taking leave: %s", explain(error))
    transport.close()
