"""The rate limiter on a real Redis: exact under concurrency, and in nobody's way when Redis is away or slow."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proxies import Proxy

from api.rate_limits import Allowance, RateLimiter
from api.settings import Rate
from common.keys import Keys
from deploy.redis_server import RedisServer

KEYS = Keys("test")


@asynccontextmanager
async def limiter_at(url: str, rate: str) -> AsyncIterator[RateLimiter]:
    limiter = RateLimiter(url, KEYS, Rate.parse(rate))
    try:
        yield limiter
    finally:
        await limiter.close()


async def counted(limiter: RateLimiter, caller: str, texts: int) -> Allowance:
    """As soon as it is counted: on a busy machine the first connection may come too late for the first request."""
    async with asyncio.timeout(10):
        while (allowance := await limiter.take(caller, texts)) is None:
            await asyncio.sleep(0.05)
    return allowance


async def test_no_more_than_the_quota_whoever_counts(redis_server: RedisServer) -> None:
    async with limiter_at(redis_server.url, "20/hour") as one, limiter_at(redis_server.url, "20/hour") as other:
        for limiter in (one, other):
            await counted(limiter, "somebody else", 1)
        taken = await asyncio.gather(*[limiter.take("alice", 1) for limiter in (one, other) for _ in range(20)])
        assert None not in taken
        assert sum(allowance.granted for allowance in taken if allowance) == 20
        refused = await counted(one, "alice", 1)
        assert not refused.granted
        assert refused.remaining == 0
        assert 3600 / 20 - 60 < refused.reset_s <= 3600 / 20


async def test_after_the_time_that_was_told_it_fits(redis_server: RedisServer) -> None:
    async with limiter_at(redis_server.url, "2/second") as limiter:
        assert (await counted(limiter, "alice", 2)).granted
        refused = await counted(limiter, "alice", 2)
        assert not refused.granted
        await asyncio.sleep(refused.reset_s)
        assert (await counted(limiter, "alice", 2)).granted


async def test_a_redis_that_swallows_everything_holds_nobody_up(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The bound is a tenth of a second; the client's own, of a second here and three by default, would hold everybody up."""
    caplog.set_level(logging.WARNING)  # a library of the engines' tests leaves pytest's own handler at ERROR
    with Proxy(redis_server.port) as proxy:
        async with limiter_at(f"{proxy.url}?socket_timeout=1.1", "20/hour") as limiter:
            assert (await counted(limiter, "alice", 1)).remaining == 19
            proxy.black_hole = True
            async with asyncio.timeout(2):
                assert await asyncio.gather(*[limiter.take("alice", 1) for _ in range(100)]) == [None] * 100
            assert len([record for record in caplog.records if "uncounted" in record.message]) == 1
            proxy.black_hole = False
            assert (await counted(limiter, "alice", 1)).granted


async def test_scripts_are_loaded_again_after_a_restart(redis_server: RedisServer) -> None:
    with RedisServer() as server:
        async with limiter_at(server.url, "20/hour") as limiter:
            assert (await counted(limiter, "alice", 5)).remaining == 15
            server.kill()
            assert await limiter.take("alice", 1) is None
            server.start()
            assert (await counted(limiter, "alice", 1)).remaining == 19


async def test_a_flood_does_not_wash_the_limit_away(redis_server: RedisServer) -> None:
    """Hundreds wait their turn, most of them for longer than the patience with a silent Redis, and all are counted."""
    with Proxy(redis_server.port) as proxy:
        async with limiter_at(proxy.url, "20/hour") as limiter:
            await counted(limiter, "somebody else", 1)
            proxy.delay_s = 0.01
            taken = await asyncio.gather(*[limiter.take("alice", 1) for _ in range(300)])
            assert None not in taken
            assert sum(allowance.granted for allowance in taken if allowance) == 20
