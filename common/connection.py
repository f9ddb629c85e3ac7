"""Redis clients as this project needs them, and what their errors mean. It knows no keys and no messages.

redis-py's own defaults do not fit blocking reads: a 5 s socket time-out cuts BLOCK short, and ten silent retries turn a dead
server into a minute of hanging. So: a read that blocks at most BLOCK_MS, a socket time-out well above it, no retries inside
the client, and one jittered loop of our own around each long-lived task.
"""

import random
from collections.abc import Iterator
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from common.errors import StartupError

BLOCK_MS = 1_000
"""Longest a blocking read stays on the server."""

SOCKET_TIMEOUT_S = 3.0
"""Without an answer for so long the connection is given up: BLOCK_MS plus a slow network."""

CONNECT_TIMEOUT_S = 1.0

OLDEST_SERVER = {"redis": (7, 0), "valkey": (7, 2)}

REFUSALS = (redis.ResponseError,)
"""The server is there, and refuses: out of memory, a read-only replica, no permission."""

TRANSPORT_ERRORS = (redis.RedisError, OSError, TimeoutError)
"""What a call on these clients raises when the server is away, refuses, or answers nonsense."""


def connect_async(url: str, name: str) -> redis.asyncio.Redis:
    """One dedicated connection for a task that awaits its answers one by one."""
    return redis.asyncio.Redis.from_url(
        url, client_name=name, single_connection_client=True, retry=AsyncRetry(NoBackoff(), 0), **_options()
    )


def connect(url: str, name: str, connections: int) -> redis.Redis:
    """A pool of at most `connections` for the threads of one worker, each of which uses one at a time."""
    return redis.Redis.from_url(
        url, client_name=name, max_connections=connections, retry=Retry(NoBackoff(), 0), **_options()
    )


def _options() -> dict[str, Any]:
    return {
        "protocol": 2,  # RESP2: no HELLO, no push messages between the answers
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": 0,
    }


def backoff_s(first_s: float = 0.05, most_s: float = 1.0) -> Iterator[float]:
    """Waits between two tries, doubling up to `most_s`; jittered, so that a fleet does not come back in step."""
    wait_s = first_s
    while True:
        yield wait_s * random.uniform(0.5, 1.0)
        wait_s = min(2 * wait_s, most_s)


def explain(error: BaseException) -> str:
    """One short sentence for a log line or a readiness reason."""
    match error:
        case redis.AuthenticationError():
            return "Redis refuses the password or user of redis_url"
        case redis.exceptions.BusyLoadingError():
            return "Redis is still loading its data"
        case redis.exceptions.ReadOnlyError():
            return "Redis is a read-only replica"
        case redis.exceptions.OutOfMemoryError():
            return "Redis is out of memory"
        case redis.TimeoutError() | TimeoutError():
            return "Redis does not answer"
        case redis.ConnectionError() | OSError():
            return "Redis cannot be reached"
        case redis.ResponseError():
            return f"Redis refuses: {str(error).split(' ', 1)[0]}"
    return f"Redis fails: {type(error).__name__}"


def check_server(info: dict[str, Any]) -> list[str]:
    """Warnings about a server from its INFO. Raises StartupError if it is too old for the commands used here."""
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get("valkey_version") or info["redis_version"])
    oldest = OLDEST_SERVER[kind]
    if tuple(int(part) for part in version.split(".")[:2]) < oldest:
        raise StartupError(
            f"the server is {kind} {version}; needed is Redis >= 7.0 or Valkey >= 7.2 (stream commands are missing)"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and int(info.get("maxmemory", 0)):
        return [f"maxmemory-policy is {policy}: under pressure Redis may evict waiting requests; set noeviction"]
    return []
