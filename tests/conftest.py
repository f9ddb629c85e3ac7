"""What several kinds of tests share: one real Redis-compatible server a session, empty for each test that asks for it."""

from collections.abc import Iterator

import pytest
import redis

from deploy.redis_server import RedisServer


@pytest.fixture(scope="session")
def session_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(session_server: RedisServer) -> Iterator[RedisServer]:
    """Empty at the start of the test; what the test leaves behind must have a time to live, or be the queue itself."""
    with redis.Redis.from_url(session_server.url) as client:
        client.flushall()
        yield session_server
        lasting = [key for key in client.keys("*") if client.ttl(key) == -1]
        unexpected = [key for key in lasting if not key.endswith((b":requests", b":epoch", b":dead"))]
        assert not unexpected, "keys that would stay for ever"
