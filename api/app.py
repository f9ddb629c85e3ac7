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
from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware

from api import metrics, ops
from api.admission import Limits
from api.api_keys import ApiKeys, KeyRing
from api.dispatcher import Dispatcher
from api.errors import ANSWERS, error_types
from api.filling import FillMask
from api.middleware import BodyLimit, Heads, RequestContext, Traced
from api.rate_limits import RateLimiter, RateLimits
from api.routes import documentation, fill_mask, huggingface, kserve_v1, open_inference, page, tutorial
from api.security_headers import SecurityHeaders
from api.settings import ApiSettings, Rate, listed
from api.spent import TOLD
from common.checkpoint import open_checkpoint
from common.keys import Keys
from common.tracing import Traces
from common.transport import FrontEndTransport

log = logging.getLogger("fillmask.api")

CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST"],
    "allow_headers": ["Authorization", "Content-Type", "X-API-Key", "X-Request-ID", "X-Request-Timeout-Ms"],
    "expose_headers": [
        "Retry-After",
        "RateLimit",
        "RateLimit-Policy",
        "X-Request-ID",
        *[name.decode() for name in TOLD],
    ],
}
"""For the pages of other origins that may ask at all. No credentials: nothing here is told by a cookie."""


def create_app(settings: ApiSettings) -> FastAPI:
    """Opens the model's small files (maybe from the hub) and wires the rooms. Raises StartupError; touches no Redis yet."""
    checkpoint = open_checkpoint(settings.model, settings.revision)
    front_end = uuid.uuid4().hex[:12]
    keys = Keys(checkpoint.fingerprint, settings.shard)
    transport = FrontEndTransport(settings.redis_url, keys, front_end, settings.max_backlog)
    dispatcher = Dispatcher(transport, front_end, Limits(settings.max_in_flight, settings.max_backlog))
    service = FillMask(settings, checkpoint, dispatcher)
    traces = Traces("fillmask-front-end") if settings.traces else None

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
        if limiter:
            await limiter.close()
        if traces:
            await asyncio.to_thread(traces.close)

    app = FastAPI(
        title="fillmask",
        version=release(),
        summary="Fill the masks of a text with a masked-language model.",
        root_path=settings.root_path,
        redirect_slashes=False,  # where to would be what the Host header says
        lifespan=lifespan,
        docs_url=None,  # api/routes/documentation.py
        redoc_url=None,
        exception_handlers=ANSWERS,
    )
    app.state.dispatcher = dispatcher
    metrics.expect(error_types())
    _route(app, service)
    app.add_middleware(Heads)
    app.add_middleware(BodyLimit, max_body_bytes=settings.max_body_bytes)
    limiter = _guard(app, settings, keys)
    if traces:
        app.add_middleware(Traced, traces=traces)
    app.add_middleware(RequestContext, load=dispatcher.load, access_log=settings.access_log)
    return app


def _route(app: FastAPI, service: FillMask) -> None:
    keys = service.settings.api_keys or service.settings.api_keys_file
    described = [Security(HTTPBearer(auto_error=False))] if keys else []  # for /docs; who is let in is decided before
    for dialect in (fill_mask, huggingface, open_inference, kserve_v1, tutorial):
        app.include_router(dialect.router(service), dependencies=described)
    app.include_router(page.router())
    app.include_router(documentation.router(app.title))
    app.include_router(ops.router(service, release(), several_processes=service.settings.metrics_dir is not None))


def _guard(app: FastAPI, settings: ApiSettings, keys: Keys) -> RateLimiter | None:
    """Who may ask, how much, and from which pages; the last one added meets a request first. Raises StartupError."""
    limiter = None
    if settings.rate_limit:
        limiter = RateLimiter(settings.redis_url, keys, Rate.parse(settings.rate_limit))
        app.add_middleware(RateLimits, limiter=limiter)
    if settings.api_keys_file or settings.api_keys:
        app.add_middleware(ApiKeys, ring=KeyRing(settings.api_keys, settings.api_keys_file))
    if settings.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=listed(settings.cors_origins), **CORS)
    app.add_middleware(SecurityHeaders)
    return limiter


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
