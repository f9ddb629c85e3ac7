"""Redis behind TLS, with a user that may do no more than SECURITY.md says: the whole service runs, and nobody else gets in.

The bundled server is built without TLS: a proxy speaks it in its place, and the client's side is the real one.
"""

import asyncio
import re
import shlex
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import redis
import trustme
from proxies import Proxy
from stacks import Stack
from waiting import wait_until

from common.connection import TRANSPORT_ERRORS, connect, connect_async, explain, look_at_server
from deploy.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
OURS = "/v1/fill-mask"
TEXT = "今天[MASK]气很好"


def documented_user() -> list[str]:
    """The words after ACL SETUSER, as they stand in the document."""
    told = (ROOT / "SECURITY.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"ACL SETUSER (fillmask .*)", told)
    return shlex.split(line)


class Locked(NamedTuple):
    server: RedisServer
    port: int
    ca: Path

    @property
    def address(self) -> str:
        return f"rediss://fillmask:PASSWORD@127.0.0.1:{self.port}/0"

    @property
    def url(self) -> str:
        return f"{self.address}?ssl_ca_certs={self.ca}"


def certificate(ca: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(host).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def locked(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    ca = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    with RedisServer() as server, Proxy(server.port, certificate(authority, "127.0.0.1")) as proxy:
        with redis.Redis(port=server.port) as client:
            client.execute_command("ACL", "SETUSER", *documented_user())
        yield Locked(server, proxy.port, ca)


def test_the_whole_service_runs_as_this_user(bert: Path, locked: Locked) -> None:
    """Rate limit, a worker that dies and one that takes its place included. Redis logs each command that it refused."""
    options = ("--engine", "echo", "--redis-url", locked.url, "--rate-limit", "1000/minute")
    with Stack(bert, *options) as stack:
        response = stack.post(OURS, {"texts": [TEXT] * 3})
        assert response.status_code == 200, response.text
        assert "ratelimit" in response.headers
        (worker,) = stack.processes("worker")
        worker.kill()
        psutil.wait_procs([worker], timeout=10)
        wait_until(lambda: stack.post(OURS, {"texts": [TEXT]}).status_code == 200)
    with redis.Redis(port=locked.server.port) as client:
        clients = {entry["user"] for entry in client.client_list() if entry["name"].startswith("fillmask")}
        refused = [(entry["object"], entry["client-info"]["name"]) for entry in client.acl_log()]
    assert clients <= {"fillmask"}
    assert not refused


FORBIDDEN = """
FLUSHALL; FLUSHDB; CONFIG GET requirepass; KEYS *; ACL LIST; SHUTDOWN; SCRIPT FLUSH; CLIENT LIST; MONITOR; MODULE LIST; SAVE
REPLICAOF 127.0.0.1 1; GET theirs; SET theirs 1; EVAL return(redis.call('get','theirs')) 1 theirs
EVAL return(redis.call('flushall')) 0
"""


@pytest.mark.parametrize("command", [command.strip() for command in re.split("[;\n]", FORBIDDEN.strip())])
def test_this_user_may_do_nothing_else(locked: Locked, command: str) -> None:
    with connect(locked.url, "test", connections=1) as client:
        with pytest.raises(redis.ResponseError, match=r"(?i)permission|ACL") as raised:
            client.execute_command(*command.split())
        if isinstance(raised.value, redis.exceptions.NoPermissionError):
            assert "SECURITY.md" in explain(raised.value)


def away(url: str) -> str:
    """Why nothing can be had there."""
    with pytest.raises(TRANSPORT_ERRORS) as raised:
        look_at_server(url)
    return explain(raised.value)


def away_from_a_front_end(url: str) -> str:
    async def ask() -> str:
        client = connect_async(url, "test", "")
        with pytest.raises(TRANSPORT_ERRORS) as raised:
            await client.execute_command("PING")
        return explain(raised.value)

    return asyncio.run(ask())


@pytest.mark.parametrize("reason_of", [away, away_from_a_front_end])
def test_an_authority_that_nobody_knows_is_not_believed(locked: Locked, reason_of: Callable[[str], str]) -> None:
    assert (
        reason_of(locked.address) == "the certificate of Redis is not trusted: unable to get local issuer certificate"
    )


def test_a_certificate_of_another_host_is_not_believed(authority: trustme.CA, locked: Locked) -> None:
    with Proxy(locked.server.port, certificate(authority, "redis.example.org")) as proxy:
        assert away(locked.url.replace(str(locked.port), str(proxy.port))).startswith(
            "the certificate of Redis is not trusted: "
        )


def test_a_unix_socket_will_do(bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(unixsocket=str(path)), Stack(bert, "--engine", "echo", "--redis-url", f"unix://{path}") as stack:
        assert stack.post(OURS, {"texts": [TEXT]}).status_code == 200


def test_no_password_and_no_tls_get_nowhere(locked: Locked) -> None:
    assert away(locked.url.replace("PASSWORD", "wrong")) == "Redis refuses the password or user of redis_url"
    assert away(f"redis://fillmask:PASSWORD@127.0.0.1:{locked.port}/0") in (
        "Redis cannot be reached",
        "Redis does not answer",
    )
