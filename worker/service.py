"""One worker process put together: join, load, warm up, run, drain. The work itself is in worker/pipeline.py."""

import logging
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial

from common.checkpoint import Checkpoint, open_checkpoint
from common.connection import TRANSPORT_ERRORS, backoff_s, explain, look_at_server
from common.errors import StartupError
from common.keys import Keys
from common.status import READY
from common.tracing import Traces
from common.transport import WorkerTransport
from worker import metrics
from worker.batching import BatchPolicy
from worker.engines.base import Engine
from worker.engines.choice import make_engine
from worker.health import Health
from worker.housekeeping import Housekeeping
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
    checkpoint = open_checkpoint(settings.model, settings.revision)
    policy = _policy(settings, checkpoint)
    keys = Keys(checkpoint.fingerprint, settings.shard)
    transport = WorkerTransport(settings.redis_url, keys, settings.name, metrics.count_dead_letter)
    engine = make_engine(settings, checkpoint)
    health = Health(settings.name, engine.name)
    metrics.READY.set_function(lambda: health.state == READY)
    traces = Traces("fillmask-worker") if settings.traces else None
    pipeline = Pipeline(transport, engine, health, policy, ModelLimits.of(checkpoint), traces)
    stopping, ended, ends = threading.Event(), threading.Event(), Ends()

    def stop(*_: object) -> None:
        stopping.set()
        pipeline.stop()
        if not health.loaded:
            ends.put((_LAST, None))  # it has taken nothing yet, and nobody waits for what it is loading

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if settings.metrics_port:
        metrics.serve(settings.metrics_host, settings.metrics_port)
    _join(transport, settings.redis_url, stopping)
    check = partial(_check, engine, health, checkpoint, settings)
    housekeeping = Housekeeping(transport, health, pipeline.held, settings)
    stages = {
        "housekeeping": lambda: housekeeping.run(ended, pipeline.take_over),
        "fetch": pipeline.fetch,
        "infer": lambda: pipeline.infer(check),
        _LAST: pipeline.reply,
    }
    try:
        _run_together(stages, ends)
        log.info("drained: what was begun is answered, what only waited is handed back")
    finally:
        ended.set()
        _leave(transport)
        if traces:
            traces.close()


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


def _join(transport: WorkerTransport, url: str, stopping: threading.Event) -> None:
    """Waits for Redis if need be: a worker may be started before it."""
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
                return
        else:
            return


def _leave(transport: WorkerTransport) -> None:
    try:
        transport.leave()
    except TRANSPORT_ERRORS as error:
        log.warning("left without taking leave: %s", explain(error))
    transport.close()


def _run_together(stages: Mapping[str, Callable[[], None]], ends: Ends) -> None:
    """Runs each stage in a thread of its own until the last one is said to have ended. Raises what the first to fail raised.

    The threads are daemons: once one has failed, the others may hang in a full queue or a socket, and the process ends.
    """

    def stage(name: str, body: Callable[[], None]) -> None:
        try:
            body()
            ends.put((name, None))
        except BaseException as error:  # handed to the main thread, which raises it
            ends.put((name, error))

    for name, body in stages.items():
        threading.Thread(target=stage, args=(name, body), name=name, daemon=True).start()
    while True:
        name, error = ends.get()
        if error is not None:
            raise error
        if name == _LAST:
            return
