"""worker/pipeline.py and worker/housekeeping.py on a real server: what a worker still does once it was told to stop."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY
from waiting import wait_until

from common.keys import Keys
from common.messages import PredictRequest, PredictResult, pack_integers
from common.transport import Delivery, FrontEndTransport, WorkerTransport
from deploy.redis_server import RedisServer
from worker import journal
from worker.batching import BatchPolicy
from worker.engines.drill import DrillEngine
from worker.health import Health
from worker.housekeeping import Held, Housekeeping
from worker.inference import Inference
from worker.padding import ModelLimits
from worker.pipeline import Pipeline
from worker.settings import WorkerSettings

KEYS = Keys("test")
LIMITS = ModelLimits(vocabulary_size=100, max_tokens=16, pad_token_id=0)
POLICY = BatchPolicy(max_batch_requests=8, max_padded_tokens=128)


def request(number: int) -> PredictRequest:
    tokens, mask = pack_integers([1, 2, 3]), pack_integers([1])
    return PredictRequest(number.to_bytes(16, "big"), "front", 30_000, tokens, mask, 5, b"", f"request-{number}")


@pytest.fixture
async def front(redis_server: RedisServer) -> Any:
    transport = FrontEndTransport(redis_server.url, KEYS, "front", 10)
    yield transport
    await transport.close()


@pytest.fixture
def worker(redis_server: RedisServer) -> Iterator[WorkerTransport]:
    transport = WorkerTransport(redis_server.url, KEYS, "worker", journal.bury)
    transport.join()
    yield transport
    transport.close()


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"fillmask_{name}", labels) or 0.0


async def test_an_answer_is_told_even_if_redis_is_away_while_the_worker_stops(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is counted when it is told; what the worker warmed up with is counted never."""
    caplog.set_level(logging.WARNING)
    health, held = Health("worker", "drill"), Held()
    engine = DrillEngine(100, batch_ms=200.0, token_us=0.0)
    pipeline = Pipeline(worker, Inference(engine, health, LIMITS), health, POLICY, held)
    ok, ratios = counted("worker_requests_total", outcome="ok"), counted("padding_ratio_count")
    await front.put([request(1)])
    stages = [
        threading.Thread(target=stage, daemon=True)
        for stage in (pipeline.fetch, lambda: pipeline.infer(lambda: None), pipeline.reply)
    ]
    for stage in stages:
        stage.start()
    wait_until(lambda: held.longer_than(0) and health.device_busy_since_s, what="a batch on the device")
    keys.config_set("maxmemory", "1")
    try:
        pipeline.stop()
        wait_until(lambda: caplog.text.count("out of memory") and not health.device_busy_since_s)
        assert counted("worker_requests_total", outcome="ok") == ok
        assert held.longer_than(0)
    finally:
        keys.config_set("maxmemory", "0")
    for stage in stages:
        stage.join(10)
    (reply,) = await front.collect()
    assert isinstance(reply, PredictResult)
    assert counted("worker_requests_total", outcome="ok") == ok + 1
    assert counted("padding_ratio_count") == ratios + 1
    assert not held.longer_than(0)


async def test_a_worker_that_drains_takes_nothing_over(front: FrontEndTransport, worker: WorkerTransport) -> None:
    await front.put([request(1), request(2)])
    worker.take(9, 0)
    worker.hand_over()
    health, ended, taken = Health("worker", "drill"), threading.Event(), list[Delivery]()
    health.loaded = True

    def take_over(delivery: Delivery) -> None:
        taken.append(delivery)
        health.draining = True
        ended.set()

    Housekeeping(worker, health, Held(), WorkerSettings.model_validate({"name": "worker"})).run(ended, take_over)
    assert [delivery.request.request_id for delivery in taken] == [request(1).request_id]
    assert [delivery.request.request_id for delivery in [worker.sweep(60_000, 3)] if delivery] == [
        request(2).request_id
    ]


async def test_what_is_given_up_leaves_a_line_with_its_id(
    front: FrontEndTransport, worker: WorkerTransport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    given_up = counted("dead_letters_total", reason="poison")
    await front.put([request(7)])
    worker.take(9, 0)
    assert worker.sweep(0, max_deliveries=1) is None
    (line,) = [record for record in caplog.records if record.message == "request"]
    fields = {"request_id": "request-7", "tokens": 3, "outcome": "poison", "deliveries": 1}
    assert (line.levelno, line.__dict__["fields"]) == (logging.WARNING, fields)
    assert counted("dead_letters_total", reason="poison") == given_up + 1
