"""api/dispatcher.py on a real server whose answers come late: what was let in is not refused, nor computed twice, afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
from proxies import Proxy

from api.admission import Limits
from api.calls import Caller, Wanted
from api.dispatcher import Dispatcher
from api.tokenization import EncodedText
from common.keys import Keys
from common.messages import PredictResult
from common.status import READY, WorkerStatus
from common.transport import FrontEndTransport, WorkerTransport
from deploy.redis_server import RedisServer

KEYS = Keys("test")
TEXT = EncodedText("天", [1, 2, 3], [1], [(0, 1)], 0)


async def stay() -> None:
    await asyncio.Event().wait()


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(10):
        while not (value := await asyncio.to_thread(condition)):
            await asyncio.sleep(0.005)
    return value


@pytest.fixture
def keys(redis_server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def worker(redis_server: RedisServer) -> Iterator[WorkerTransport]:
    transport = WorkerTransport(redis_server.url, KEYS, "worker")
    transport.join()
    transport.announce(WorkerStatus("worker", READY, "echo"))
    yield transport
    transport.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def dispatcher(proxy: Proxy, worker: WorkerTransport) -> AsyncIterator[Dispatcher]:
    """The queue has room for one."""
    transport = FrontEndTransport(proxy.url, KEYS, "front", max_backlog=1)
    dispatcher = Dispatcher(transport, "front", Limits(max_in_flight=10, max_backlog=10))
    running = asyncio.create_task(dispatcher.run())
    await dispatcher.looked(10)
    proxy.delay_s = 0.1
    yield dispatcher
    proxy.delay_s = 0.0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await transport.close()


async def test_a_connection_lost_while_a_request_is_being_put(
    dispatcher: Dispatcher, worker: WorkerTransport, keys: Any
) -> None:
    """The server has it, and says so in a moment: the queue that seems full by then is full of this very request."""
    asking = asyncio.create_task(dispatcher.predict([TEXT], Wanted(1, [], 10.0, Caller(stay))))
    await until(lambda: keys.xlen(KEYS.requests))
    (replies,) = [client["id"] for client in keys.client_list() if client["name"] == "fillmask-replies-front"]
    keys.client_kill_filter(_id=replies)
    await until(lambda: asking.done() or keys.xinfo_stream(KEYS.requests)["entries-added"] == 2)
    answers = [(delivery, _result(delivery.request.request_id)) for delivery in worker.take(9, 0)]
    assert len(answers) == 1, "the first was taken back before the second was put"
    worker.finish(answers)
    assert await asking == [answers[0][1]]
    assert keys.xlen(KEYS.requests) == 0


def _result(request_id: bytes) -> PredictResult:
    return PredictResult(request_id, 1, bytes(4), bytes(4), 0.0, 0.0, 1)
