"""One bad request in a batch harms nobody else: B01 and B02 of the field cases. Batches form by waiting for company."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stacks import Stack
from waiting import wait_until

OURS = "/v1/fill-mask"
GOOD: list[dict[str, Any]] = [{"texts": [f"第{number}个[MASK]"], "top_k": 1} for number in range(7)]
FAILS_BATCH, NOT_A_NUMBER = 92, 93
"""What the drill engine does when a request asks for so many candidates."""


@pytest.fixture(scope="module")
def stack(bert: Path) -> Iterator[Stack]:
    with Stack(bert, "--engine", "drill", "--max-wait-ms", "200", "--log-level", "error") as running:
        yield running


@pytest.fixture(scope="module")
def alone(stack: Stack) -> list[Any]:
    """What each good request gets by itself."""
    return [stack.post(OURS, body).json() for body in GOOD]


def together(stack: Stack, bad: bytes) -> tuple[list[httpx.Response], httpx.Response]:
    """Seven good requests and a bad one at once."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=str(stack.http.base_url), timeout=20) as client:
            asked = [client.post(OURS, json=body) for body in GOOD]
            asked.append(client.post(OURS, content=bad, headers={"content-type": "application/json"}))
            return await asyncio.gather(*asked)

    *good, refused = asyncio.run(ask())
    return good, refused


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b'{"texts": ["\\ud83d[MASK]"]}', 400),
        (b'{"texts": ["[MASK]"], "targets": ["no such token"]}', 422),
        (b'{"texts": ["[MASK]"], "top_k": %d}' % FAILS_BATCH, 500),
    ],
    ids=["a lone surrogate", "a bad target", "the engine fails"],
)
def test_b01_batch_mates_of_a_bad_request_succeed(stack: Stack, alone: list[Any], bad: bytes, status: int) -> None:
    good, refused = together(stack, bad)
    assert [answer.json() for answer in good] == alone
    assert refused.status_code == status
    assert refused.json()["error_type"]


@pytest.mark.parametrize("fault", [FAILS_BATCH, NOT_A_NUMBER])
def test_b02_the_next_request_is_served_at_once(stack: Stack, fault: int) -> None:
    failed = stack.post(OURS, {"texts": ["[MASK]"], "top_k": fault})
    assert failed.status_code == 500
    assert failed.json()["details"]["reason"] in ("engine_error", "not_finite")
    wait_until(lambda: stack.post(OURS, GOOD[0]).status_code == 200, within_s=1.0)
