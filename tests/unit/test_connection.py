"""common/connection.py: which servers will do, and what its errors are called."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
import uvloop

from common.connection import TRANSPORT_ERRORS, backoff_s, check_server, connect, connect_async, explain
from common.errors import StartupError


@pytest.mark.parametrize(
    "info",
    [
        {"redis_version": "6.2.14"},
        {"redis_version": "7.2.4", "valkey_version": "7.0.1"},
    ],
    ids=["Redis 6.2", "Valkey 7.0"],
)
def test_a_server_that_is_too_old_is_refused(info: dict[str, Any]) -> None:
    with pytest.raises(StartupError, match=r"needed is Redis >= 7\.0 or Valkey >= 7\.2"):
        check_server(info)


@pytest.mark.parametrize("info", [{"redis_version": "7.0.15"}, {"redis_version": "7.2.4", "valkey_version": "9.1.2"}])
def test_a_server_that_will_do(info: dict[str, Any]) -> None:
    assert check_server(info | {"maxmemory_policy": "noeviction"}) == []


def test_an_evicting_server_is_warned_of_only_if_it_can_evict() -> None:
    info = {"redis_version": "7.2.0", "maxmemory_policy": "allkeys-lru"}
    assert check_server(info | {"maxmemory": 0}) == []
    (warning,) = check_server(info | {"maxmemory": 1 << 30})
    assert "noeviction" in warning


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (redis.AuthenticationError("WRONGPASS secret"), "Redis refuses the password or user of redis_url"),
        (redis.exceptions.BusyLoadingError("LOADING"), "Redis is still loading its data"),
        (redis.exceptions.ReadOnlyError("READONLY"), "Redis is a read-only replica"),
        (redis.exceptions.OutOfMemoryError("OOM"), "Redis is out of memory"),
        (redis.TimeoutError("Timeout reading from socket"), "Redis does not answer"),
        (redis.ConnectionError("Error 111 connecting to secret-host"), "Redis cannot be reached"),
        (redis.ResponseError("NOPERM this user has no permissions"), "Redis refuses: NOPERM"),
    ],
)
def test_errors_are_told_in_one_short_sentence(error: Exception, told: str) -> None:
    assert explain(error) == told


def test_waits_double_up_to_a_bound_and_never_fall_in_step() -> None:
    waits = [wait_s for wait_s, _ in zip(backoff_s(0.1, 1.0), range(20), strict=False)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(0.5 <= wait_s <= 1.0 for wait_s in waits[5:])
    assert len(set(waits)) == len(waits)


@pytest.mark.parametrize("make", [lambda url: connect(url, "test", 1), lambda url: connect_async(url, "test", "")])
def test_r08_a_time_out_that_would_cut_every_blocking_read_short_is_refused(make: Any) -> None:
    with pytest.raises(StartupError, match="socket_timeout"):
        make("redis://127.0.0.1/0?socket_timeout=1")
    make("redis://127.0.0.1/0?socket_timeout=4")


@pytest.mark.parametrize("make", [lambda url: connect(url, "test", 1), lambda url: connect_async(url, "test", "")])
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://:secret@host/0?colour=blue", "an option that there is not: colour"),
        ("redis+sentinel://:secret@host/mymaster/0?colour=blue", "an option that there is not: colour"),
        ("redis://:secret@host/abc", "the number of a database"),
        ("redis://:secret@host/0/1", "the number of a database"),
        ("redis://:secret@host?db=abc", "redis_url is no address"),
        ("rediss://:secret@host/0?ssl_ca_certs=/nowhere/ca.pem", "ssl_ca_certs in redis_url names: No such file"),
        ("http://:secret@host/0", "redis_url is no address"),
    ],
)
def test_a_wrong_address_is_told_at_the_start_and_never_the_password(make: Any, url: str, told: str) -> None:
    with pytest.raises(StartupError, match=told) as raised:
        make(url)
    assert "secret" not in raised.value.message


@pytest.mark.parametrize("url", ["redis://host", "redis://host/", "redis://host/15", "unix:///run/redis.sock?db=3"])
def test_an_address_that_will_do(url: str) -> None:
    connect(url, "test", 1)


@pytest.fixture
def resetting_port() -> Iterator[int]:
    """A server that accepts every connection and resets it at once, as one that is dying does."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_connection_reset_while_it_is_made_is_a_transport_error_under_uvloop_too(resetting_port: int) -> None:
    """About 6 of 100 such connections met uvloop's RuntimeError, and one of them ended a front-end."""

    async def connect_often() -> None:
        client = connect_async(f"redis://127.0.0.1:{resetting_port}/0", "test", "")
        for _ in range(500):
            with suppress(*TRANSPORT_ERRORS):
                await client.execute_command("PING")
        await client.aclose()

    uvloop.run(connect_often())
