"""What the tutorials build by hand, to compare with: transformers' pipeline behind FastAPI, bare or with batching in the process.

    python -m loadtest.naive MODEL --port 8200                  one request at a time
    python -m loadtest.naive MODEL --port 8200 --batched        whatever comes within 15 ms, at most 16 at once

Both take POST /predict {"text": "..."} as the tutorials do; GET /busy tells how long the model has been running.
Nothing of this project is used.
"""

import argparse
import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

WAIT_S = 0.015
MOST = 16


class Body(BaseModel):
    text: str


class Busy:
    """Seconds in which at least one call of the model was running."""

    def __init__(self, model: Any) -> None:
        self._lock = threading.Lock()
        self._running, self._since, self.total_s = 0, 0.0, 0.0
        model.register_forward_pre_hook(lambda *_: self._count(1))
        model.register_forward_hook(lambda *_: self._count(-1))

    def _count(self, change: int) -> None:
        with self._lock:
            now = time.perf_counter()
            self.total_s += now - self._since if self._running else 0.0
            self._since = now
            self._running += change


def naive(fill: Any) -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    def predict(body: Body) -> dict[str, list[dict[str, Any]]]:
        return {"results": _words(fill(body.text, top_k=5))}

    return app


def batched(fill: Any) -> FastAPI:
    waiting: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()

    async def batches() -> None:
        while True:
            batch = [await waiting.get()]
            ends_at = asyncio.get_running_loop().time() + WAIT_S
            while len(batch) < MOST:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(ends_at):
                        batch.append(await waiting.get())
                        continue
                break
            texts = [text for text, _ in batch]
            found = await asyncio.to_thread(fill, texts, top_k=5, batch_size=len(texts))
            for (_, answer), candidates in zip(batch, found if len(batch) > 1 else [found], strict=True):
                answer.set_result(candidates)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batches())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(body: Body) -> dict[str, list[dict[str, Any]]]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await waiting.put((body.text, answer))
        return {"results": _words(await answer)}

    return app


def _words(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"word": one["token_str"], "confidence": round(one["score"], 4)} for one in candidates]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batched", action="store_true")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import transformers

    fill = transformers.pipeline("fill-mask", model=asked.model, device="cpu")
    app = batched(fill) if asked.batched else naive(fill)
    busy = Busy(fill.model)
    app.get("/busy")(lambda: {"busy_s": busy.total_s})
    uvicorn.run(app, port=asked.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
