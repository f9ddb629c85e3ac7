"""create_app(settings): the application put together, and its lifespan. Nothing happens at import time."""

import asyncio
import gc
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api import ops
from api.admission import Limits
from api.dispatcher import Dispatcher
from api.errors import on_any_error, on_client_gone, on_fillmask_error, on_http_error
from api.filling import FillMask
from api.middleware import BodyLimit, RequestContext
from api.routes import fill_mask, huggingface, kserve_v1, open_inference, tutorial
from api.settings import ApiSettings
from common.checkpoint import open_checkpoint
from common.errors import FillmaskError
from common.keys import Keys
from common.transport import FrontEndTransport

log = logging.getLogger("fillmask.api")


def create_app(settings: ApiSettings) -> FastAPI:
    """Opens the model's small files (maybe from the hub) and wires the rooms. Raises StartupError; touches no Redis yet."""
    checkpoint = open_checkpoint(settings.model, settings.revision)
    front_end = uuid.uuid4().hex[:12]
    keys = Keys(checkpoint.fingerprint, settings.shard)
    transport = FrontEndTransport(settings.redis_url, keys, front_end, settings.max_backlog)
    dispatcher = Dispatcher(transport, front_end, Limits(settings.max_in_flight, settings.max_backlog))
    service = FillMask(settings, checkpoint, dispatcher)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = asyncio.create_task(dispatcher.run(), name="dispatcher")
        tasks.add_done_callback(_end_process)
        await dispatcher.looked(most_s=1.0)  # a new front-end beside running workers refuses nobody
        gc.freeze()  # what lives as long as the process is not searched for garbage again and again
        yield
        await dispatcher.drained()
        tasks.remove_done_callback(_end_process)
        tasks.cancel()
        await asyncio.gather(tasks, return_exceptions=True)
        await transport.close()

    app = FastAPI(
        title="fillmask",
        version=release(),
        summary="Fill the masks of a text with a masked-language model.",
        root_path=settings.root_path,
        lifespan=lifespan,
    )
    app.state.dispatcher = dispatcher
    for dialect in (fill_mask, huggingface, open_inference, kserve_v1, tutorial):
        app.include_router(dialect.router(service))
    app.include_router(ops.router(service, release(), several_processes=settings.metrics_dir is not None))
    app.add_exception_handler(FillmaskError, on_fillmask_error)
    app.add_exception_handler(ClientDisconnect, on_client_gone)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_any_error)
    app.add_middleware(BodyLimit, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext, load=dispatcher.load, access_log=settings.access_log)
    return app


def release() -> str:
    try:
        return version("fillmask")
    except PackageNotFoundError:
        return "unreleased"


def _end_process(tasks: asyncio.Task[None]) -> None:
    """The dispatcher must never end by itself. If a bug ends it, no request could be answered: so the process ends too."""
    if not tasks.cancelled():
        log.critical("the dispatcher died", exc_info=tasks.exception())
        os.kill(os.getpid(), signal.SIGTERM)
