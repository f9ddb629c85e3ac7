"""The yardstick of `make bench-pipe`: what FastAPI and uvicorn cost by themselves, with nothing behind them."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    texts: list[str]
    top_k: int = 5


route = FastAPI()


@route.post("/v1/fill-mask")
async def fill_mask(body: Body) -> dict[str, int]:
    """A pydantic body, and no work."""
    return {"texts": len(body.texts)}


async def function(scope: Any, receive: Any, send: Any) -> None:
    """A bare ASGI function that reads the body and answers."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})
