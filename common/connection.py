"""Redis clients as this project needs them, and what their errors mean. It knows no keys and no messages.

redis-py's own defaults do not fit blocking reads: a 5 s socket time-out cuts BLOCK short, and ten silent retries turn a dead
server into a minute of hanging. So: a read that blocks at most BLOCK_MS, a socket time-out well above it, no retries inside
the client, and one jittered loop of our own around each long-lived task. With Sentinel or Cluster a connection goes to whoever is
the primary at that moment (common/topology.py), and is given up as soon as it finds itself elsewhere: the next try asks again.
"""

import asyncio
import random
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio import connection as asynchronous
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from common.errors import StartupError
from common.topology import PrimaryAway, Topology, away, topology_of

BLOCK_MS = 1_000
"""Longest a blocking read stays on the server."""

SOCKET_TIMEOUT_S = 3.0
"""Without an answer for so long the connection is given up: BLOCK_MS plus a slow network."""

CONNECT_TIMEOUT_S = 1.0

OLDEST_SERVER = {"redis": (7, 0), "valkey": (7, 2)}

_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
"""Options of a url that name a file."""

REFUSALS = (redis.ResponseError,)
"""The server is there, and refuses: out of memory, a read-only replica, no permission."""

TRANSPORT_ERRORS = (redis.RedisError, OSError, TimeoutError)
"""What a call on these clients raises when the server is away, refuses, or answers nonsense."""


@contextmanager
def _address() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StartupError(f"redis_url is no address of a Redis: {error}") from None


@_address()
def connect_async(url: str, name: str, slot_key: str) -> redis.asyncio.Redis:
    """One dedicated connection for a task that awaits its answers one by one.

    In a Cluster it is the server of `slot_key`'s slot: any key of the shard will do. Raises StartupError for a wrong url.
    """
    topology = topology_of(url, slot_key)
    _check_database(url)
    options = _options(url)
    if topology:
        options |= {"topology": topology, "connection_class": _AsyncFollowingTls if topology.tls else _AsyncFollowing}
        url = topology.url
    client: redis.asyncio.Redis = _checked(
        redis.asyncio.Redis.from_url(
            url, client_name=name, single_connection_client=True, retry=AsyncRetry(NoBackoff(), 0), **options
        )
    )
    kind = client.connection_pool.connection_class  # the scheme of the url chose it: TCP, TLS or a Unix socket
    client.connection_pool.connection_class = type(kind.__name__, (_LostUnderUvloop, kind), {})
    return client


@_address()
def connect(url: str, name: str, connections: int, slot_key: str = "") -> redis.Redis:
    """A pool of at most `connections` for the threads of one worker, each of which uses one at a time. Else as above."""
    topology = topology_of(url, slot_key)
    _check_database(url)
    options = _options(url)
    if topology:
        options |= {"topology": topology, "connection_class": _FollowingTls if topology.tls else _Following}
        url = topology.url
    client: redis.Redis = _checked(
        redis.Redis.from_url(url, client_name=name, max_connections=connections, retry=Retry(NoBackoff(), 0), **options)
    )
    return client


class _LostUnderUvloop(asynchronous.AbstractConnection):
    """uvloop answers a write to a connection that the server has just reset with RuntimeError, where asyncio has an OSError."""

    async def send_packed_command(self, *arguments: Any, **options: Any) -> None:
        try:
            await super().send_packed_command(*arguments, **options)
        except RuntimeError as error:
            raise redis.ConnectionError("the server closed the connection") from error


class _Following(Connection):
    """Connects to whoever is the primary then, and leaves one that is it no more."""

    def __init__(self, topology: Topology, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._topology = topology

    def connect(self) -> None:
        """The pool calls this whenever it gives the connection away: each one to a frozen primary would cost a time-out."""
        if self._sock and self._losses != self._topology.losses:
            super().disconnect()
        super().connect()  # type: ignore[no-untyped-call]

    def disconnect(self, *arguments: Any, **options: Any) -> None:
        self._topology.losses += 1
        super().disconnect(*arguments, **options)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:  # redis-py's one place for it: of the first and of all later connects
        self._losses = self._topology.losses
        self.host, self.port = self._topology.primary()
        return super()._connect()  # type: ignore[no-untyped-call]

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().read_response(*arguments, **options)
        except redis.ResponseError as error:
            primary_away = away(error)
            if primary_away is None:
                raise
            self.disconnect()
            raise primary_away from error


class _FollowingTls(_Following, SSLConnection):
    pass


class _AsyncFollowing(asynchronous.Connection):
    """The same for asyncio. A thread asks: that is rare, bounded, and saves a second copy of all the questions."""

    def __init__(self, topology: Topology, **options: Any) -> None:
        super().__init__(**options)
        self._topology = topology

    async def _connect(self) -> None:
        self.host, self.port = await asyncio.to_thread(self._topology.primary)
        await super()._connect()  # type: ignore[no-untyped-call]

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*arguments, **options)
        except redis.ResponseError as error:
            primary_away = away(error)
            if primary_away is None:
                raise
            await self.disconnect(nowait=True)
            raise primary_away from error


class _AsyncFollowingTls(_AsyncFollowing, asynchronous.SSLConnection):
    pass


def _options(url: str) -> dict[str, Any]:
    options = {
        "protocol": 2,  # RESP2: no HELLO, no push messages between the answers
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 0,
    }
    return options if url.startswith("unix:") else options | {"socket_keepalive": True}


def backoff_s(first_s: float = 0.05, most_s: float = 1.0) -> Iterator[float]:
    """Waits between two tries, doubling up to `most_s`; jittered, so that a fleet does not come back in step."""
    wait_s = first_s
    while True:
        yield wait_s * random.uniform(0.5, 1.0)
        wait_s = min(2 * wait_s, most_s)


_REASONS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (redis.AuthenticationError, "Redis refuses the password or user of redis_url"),
    (
        redis.exceptions.NoPermissionError,
        "Redis refuses a command to the user of redis_url; SECURITY.md lists what it needs",
    ),
    (redis.exceptions.BusyLoadingError, "Redis is still loading its data"),
    (redis.exceptions.ReadOnlyError, "Redis is a read-only replica"),
    (redis.exceptions.OutOfMemoryError, "Redis is out of memory"),
    (redis.exceptions.MovedError, "Redis is a cluster: redis_url must begin with redis+cluster://"),
    ((redis.TimeoutError, TimeoutError), "Redis does not answer"),
    ((redis.ConnectionError, OSError), "Redis cannot be reached"),
)
"""The first that fits; the special ones are kinds of the general ones."""


def explain(error: BaseException) -> str:
    """One short sentence for a log line or a readiness reason."""
    for away_error in (error, error.__cause__):  # redis-py wraps what goes wrong in an asynchronous connect
        if isinstance(away_error, PrimaryAway):
            return str(away_error)
    if reason := _tls_trouble(error):
        return reason
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    if isinstance(error, redis.ResponseError):
        return f"Redis refuses: {str(error).split(' ', 1)[0]}"
    return f"Redis fails: {type(error).__name__}"


def _tls_trouble(error: BaseException | None) -> str:
    """What TLS has against the server; empty if that is not what is wrong. redis-py makes of it that there is no connection."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of Redis is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"Redis cannot be spoken to with TLS: {error.reason or 'the handshake failed'}"
        error = error.__cause__ or error.__context__
    return ""


def look_at_server(url: str, slot_key: str = "") -> list[str]:
    """Warnings about the server that answers there. Raises StartupError if it cannot be used, TRANSPORT_ERRORS if it is away."""
    with connect(url, "fillmask-check", connections=1, slot_key=slot_key) as client:
        return check_server(client.info())


def _check_database(url: str) -> None:
    """redis-py passes over what is no number, and uses database 0."""
    parts = urlsplit(url)
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError("what follows the host and a slash is the number of a database")


def _checked(client: Any) -> Any:
    """A url may bring options of its own. Refused are those that redis-py would only stumble over when it connects, and one
    that would cut every blocking read short."""
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        named = re.search(r"argument '(\w+)'", str(error))
        raise StartupError(f"redis_url has an option that there is not: {named[1] if named else 'unnamed'}") from None
    for option in _FILES & pool.connection_kwargs.keys():
        try:
            with open(pool.connection_kwargs[option], "rb"):
                pass
        except OSError as error:
            raise StartupError(f"the file that {option} in redis_url names: {error.strerror}") from None
    timeout_s = pool.connection_kwargs.get("socket_timeout")
    if timeout_s is not None and timeout_s <= BLOCK_MS / 1000:
        raise StartupError(
            f"redis_url asks for socket_timeout={timeout_s:g}; reads block for {BLOCK_MS} ms, so give it more"
        )
    return client


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
