"""What Prometheus sees of several front-ends behind one port. The id is that of the field case."""

import re
from pathlib import Path

import httpx
from checkpoints import build_checkpoint
from stacks import Stack
from waiting import wait_until

COUNTER = re.compile(r'fillmask_http_requests_total\{route="/v1/fill-mask",status="200"\} ([\d.]+)')
REQUESTS = 200


def test_h17_any_front_end_tells_the_sum_of_all(tmp_path: Path) -> None:
    """Every scrape tells the same, whichever process answers it; a process that dies takes nothing with it."""
    with Stack(build_checkpoint("bert", tmp_path / "bert"), "--engine", "echo", "--api", "2") as stack:
        url = f"http://127.0.0.1:{stack.port}"

        def counted() -> float:
            found = COUNTER.search(httpx.get(f"{url}/metrics").text)  # a new connection: either process may get it
            return float(found[1]) if found else 0.0

        for _ in range(REQUESTS):
            assert httpx.post(f"{url}/v1/fill-mask", json={"texts": ["好[MASK]"]}).status_code == 200
        wait_until(lambda: counted() == REQUESTS, what="all requests counted")
        assert {counted() for _ in range(30)} == {REQUESTS}
        victim = stack.processes("front-end")[0]
        victim.kill()
        victim.wait(10)
        assert counted() == REQUESTS
        wait_until(lambda: len(stack.processes("front-end")) == 2, what="a new front-end")
        assert counted() == REQUESTS
        assert httpx.post(f"{url}/v1/fill-mask", json={"texts": ["好[MASK]"]}).status_code == 200
        wait_until(lambda: counted() == REQUESTS + 1)
