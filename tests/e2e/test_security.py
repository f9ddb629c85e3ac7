"""API keys, rate limits, origins, headers: what is let in, what is not, and what is told of it. In real processes."""

import base64
import hashlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from huggingface_hub import InferenceClient
from stacks import Stack, front_end
from waiting import wait_until

from api.errors import error_types
from api.protocol import MAX_HEAD_BYTES
from api.security_headers import SECURITY_HEADERS
from deploy.redis_server import RedisServer

OURS = "/v1/fill-mask"
TEXT = "今天[MASK]气很好"
ORIGIN = "https://app.example.org"
FILL_ROUTES = {
    OURS: {"texts": [TEXT]},
    "/predict": {"text": TEXT},
    "/fill": {"texts": [TEXT]},
    "/": {"inputs": TEXT},
    "/models/bert": {"inputs": TEXT},
    "/v1/models/bert:predict": {"instances": [TEXT]},
    "/v2/models/bert/infer": {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}]},
}


def new_key(name: str, file: Path) -> str:
    """As an operator makes one: the line is appended to the file, the key is what the terminal shows."""
    with file.open("a") as keys:
        command = [sys.executable, "-m", "deploy.cli", "key", name]
        told = subprocess.run(command, stdout=keys, stderr=subprocess.PIPE, text=True, check=True).stderr
    (key,) = re.findall(r"fm_[\w-]{43}", told)
    return str(key)


class Guarded(NamedTuple):
    """Two front-ends with keys, a limit of six texts an hour for each, and one worker."""

    stack: Stack
    sibling: httpx.Client
    keys_file: Path
    keys: dict[str, str]
    log: Path

    def fill(self, name: str, texts: int = 1, through: httpx.Client | None = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[name]}"}
        return (through or self.stack.http).post(OURS, json={"texts": [TEXT] * texts, **more}, headers=headers)


@pytest.fixture(scope="module")
def guarded(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys"
    keys = {name: f"a key of {name}" for name in ("bob", "carol", "dave", "erin")}
    file.write_text("".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in keys.items()))
    keys["alice"] = new_key("alice", file)
    options = ("--api-keys-file", str(file), "--rate-limit", "6/hour", "--cors-origins", ORIGIN)
    with ExitStack() as stack:
        up = stack.enter_context(Stack(bert, "--engine", "echo", *options))
        with up.redis() as client:
            redis_url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}/0"
        log = folder / "log"
        sibling, _ = stack.enter_context(front_end(bert, redis_url, *options, "--log-format", "json", log=log))
        yield Guarded(up, sibling, file, keys, log)


def refused(response: httpx.Response, status: int, error_type: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    assert body["error_type"] == error_type
    return body


@pytest.mark.parametrize("path", FILL_ROUTES)
def test_no_key_no_answer(guarded: Guarded, path: str) -> None:
    response = guarded.stack.post(path, FILL_ROUTES[path])
    refused(response, 401, "no_api_key")
    assert response.headers["www-authenticate"] == 'Bearer realm="fillmask"'


@pytest.mark.parametrize("path", ["/info", "/status", "/v2", "/v1/models", "/nowhere", "/healthz/", "/web"])
def test_whatever_is_not_open_needs_one_too(guarded: Guarded, path: str) -> None:
    refused(guarded.stack.http.get(path), 401, "no_api_key")
    assert guarded.stack.http.request("POST", "/healthz").status_code == 401


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/health", "/metrics", "/openapi.json", "/docs", "/v2/health/live"]
)
def test_what_machines_and_readers_ask_is_open(guarded: Guarded, path: str) -> None:
    assert guarded.stack.http.get(path).status_code == 200


@pytest.mark.parametrize("key", ["", "wrong", "fm_" + "A" * 43, "\x80\xff", "k" * 8000])
def test_a_wrong_key_is_told_from_none_and_not_repeated(guarded: Guarded, key: str) -> None:
    presented = [(b"authorization", f"Bearer {key}".strip().encode("latin-1")), (b"content-type", b"application/json")]
    response = guarded.stack.http.post(OURS, content=json.dumps({"texts": [TEXT]}), headers=presented)
    refused(response, 401, "bad_api_key" if key else "no_api_key")
    assert ('error="invalid_token"' in response.headers["www-authenticate"]) == bool(key)
    assert not key or key not in response.text


def test_a_key_opens_in_either_header_and_for_hugging_face(guarded: Guarded) -> None:
    assert guarded.fill("dave").status_code == 200
    response = guarded.stack.post(OURS, {"texts": [TEXT]}, **{"x-api-key": guarded.keys["dave"]})
    assert response.status_code == 200
    client = InferenceClient(f"http://127.0.0.1:{guarded.stack.port}", token=guarded.keys["dave"])
    assert len(client.fill_mask(TEXT, top_k=2)) == 2


def test_a_key_is_added_and_taken_back_without_a_restart(guarded: Guarded) -> None:
    def let_in(key: str) -> Callable[[], bool]:
        return lambda: guarded.stack.http.get("/info", headers={"x-api-key": key}).status_code == 200

    before = guarded.keys_file.read_text()
    key = new_key("mallory", guarded.keys_file)
    wait_until(let_in(key))
    guarded.keys_file.write_text(before)
    wait_until(lambda: not let_in(key)())
    assert let_in(guarded.keys["alice"])()


def test_logs_name_who_asked_and_hold_neither_key_nor_hash(guarded: Guarded) -> None:
    assert guarded.fill("erin", through=guarded.sibling).status_code == 200
    refused(guarded.sibling.post(OURS, headers={"x-api-key": "fm_wrong"}), 401, "bad_api_key")
    lines = wait_until(
        lambda: [json.loads(line) for line in guarded.log.read_text().splitlines() if "bad_api_key" in line]
    )
    assert lines[0]["status"] == 401
    told = guarded.log.read_text()
    assert '"caller":"erin"' in told
    assert "fm_" not in told
    for name, key in guarded.keys.items():
        assert key not in told, name
        assert hashlib.sha256(key.encode()).hexdigest() not in told, name


def test_a_share_is_counted_over_all_front_ends_and_in_texts(guarded: Guarded) -> None:
    first = guarded.fill("alice", 4)
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"texts";q=6;w=3600'
    assert re.fullmatch(r'"texts";r=2;t=\d+', first.headers["ratelimit"])
    second = guarded.fill("alice", 2, through=guarded.sibling)
    assert second.status_code == 200
    assert second.headers["ratelimit"].startswith('"texts";r=0;')
    third = guarded.fill("alice")
    body = refused(third, 429, "rate_limited")
    assert body["details"] == {"limit": 6, "window_s": 3600, "remaining": 0}
    assert third.headers["ratelimit"] == f'"texts";r=0;t={third.headers["retry-after"]}'
    assert 500 < int(third.headers["retry-after"]) <= 3600 / 6
    assert guarded.fill("bob").status_code == 200, "another caller's share is its own"


def test_what_is_refused_is_not_counted(guarded: Guarded) -> None:
    left = int(re.findall(r"r=(\d+)", guarded.fill("bob").headers["ratelimit"])[0])
    assert guarded.fill("bob", left + 1).status_code == 429
    assert guarded.fill("bob", left).status_code == 200


def test_more_than_the_share_could_ever_be_is_no_matter_of_time(guarded: Guarded) -> None:
    response = guarded.fill("carol", 7)
    assert refused(response, 422, "too_many_texts")["details"] == {"found": 7, "limit": 6}
    assert "retry-after" not in response.headers


def test_whole_words_cost_what_the_model_is_asked(guarded: Guarded) -> None:
    """One text, two targets of two tokens: the first step is shared."""
    response = guarded.fill("carol", targets=["天气", "心情"], score_targets="pseudo_likelihood")
    assert response.status_code == 200
    assert response.headers["ratelimit"].startswith('"texts";r=3;'), response.headers["ratelimit"]


def test_without_keys_an_address_is_a_caller_and_a_trusted_proxy_tells_it(bert: Path, guarded: Guarded) -> None:
    with guarded.stack.redis() as client:
        redis_url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}/0"
    options = ("--rate-limit", "1/day", "--trusted-proxies", "127.0.0.0/8")
    with front_end(bert, redis_url, *options) as (http, _):

        def ask(*chain: str) -> int:
            forwarded = {"x-forwarded-for": ", ".join(chain)} if chain else {}
            return http.post(OURS, json={"texts": [TEXT]}, headers=forwarded).status_code

        wait_until(lambda: http.get("/readyz").status_code == 200)
        assert [ask("203.0.113.7"), ask("203.0.113.7")] == [200, 429]
        assert ask("198.51.100.1", "203.0.113.7") == 429, "what the caller itself wrote is not believed"
        assert [ask("2001:db8::1"), ask("2001:db8::2"), ask("2001:db8:0:1::1")] == [200, 429, 200]
        assert [ask(), ask()] == [200, 429]
        with guarded.stack.redis() as client:
            rates = list(client.scan_iter("fillmask:*:rate:*"))
            assert rates
            assert all(0 < client.ttl(key) <= 86400 for key in rates)


def test_without_redis_the_limit_stands_in_nobodys_way(bert: Path) -> None:
    """The answer is the one that would come without a limit: 503, which says why."""
    with RedisServer() as server, front_end(bert, server.url, "--rate-limit", "1/day") as (http, _):
        server.kill()
        wait_until(lambda: "cannot be reached" in http.get("/readyz").text)
        for _ in range(3):
            response = http.post(OURS, json={"texts": [TEXT]})
            refused(response, 503, "transport_away")
            assert "ratelimit" not in response.headers


def preflight(http: httpx.Client, origin: str) -> httpx.Response:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    return http.options(OURS, headers={"origin": origin, **asked})


def test_pages_of_that_origin_may_ask_and_no_others(guarded: Guarded) -> None:
    http = guarded.stack.http
    assert preflight(http, ORIGIN).headers["access-control-allow-origin"] == ORIGIN, "a preflight brings no key"
    refusal = http.post(OURS, headers={"origin": ORIGIN})
    assert refusal.headers["access-control-allow-origin"] == ORIGIN, "a page must be able to read what was wrong"
    readable = refusal.headers["access-control-expose-headers"].lower().split(", ")
    assert {"retry-after", "x-request-id", "x-fillmask-inference-ms", "x-fillmask-warnings"} < set(readable)
    for other in ("https://evil.example.org", "http://app.example.org", "null", f"{ORIGIN}.evil.org"):
        assert preflight(http, other).status_code == 400
        answer = http.get("/healthz", headers={"origin": other})
        assert "access-control-allow-origin" not in answer.headers
        assert "access-control-allow-credentials" not in answer.headers


def test_by_default_no_page_of_another_origin_may_ask(echo_stack: Stack) -> None:
    assert preflight(echo_stack.http, ORIGIN).status_code == 405
    answer = echo_stack.http.get("/healthz", headers={"origin": ORIGIN})
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/nowhere", 404),
        ("GET", OURS, 405),
        ("POST", OURS, 415),
        ("GET", "/metrics", 200),
    ],
)
def test_every_answer_tells_browsers_how_little_they_may_do(
    echo_stack: Stack, method: str, path: str, status: int
) -> None:
    response = echo_stack.http.request(method, path)
    assert response.status_code == status
    assert SECURITY_HEADERS.items() <= dict(response.headers).items()


def test_the_documentation_says_whether_a_key_is_needed(guarded: Guarded, echo_stack: Stack) -> None:
    told = [stack.http.get("/openapi.json").json() for stack in (guarded.stack, echo_stack)]
    assert [document["paths"][OURS]["post"].get("security") for document in told] == [[{"HTTPBearer": []}], None]


def test_the_pages_own_policy_stands(echo_stack: Stack) -> None:
    (policy,) = echo_stack.http.get("/").headers.get_list("content-security-policy")
    assert "script-src 'self'" in policy


def test_refusals_of_callers_tell_it_too(guarded: Guarded) -> None:
    assert SECURITY_HEADERS.items() <= dict(guarded.stack.http.get("/info").headers).items()


def test_the_documentation_runs_its_own_script_and_no_other(echo_stack: Stack) -> None:
    page = echo_stack.http.get("/docs")
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    policy = page.headers.get_list("content-security-policy")
    assert len(policy) == 1
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy[0]
    (scripts,) = re.findall(r"script-src ([^;]*)", policy[0])
    assert "unsafe" not in scripts
    for source in re.findall(r'(?:src|href)="(https?://[^"]+)"', page.text):
        assert source.startswith(scripts.split()[0]), source


def head_of(size: int, kind: str) -> bytes:
    lines = {
        "one header": b"a: " + b"x" * size + b"\r\n",
        "many headers": b"".join(b"h%d: %s\r\n" % (number, b"x" * 90) for number in range(size // 100)),
    }
    line = b"GET /healthz?" + b"x" * size if kind == "request line" else b"GET /healthz"
    return line + b" HTTP/1.1\r\nhost: here\r\n" + lines.get(kind, b"") + b"\r\n"


@pytest.mark.parametrize("kind", ["one header", "many headers", "request line"])
@pytest.mark.parametrize(("size", "status"), [(50_000, b"200"), (80_000, b"431"), (30_000_000, b"431")])
def test_headers_have_an_end(echo_stack: Stack, kind: str, size: int, status: bytes) -> None:
    """The largest are not even read: memory stays. A reset may overtake the answer to those, as it does with any server."""
    (server,) = echo_stack.processes("front-end")
    assert MAX_HEAD_BYTES == 65536
    before = server.memory_info().rss
    answer = b""
    with socket.create_connection(("127.0.0.1", echo_stack.port), timeout=10) as connection:
        try:
            connection.sendall(head_of(size, kind))
        except ConnectionError:
            assert size > 1_000_000
        try:
            answer = connection.recv(65536)
        except ConnectionError:
            assert size > 1_000_000
    assert not answer or answer.startswith(b"HTTP/1.1 " + status)
    assert not answer or b"\r\nx-content-type-options: nosniff\r\n" in answer
    assert answer or size > 1_000_000
    assert server.memory_info().rss - before < 8 << 20
    assert echo_stack.http.get("/healthz").status_code == 200


def test_every_refusal_is_counted_from_the_start(echo_stack: Stack) -> None:
    counted = re.findall(r'fillmask_refused_total{error_type="(\w+)"}', echo_stack.http.get("/metrics").text)
    assert set(error_types()) <= set(counted)
    assert {"no_api_key", "rate_limited", "overloaded"} <= set(counted)
