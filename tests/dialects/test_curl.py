"""Every curl line of README.md runs as it is pasted, but for the port; and curl's other ways to send a body."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checkpoints import build_checkpoint
from stacks import Stack

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("curl ") and "127.0.0.1:8000" in line
]


def test_none_is_left_out() -> None:
    assert len(LINES) == len(re.findall(r"^curl ", README, re.MULTILINE)) >= 5


@pytest.mark.parametrize("line", LINES)
def test_it_runs(stack: Stack, line: str) -> None:
    here = line.replace("127.0.0.1:8000", f"127.0.0.1:{stack.port}")
    command = ["bash", "-c", f"{here} --fail-with-body"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "error" not in json.loads(ran.stdout)


def curl(stack: Stack, *arguments: str, body: bytes = b"") -> Any:
    command = ["curl", "-sS", "--max-time", "20", "-w", "\n%{http_code}", *arguments]
    at = [argument.replace("URL", f"http://127.0.0.1:{stack.port}") for argument in command]
    printed = subprocess.run(at, check=True, input=body, capture_output=True, timeout=30).stdout.decode()
    answer, _, status = printed.rpartition("\n")
    return int(status), json.loads(answer)


def test_kserve_v1_as_its_documentation_asks(stack: Stack, tmp_path: Path) -> None:
    """`curl -H 'Host: ...' -d @./input.json`, and what is asked before."""
    (tmp_path / "input.json").write_text('{"instances": ["今天[MASK]气很好"]}', encoding="utf-8")
    assert curl(stack, "URL/v1/models") == (200, {"models": ["demo-zh"]})
    assert curl(stack, "URL/v1/models/demo-zh") == (200, {"name": "demo-zh", "ready": True})
    headers = ["-H", "Host: fillmask.default.example.com", "-H", "Content-Type: application/json"]
    status, answer = curl(stack, *headers, "-d", f"@{tmp_path}/input.json", "URL/v1/models/demo-zh:predict")
    assert status == 200
    assert [len(mask["candidates"]) for mask in answer["predictions"][0]["masks"]] == [5]
    status, answer = curl(stack, *headers, "-d", f"@{tmp_path}/input.json", "URL/v1/models/another:predict")
    assert (status, answer["error_type"]) == (404, "unknown_model")


BODY = json.dumps({"texts": ["今天[MASK]气很好"], "top_k": 1}).encode()
JSON = ("-H", "content-type: application/json", "--data-binary", "@-")
LARGE = json.dumps({"texts": ["好" * 1_000_000]}).encode()


@pytest.mark.parametrize(
    "option",
    [
        ["--http1.0"],
        ["--http2"],
        ["-H", "transfer-encoding: chunked"],
        ["--compressed"],
        ["-H", "expect: 100-continue"],
    ],
)
def test_whatever_way_curl_sends_it(stack: Stack, option: list[str]) -> None:
    """--http2 asks for an upgrade as Java's client does with every request; the body must not be lost by it."""
    status, answer = curl(stack, *option, *JSON, "URL/v1/fill-mask", body=BODY)
    assert status == 200, answer
    assert len(answer["results"][0]["masks"][0]["candidates"]) == 1


def test_h04_curl_can_read_that_its_file_is_too_large(stack: Stack) -> None:
    for option in ([], ["-H", "transfer-encoding: chunked"], ["-H", "expect:"]):
        status, answer = curl(stack, *option, *JSON, "URL/v1/fill-mask", body=LARGE)
        assert (status, answer["error_type"]) == (413, "body_too_large")


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_h24_both_families_reach_several_front_ends(tmp_path: Path) -> None:
    """--host :: takes both, for one process (test_http.py) and for more."""
    with Stack(build_checkpoint("bert", tmp_path / "bert"), "--engine", "echo", "--host", "::", "--api", "2") as stack:
        for option in ["-4", "-6"] * 4:
            assert curl(stack, option, f"http://localhost:{stack.port}/healthz") == (200, {"status": "alive"})
