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
from common.transport import WorkerTransport
from worker import metrics
from worker.batching import BatchPolicy
from worker.cores import usable_cores
from worker.engines.base import Engine
from worker.health import Health
from worker.housekeeping import Housekeeping
from worker.padding import ModelLimits
from worker.pipeline import Pipeline
from worker.probe import check_head
from worker.settings import WorkerSettings

log = logging.getLogger("fillmask.worker")


def make_engine(settings: WorkerSettings, checkpoint: Checkpoint) -> Engine:
    """The engine that the settings name, not loaded yet; its library is imported only now."""
    if settings.engine == "echo":
        from worker.engines.echo import EchoEngine

        return EchoEngine(checkpoint.vocabulary_size)
    if settings.engine == "drill":
        from worker.engines.drill import DrillEngine

        return DrillEngine(checkpoint.vocabulary_size, settings.drill_batch_ms, settings.drill_token_us)
    threads = settings.threads or usable_cores()
    if settings.engine in ("cuda", "torch"):
        from worker.engines.cuda import TorchEngine

        device, dtype = ("cuda", settings.cuda_dtype) if settings.engine == "cuda" else ("cpu", "float32")
        return TorchEngine(checkpoint, device, dtype, threads)
    cache_dir = settings.cache_dir.expanduser()
    if settings.engine == "openvino":
        from worker.engines.openvino import OpenVinoEngine

        return OpenVinoEngine(checkpoint, threads, cache_dir)
    from worker.engines.onnx import OnnxEngine

    return OnnxEngine(checkpoint, threads, cache_dir)


def run(settings: WorkerSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises StartupError before it is ready, anything else if a stage died."""
    checkpoint = open_checkpoint(settings.model, settings.revision)
    policy = _policy(settings, checkpoint)
    transport = WorkerTransport(settings.redis_url, Keys(checkpoint.fingerprint, settings.shard), settings.name)
    engine = make_engine(settings, checkpoint)
    health = Health(settings.name, engine.name)
    pipeline = Pipeline(transport, engine, health, policy, ModelLimits.of(checkpoint))
    stopping, ended = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        pipeline.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if settings.metrics_port:
        metrics.serve(settings.metrics_host, settings.metrics_port)
    _join(transport, settings.redis_url, stopping)
    check = partial(_check, engine, checkpoint, settings)
    housekeeping = Housekeeping(transport, health, pipeline.held, settings)
    stages = {
        "housekeeping": lambda: housekeeping.run(ended, pipeline.take_over),
        "fetch": pipeline.fetch,
        "infer": lambda: pipeline.infer(check),
        "reply": pipeline.reply,
    }
    try:
        _run_together(stages, last="reply")
    finally:
        ended.set()
        _leave(transport)


def _check(engine: Engine, checkpoint: Checkpoint, settings: WorkerSettings) -> None:
    """Of engines that run a model, unless the user knows better."""
    if settings.engine not in ("echo", "drill") and not settings.allow_untrained_head:
        check_head(engine, checkpoint)


def _policy(settings: WorkerSettings, checkpoint: Checkpoint) -> BatchPolicy:
    if settings.max_padded_tokens < checkpoint.max_tokens:
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


def _run_together(stages: Mapping[str, Callable[[], None]], last: str) -> None:
    """Runs each stage in a thread of its own until the `last` one returns. Raises what the first stage to fail raised.

    The threads are daemons: once one has failed, the others may hang in a full queue or a socket, and the process ends.
    """
    ends: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

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
        if name == last:
            return
