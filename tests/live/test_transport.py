"""common/transport.py on a real server: what each call does to the keys, and what a fault leaves of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgpack
import pytest
import redis
from waiting import wait_until

from common.keys import GROUP, Keys
from common.messages import PredictFailure, PredictRequest, PredictResult, pack_integers
from common.status import WorkerStatus
from common.transport import DeadLetter, Delivery, FrontEndTransport, WorkerTransport
from deploy.redis_server import RedisServer

KEYS = Keys("test")
CAP = 10
LEASE_MS = 50


def request(number: int, front_end: str = "front") -> PredictRequest:
    return PredictRequest(number.to_bytes(16, "big"), front_end, 5000, pack_integers([1, 2, 3]), pack_integers([1]), 5)


def result(delivery: Delivery) -> tuple[Delivery, PredictResult]:
    return delivery, PredictResult(delivery.request.request_id, 1, bytes(4), bytes(4), 0.0, 0.0, 1)


@pytest.fixture
async def front(redis_server: RedisServer) -> AsyncIterator[FrontEndTransport]:
    transport = FrontEndTransport(redis_server.url, KEYS, "front", CAP)
    yield transport
    await transport.close()


def joined(redis_server: RedisServer, name: str) -> WorkerTransport:
    transport = WorkerTransport(redis_server.url, KEYS, name)
    transport.join()
    return transport


@pytest.fixture
def worker(redis_server: RedisServer) -> Iterator[WorkerTransport]:
    transport = joined(redis_server, "worker")
    yield transport
    transport.close()


@pytest.fixture
def sibling(redis_server: RedisServer) -> Iterator[WorkerTransport]:
    transport = joined(redis_server, "sibling")
    yield transport
    transport.close()


def swept(transport: WorkerTransport, max_deliveries: int = 3) -> Delivery:
    found: list[Delivery] = []

    def sweep() -> bool:
        delivery = transport.sweep(LEASE_MS, max_deliveries)
        found.extend([delivery] if delivery else [])
        return bool(found)

    wait_until(sweep)
    return found[0]


async def test_a_request_travels_there_and_back(front: FrontEndTransport, worker: WorkerTransport, keys: Any) -> None:
    outcome = await front.put([request(1), request(2)])
    assert (len(outcome.entry_ids), outcome.backlog) == (2, 2)
    deliveries = worker.take(10, 0)
    assert [delivery.request._replace(remaining_ms=5000) for delivery in deliveries] == [request(1), request(2)]
    now = time.monotonic()
    assert all(now - 1 < delivery.put_at_s <= now + 0.1 for delivery in deliveries)
    assert keys.xlen(KEYS.requests) == 2, "in flight still counts"
    worker.finish([result(delivery) for delivery in deliveries])
    assert [reply.request_id for reply in await front.collect()] == [request(1).request_id, request(2).request_id]
    assert keys.xlen(KEYS.requests) == 0
    assert keys.xpending(KEYS.requests, GROUP)["pending"] == 0


async def test_the_cap_is_exact_and_drops_nothing(front: FrontEndTransport, worker: WorkerTransport) -> None:
    assert len((await front.put([request(n) for n in range(8)])).entry_ids) == 8
    outcome = await front.put([request(n) for n in range(8, 13)])
    assert (len(outcome.entry_ids), outcome.backlog) == (2, CAP)
    assert (await front.put([request(99)])).entry_ids == []
    assert [int.from_bytes(d.request.request_id, "big") for d in worker.take(99, 0)] == list(range(CAP))


async def test_an_empty_put_tells_how_long_the_oldest_has_been_there(front: FrontEndTransport) -> None:
    assert (await front.put([])).oldest_ms == 0
    entry_id = (await front.put([request(1)])).entry_ids[0]
    while not (oldest_ms := (await front.put([])).oldest_ms):
        await asyncio.sleep(0.001)
    await front.put([request(2)])
    assert (await front.put([])).oldest_ms >= oldest_ms
    await front.withdraw([entry_id])
    assert (await front.put([])).backlog == 1


async def test_an_emptied_server_shows_in_the_epoch(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any
) -> None:
    first = (await front.put([request(1)])).epoch
    assert (await front.put([])).epoch == first
    keys.flushall()
    second = (await front.put([request(2)])).epoch
    assert second != first
    worker.join()
    assert (await front.put([])).epoch == second, "whoever comes second changes nothing"
    assert [delivery.request.request_id for delivery in worker.take(10, 0)] == [request(2).request_id]


async def test_a_worker_that_makes_the_queue_anew_changes_the_epoch(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any
) -> None:
    first = (await front.put([request(1)])).epoch
    keys.delete(KEYS.requests)
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        worker.take(10, 0)
    worker.join()
    assert (await front.put([])).epoch != first


async def test_a_group_that_was_destroyed_alone_loses_nothing(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any
) -> None:
    first = (await front.put([request(1)])).epoch
    keys.xgroup_destroy(KEYS.requests, GROUP)
    worker.join()
    assert (await front.put([])).epoch == first
    assert [delivery.request.request_id for delivery in worker.take(10, 0)] == [request(1).request_id]


@pytest.mark.parametrize("requests", [[], [request(1)]], ids=["an empty put", "a put"])
async def test_a_server_that_takes_no_writes_refuses_every_put(
    front: FrontEndTransport, keys: Any, requests: list[PredictRequest]
) -> None:
    await front.put([])
    keys.config_set("maxmemory", "1")
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            await front.put(requests)
    finally:
        keys.config_set("maxmemory", "0")
    keys.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(redis.exceptions.ReadOnlyError):
            await front.put(requests)
    finally:
        keys.replicaof("no", "one")
    assert len((await front.put(requests)).entry_ids) == len(requests)


async def test_a_silent_workers_requests_are_taken_over_one_by_one(
    front: FrontEndTransport, worker: WorkerTransport, sibling: WorkerTransport
) -> None:
    await front.put([request(1), request(2)])
    worker.take(10, 0)
    assert sibling.sweep(60_000, 3) is None, "within its lease a worker keeps what it has"
    assert swept(sibling).request.request_id == request(1).request_id
    assert swept(sibling).request.request_id == request(2).request_id


async def test_a_renewed_lease_keeps_the_sweepers_away(
    front: FrontEndTransport, worker: WorkerTransport, sibling: WorkerTransport, keys: Any
) -> None:
    await front.put([request(1)])
    (delivery,) = worker.take(10, 0)
    wait_until(lambda: keys.xpending_range(KEYS.requests, GROUP, "-", "+", 1)[0]["time_since_delivered"] >= LEASE_MS)
    worker.renew([delivery.entry_id])
    pending = keys.xpending_range(KEYS.requests, GROUP, "-", "+", 1)[0]
    assert pending["time_since_delivered"] < LEASE_MS
    assert pending["times_delivered"] == 1, "renewing is no delivery"


async def test_r04_the_third_failure_is_the_last(
    front: FrontEndTransport, redis_server: RedisServer, keys: Any
) -> None:
    letters: list[DeadLetter] = []
    worker = WorkerTransport(redis_server.url, KEYS, "worker", letters.append)
    worker.join()
    await front.put([request(1)])
    worker.take(10, 0)
    swept(worker)
    swept(worker)
    assert letters == []

    def buried() -> bool:
        assert worker.sweep(LEASE_MS, 3) is None
        return bool(keys.xlen(KEYS.dead))

    wait_until(buried)
    (reply,) = await front.collect()
    assert isinstance(reply, PredictFailure)
    assert (reply.request_id, reply.reason) == (request(1).request_id, "poison")
    assert keys.xlen(KEYS.requests) == 0
    (letter,) = keys.xrange(KEYS.dead)
    assert letter[1][b"deliveries"] == b"3"
    (told,) = letters
    assert told.request
    assert (told.reason, told.deliveries, told.request.request_id) == ("poison", 3, request(1).request_id)
    worker.close()


async def test_what_is_handed_back_was_never_delivered(
    front: FrontEndTransport, worker: WorkerTransport, sibling: WorkerTransport, keys: Any
) -> None:
    await front.put([request(1)])
    (delivery,) = worker.take(10, 0)
    worker.hand_back([delivery.entry_id])
    assert keys.xpending_range(KEYS.requests, GROUP, "-", "+", 1)[0]["times_delivered"] == 0
    assert swept(sibling).request.request_id == request(1).request_id


async def test_a_dead_workers_requests_need_not_wait_for_the_lease(
    front: FrontEndTransport, worker: WorkerTransport, sibling: WorkerTransport, keys: Any
) -> None:
    await front.put([request(1), request(2)])
    worker.take(10, 0)
    worker.hand_over()
    assert sibling.sweep(60_000, 3) is not None
    assert sibling.sweep(60_000, 3) is not None
    names = {consumer["name"] for consumer in keys.xinfo_consumers(KEYS.requests, GROUP)}
    assert b"worker" not in names


async def test_a_worker_that_dies_with_its_hands_full_keeps_nothing(redis_server: RedisServer, keys: Any) -> None:
    """More than one command names: all of it goes, and with nothing pending the consumer goes too."""
    many = 1300
    front = FrontEndTransport(redis_server.url, KEYS, "front", many)
    await front.put([request(n) for n in range(many)])
    await front.close()
    worker = joined(redis_server, "worker")
    assert len(worker.take(many, 0)) == many
    worker.hand_over()
    worker.close()
    (consumer,) = keys.xinfo_consumers(KEYS.requests, GROUP)
    assert (consumer["name"], consumer["pending"]) == (b"handed-over", many)


async def test_a_consumer_with_pending_requests_is_never_deleted(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any
) -> None:
    await front.put([request(1)])
    (delivery,) = worker.take(10, 0)
    worker.leave()
    assert [consumer["name"] for consumer in keys.xinfo_consumers(KEYS.requests, GROUP)] == [b"worker"]
    worker.finish([result(delivery)])
    worker.leave()
    assert keys.xinfo_consumers(KEYS.requests, GROUP) == []


async def test_a_full_server_acknowledges_nothing(front: FrontEndTransport, worker: WorkerTransport, keys: Any) -> None:
    await front.put([request(1)])
    (delivery,) = worker.take(10, 0)
    keys.config_set("maxmemory", "1")
    try:
        with pytest.raises(redis.RedisError):
            worker.finish([result(delivery)])
        assert keys.xlen(KEYS.requests) == 1
        assert keys.xpending(KEYS.requests, GROUP)["pending"] == 1
    finally:
        keys.config_set("maxmemory", "0")
    worker.finish([result(delivery)])
    assert len(await front.collect()) == 1


@pytest.mark.parametrize("encoded", [msgpack.packb((9, bytes(16), "front", "new shape")), b"noise"])
async def test_a_message_of_another_release_disturbs_nobody(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any, encoded: bytes
) -> None:
    keys.xadd(KEYS.requests, {"r": encoded})
    await front.put([request(1)])
    assert [delivery.request.request_id for delivery in worker.take(10, 0)] == [request(1).request_id]
    assert keys.xlen(KEYS.dead) == 1
    replies = await front.collect() if encoded != b"noise" else []
    assert [reply.reason for reply in replies if isinstance(reply, PredictFailure)] == ["unknown_wire_version"] * len(
        replies
    )


async def test_heartbeats_are_seen_and_fade(front: FrontEndTransport, worker: WorkerTransport, keys: Any) -> None:
    assert await front.watch() == []
    status = WorkerStatus("worker", "ready", "echo", 123.0)
    worker.announce(status)
    assert await front.watch() == [status]
    assert 0 < keys.pttl(KEYS.heartbeat("worker")) <= 3000
    keys.set(KEYS.heartbeat("worker"), status.encode().replace("{", '{"of_the_next_release": 1, ', 1), px=3000)
    assert await front.watch() == [status]
    worker.leave()
    assert await front.watch() == []


async def test_replies_for_a_vanished_front_end_expire(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any
) -> None:
    await front.put([request(1, front_end="gone")])
    worker.finish([result(delivery) for delivery in worker.take(10, 0)])
    assert 0 < keys.pttl(KEYS.replies("gone")) <= 60_000


async def test_two_hundred_restarts_leave_nothing_behind(
    front: FrontEndTransport, worker: WorkerTransport, keys: Any, redis_server: RedisServer
) -> None:
    await front.put([request(1)])
    for number in range(200):  # killed ones: they neither leave nor are handed over
        dead = joined(redis_server, f"dead-{number}")
        if number == 7:
            (delivery,) = dead.take(1, 0)
        dead.close()
    worker.announce(WorkerStatus("worker", "ready", "echo"))
    worker.tidy(idle_ms=0)
    names = {consumer["name"] for consumer in keys.xinfo_consumers(KEYS.requests, GROUP)}
    assert names == {b"worker", b"dead-7"}, "one that has a request pending stays until somebody has taken it over"
    assert swept(worker).entry_id == delivery.entry_id
    worker.tidy(idle_ms=0)
    assert [consumer["name"] for consumer in keys.xinfo_consumers(KEYS.requests, GROUP)] == [b"worker"]


async def test_what_is_withdrawn_is_never_taken(front: FrontEndTransport, worker: WorkerTransport, keys: Any) -> None:
    outcome = await front.put([request(1), request(2)])
    await front.withdraw(outcome.entry_ids[:1])
    assert [delivery.request.request_id for delivery in worker.take(10, 0)] == [request(2).request_id]
    await front.withdraw(outcome.entry_ids[1:])
    assert worker.sweep(0, 3) is None, "a request that its worker had is not taken over either"
    assert keys.xpending(KEYS.requests, GROUP)["pending"] == 0


async def test_a_sweep_passes_over_what_was_withdrawn(
    front: FrontEndTransport, worker: WorkerTransport, sibling: WorkerTransport, keys: Any
) -> None:
    outcome = await front.put([request(n) for n in range(6)])
    worker.take(10, 0)
    await front.withdraw(outcome.entry_ids[:5])
    wait_until(lambda: keys.xpending_range(KEYS.requests, GROUP, "-", "+", 1)[0]["time_since_delivered"] >= LEASE_MS)
    found = sibling.sweep(LEASE_MS, 3)
    assert found
    assert found.request.request_id == request(5).request_id


async def test_what_was_accepted_before_is_not_refused_when_put_again(front: FrontEndTransport) -> None:
    await front.put([request(n) for n in range(CAP)])
    assert (await front.put([request(99)])).entry_ids == []
    assert len((await front.put([request(n) for n in range(CAP)], again=True)).entry_ids) == CAP
