"""What operators ask: /healthz, /readyz, /metrics, /info, /status. None of them waits for Redis; they tell what is known."""

from fastapi import APIRouter, Response
from pydantic_core import to_json

from api import metrics
from api.filling import FillMask


def router(service: FillMask, version: str, several_processes: bool) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/healthz", summary="Is this process alive? Says nothing of Redis or workers")
    async def healthz() -> Response:
        return _json({"status": "alive"})

    @routes.get("/readyz", summary="Can a request be served now? 503 with the reason if not")
    async def readyz() -> Response:
        return readiness(service)

    @routes.get("/metrics", summary="Prometheus metrics")
    async def prometheus() -> Response:
        return Response(metrics.exposition(several_processes), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/info", summary="Model, limits and workers")
    async def info() -> Response:
        checkpoint, settings, dispatcher = service.checkpoint, service.settings, service.dispatcher
        return _json(
            {
                "version": version,
                "model": checkpoint.title,
                "revision": checkpoint.revision,
                "architecture": checkpoint.architecture,
                "fingerprint": checkpoint.fingerprint,
                "mask_token": checkpoint.mask_token,
                "vocabulary_size": checkpoint.vocabulary_size,
                "limits": {
                    "max_tokens": checkpoint.max_tokens,
                    "max_text_chars": settings.max_text_chars,
                    "max_texts": settings.max_texts,
                    "max_masks": settings.max_masks,
                    "max_top_k": settings.max_top_k,
                    "max_targets": settings.max_targets,
                    "max_candidates": settings.max_candidates,
                    "max_body_bytes": settings.max_body_bytes,
                    "max_request_timeout_ms": settings.max_request_timeout_ms,
                },
                "backlog": dispatcher.load.backlog,
                "in_flight": dispatcher.load.in_flight,
                "workers": dispatcher.workers,
            }
        )

    @routes.get("/status", summary="What the page's Status tab shows: this front-end's last minute, queue, workers")
    async def status() -> Response:
        return _json(_status(service))

    return routes


def readiness(service: FillMask) -> Response:
    reason = service.dispatcher.load.reason()
    return _json({"status": "not ready", "reason": reason}, 503) if reason else _json({"status": "ready"})


def _status(service: FillMask) -> dict[str, object]:
    dispatcher, load = service.dispatcher, service.dispatcher.load
    return {
        "front_end": dispatcher.front_end,
        "reason": load.reason(),
        "recent": metrics.RECENT.tell(),
        "backlog": load.backlog,
        "oldest_s": load.oldest_s,
        "in_flight": load.in_flight,
        "workers": dispatcher.workers,
    }


def _json(body: dict[str, object], status: int = 200) -> Response:
    return Response(to_json(body), status, media_type="application/json", headers={"cache-control": "no-store"})
