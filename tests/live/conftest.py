"""A plain client of the server under test, to look at what is in Redis without the code that put it there."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from deploy.redis_server import RedisServer


@pytest.fixture
def keys(redis_server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield client
