"""Sentinel and Cluster: the primary is found, left when it is it no more, and found again when it has died."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from topologies import ClusterSet, SentinelSet, ask, cluster_set, sentinel_set
from waiting import wait_until

from api.rate_limits import RateLimiter
from api.settings import Rate
from common import connection
from common.connection import TRANSPORT_ERRORS, backoff_s, connect, connect_async, explain
from common.errors import StartupError
from common.keys import Keys
from common.messages import PredictRequest, PredictResult, pack_integers
from common.topology import Address, PrimaryAway, topology_of
from common.transport import FrontEndTransport, WorkerTransport
from deploy.redis_server import RedisServer, check_reachable

KEYS = Keys("test")
RECOVERS_WITHIN_S = 10.0

Redises = SentinelSet | ClusterSet


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with sentinel_set() as started:
        yield started


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSet]:
    with cluster_set() as started:
        yield started


@pytest.fixture(params=["sentinels", "cluster"])
def redises(request: pytest.FixtureRequest) -> Redises:
    started: Redises = request.getfixturevalue(request.param)
    return started


@asynccontextmanager
async def both_ends(url: str, keys: Keys) -> AsyncIterator[tuple[FrontEndTransport, WorkerTransport]]:
    front, worker = FrontEndTransport(url, keys, "front", 10), WorkerTransport(url, keys, "worker")
    try:
        worker.join()
        yield front, worker
    finally:
        await front.close()
        worker.close()


async def there_and_back(front: FrontEndTransport, worker: WorkerTransport, number: int) -> None:
    request_id = number.to_bytes(16, "big")
    await front.put([PredictRequest(request_id, "front", 5000, pack_integers([1, 2]), pack_integers([1]), 5)])
    (delivery,) = worker.take(10, 0)
    worker.finish([(delivery, PredictResult(request_id, 1, bytes(4), bytes(4), 0.0, 0.0, 1))])
    assert [reply.request_id for reply in await front.collect()] == [request_id]


async def insist(call: Callable[[], Awaitable[object]]) -> list[str]:
    """Tries until it works; returns the reasons it was given meanwhile."""
    give_up_at = time.monotonic() + RECOVERS_WITHIN_S
    reasons: list[str] = []
    for wait_s in backoff_s():
        try:
            await call()
        except TRANSPORT_ERRORS as error:
            if time.monotonic() > give_up_at:
                raise
            reasons.append(explain(error))
            await asyncio.sleep(wait_s)
        else:
            break
    return reasons


async def recovered(front: FrontEndTransport, worker: WorkerTransport) -> list[str]:
    """Each connection by itself, as the tasks of a front-end and the threads of a worker do it."""
    worker_reasons = await insist(lambda: asyncio.to_thread(worker.join))
    return (
        worker_reasons + await insist(lambda: front.put([])) + await insist(front.collect) + await insist(front.watch)
    )


@pytest.mark.parametrize("shard", [0, 1, 2])
async def test_a_request_travels_there_and_back(redises: Redises, shard: int) -> None:
    """Wherever the shard's slot is: the keys of the three shards lie on different nodes."""
    async with both_ends(redises.url, Keys("test", shard)) as (front, worker):
        await there_and_back(front, worker, 1)
        assert check_reachable(redises.url) == []
        assert ask(redises.slot_owner(Keys("test", shard).prefix), "EXISTS", Keys("test", shard).requests) == 1


def test_the_shards_of_the_tests_lie_on_different_nodes(cluster: ClusterSet) -> None:
    assert len({cluster.slot_owner(Keys("test", shard).prefix).port for shard in range(3)}) > 1


async def test_a_primary_that_is_demoted_is_left(cluster: ClusterSet) -> None:
    """A planned failover: nothing dies, and the connections to what is a replica now stay open."""
    async with both_ends(cluster.url, KEYS) as (front, worker):
        await there_and_back(front, worker, 1)
        before = cluster.slot_owner(KEYS.prefix)
        ask(cluster.replica_of(before), "CLUSTER", "FAILOVER")
        wait_until(lambda: ask(before, "ROLE")[0] == b"slave", what="the failover")
        await recovered(front, worker)
        await there_and_back(front, worker, 2)
        wait_until(lambda: ask(before, "ROLE")[3] == b"connected", what="replication for the tests that follow")


async def test_a_primary_that_dies_is_replaced(redises: Redises) -> None:
    limiter = RateLimiter(redises.url, KEYS, Rate(5, 3600))
    async with both_ends(redises.url, KEYS) as (front, worker):
        await there_and_back(front, worker, 1)
        await counted(limiter)
        before = redises.slot_owner(KEYS.prefix)
        assert ask(before, "EXISTS", KEYS.rate("alice")) == 1
        before.kill()
        assert "Redis cannot be reached" in await recovered(front, worker)
        assert redises.slot_owner(KEYS.prefix) is not before
        await there_and_back(front, worker, 2)
        await counted(limiter)
    await limiter.close()


async def counted(limiter: RateLimiter) -> None:
    """Rates find the primary by themselves, too; until then they count nothing."""
    async with asyncio.timeout(RECOVERS_WITHIN_S):
        while await limiter.take("alice", 1) is None:
            await asyncio.sleep(0.1)


def test_seeds_may_be_dead_or_strangers_and_others_are_learned(cluster: ClusterSet) -> None:
    """Runs after the failover: nobody brought the dead primary back."""
    owner = cluster.slot_owner(KEYS.prefix)
    with RedisServer() as stranger:
        topology = parsed(f"redis+cluster://127.0.0.1:1,127.0.0.1:{stranger.port},127.0.0.1:{owner.port}", KEYS.prefix)
        assert {topology.primary() for _ in range(20)} == {("127.0.0.1", owner.port)}
        assert len(topology._seeds) > 5


class Moving:
    """A topology that tells what the test tells it."""

    tls = False

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.url = server.url
        self.losses = 0

    def primary(self) -> Address:
        return "127.0.0.1", self.server.port


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Moving, RedisServer]]:
    # Without a time-out of 0 the one that is stopped first waits for its replica.
    with RedisServer(shutdown_timeout="0") as before, RedisServer(shutdown_timeout="0") as after:
        topology = Moving(before)
        monkeypatch.setattr(connection, "topology_of", lambda *_: topology)
        yield topology, after


async def test_a_demoted_primary_is_left_by_all_kinds_of_connections(moving: tuple[Moving, RedisServer]) -> None:
    """READONLY, and UNBLOCKED in a blocking read, give the connection up; the next try goes to the new primary."""
    topology, after = moving
    patient, quick = connect_async("", "patient", "x"), connect_async("", "quick", "x")
    with connect("", "threads", 2) as pool:
        await quick.ping()
        pool.ping()
        blocked = asyncio.create_task(patient.execute_command("BLMPOP", 5, 1, "list", "LEFT"))
        await asyncio.to_thread(wait_until, lambda: ask(topology.server, "INFO", "clients")["blocked_clients"])
        ask(topology.server, "REPLICAOF", "127.0.0.1", after.port)
        topology.server = after
        with pytest.raises(PrimaryAway, match="not the primary any more"):
            await blocked
        with pytest.raises(PrimaryAway, match="not the primary any more"):
            await quick.set("key", 1)
        with pytest.raises(PrimaryAway, match="not the primary any more"):
            pool.pipeline().set("key", 1).execute()
        await quick.set("key", 1)
        assert pool.get("key") == await patient.get("key") == ask(after, "GET", "key")
    await patient.aclose()
    await quick.aclose()


def test_what_one_connection_finds_out_moves_the_idle_ones(moving: tuple[Moving, RedisServer]) -> None:
    topology, after = moving
    with connect("", "threads", 2) as pool:
        assert _ports(pool) == {topology.server.port}
        ask(topology.server, "REPLICAOF", "127.0.0.1", after.port)
        topology.server = after
        with pytest.raises(PrimaryAway):
            pool.set("key", 1)
        pool.set("key", 1)
        assert _ports(pool) == {after.port}


def _ports(pool: redis.Redis) -> set[int]:
    """Where both of its connections go."""
    made = [pool.connection_pool.get_connection() for _ in range(2)]
    for one in made:
        pool.connection_pool.release(one)
    return {one.port for one in made}


def reason(url: str) -> str:
    with pytest.raises(StartupError) as raised:
        check_reachable(url)
    return raised.value.message


async def test_what_is_wrong_is_told_in_one_line(sentinels: SentinelSet, cluster: ClusterSet) -> None:
    seeds = sentinels.url.removeprefix("redis+sentinel://").partition("/")[0]
    assert "the sentinels know no service 'other'" in reason(f"redis+sentinel://{seeds}/other")
    assert "no sentinel of redis_url can be reached" in reason("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster")
    assert "no cluster node of redis_url can be reached" in reason("redis+cluster://127.0.0.1:1")
    dead = connect_async("redis+sentinel://127.0.0.1:1/mymaster", "test", "")
    with pytest.raises(TRANSPORT_ERRORS) as raised:
        await dead.ping()
    assert explain(raised.value) == "no sentinel of redis_url can be reached"
    await dead.aclose()
    with RedisServer(requirepass="right") as server:
        for login in ("", ":wrong@", "user:wrong@"):
            told = reason(f"redis+cluster://{login}127.0.0.1:{server.port}")
            assert "refuses the password or user" in told
            assert "wrong" not in told
        assert "a server that is no cluster node" in reason(f"redis+cluster://:right@127.0.0.1:{server.port}")
        assert "a server that is no sentinel" in reason(f"redis+sentinel://:right@127.0.0.1:{server.port}/mymaster")
    other = next(server for server in cluster.running if server is not cluster.slot_owner(KEYS.prefix))
    with pytest.raises(redis.ResponseError) as moved:
        ask(other, "GET", KEYS.prefix)
    assert "redis_url must begin with redis+cluster://" in explain(moved.value)


def test_a_black_hole_among_the_seeds_costs_a_second_at_most(sentinels: SentinelSet) -> None:
    seeds = sentinels.url.removeprefix("redis+sentinel://")
    with socket.create_server(("127.0.0.1", 0)) as mute:  # connections are made, and nobody ever answers
        topology = parsed(f"redis+sentinel://127.0.0.1:{mute.getsockname()[1]},{seeds}")
        started = time.monotonic()
        assert topology.primary()[1] == sentinels.slot_owner("").port
        assert time.monotonic() - started < 1.0


def parsed(url: str, slot_key: str = "key") -> Any:
    topology = topology_of(url, slot_key)
    assert topology
    return topology


def test_urls_of_a_single_server_are_left_alone() -> None:
    for url in ("redis://h:1,h:2/0", "rediss://h", "unix:///run/redis.sock", "http://h"):
        assert topology_of(url, "key") is None


def test_urls_are_understood() -> None:
    url = parsed("redis+sentinel://us%40er:p%2Fa%3As%40s@one:1,two/my%20master/3?ssl_ca_certs=/ca.pem")
    options = redis.connection.parse_url(url.url)
    expected = {
        "username": "us@er",
        "password": "p/a:s@s",
        "host": "one",
        "port": 1,
        "db": 3,
        "ssl_ca_certs": "/ca.pem",
    }
    assert options == expected
    assert (url._seeds, url._service, url.tls) == (["one:1", "two:26379"], "my master", False)
    url = parsed("rediss+cluster://:pass@[::1]:7000,[fe80::2],ten.example:1")
    options = redis.connection.parse_url(url.url)
    assert options == {"host": "::1", "port": 7000, "password": "pass", "db": 0}
    assert (url._seeds, url.tls) == (["[::1]:7000", "[fe80::2]:6379", "ten.example:1"], True)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one:1",
        "redis+sentinel://one:1/",
        "redis+sentinel://one:1/service/zero",
        "redis+sentinel:///service",
        "redis+sentinel://one:port/service",
        "redis+sentinel://one:1,,two:2/service",
        "redis+sentinel://:pa/ss@one:1/service",
        "redis+cluster://one:1/2",
        "redis+cluster://::1:7000",
        "redis+ring://one:1",
    ],
)
def test_a_wrong_url_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(StartupError, match="redis_url is no address of a Redis: ") as raised:
        connect(url, "test", 1)
    assert "pa/ss" not in raised.value.message
    with pytest.raises(StartupError):
        connect_async(url, "test", "key")


@pytest.mark.parametrize("url", ["rediss+sentinel://one:1/service", "rediss+cluster://one:1"])
async def test_tls_is_spoken_to_the_primary(url: str) -> None:
    with connect(url, "test", 1) as client:
        assert client.connection_pool.connection_class is connection._FollowingTls
    asynchronous = connect_async(url, "test", "key")
    assert issubclass(asynchronous.connection_pool.connection_class, connection._AsyncFollowingTls)
    await asynchronous.aclose()
