"""When batches form: a lone request waits for nobody, many go together, and two workers share what there is."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from stacks import Stack

OURS = "/v1/fill-mask"
BODY = {"texts": ["第一个[MASK]"], "top_k": 1}


@pytest.fixture(scope="module")
def stack(bert: Path) -> Iterator[Stack]:
    with Stack(
        bert, "--engine", "drill", "--drill-batch-ms", "20", "--workers", "2", "--log-level", "error"
    ) as running:
        yield running


def ask(stack: Stack, clients: int, each: int) -> list[httpx.Response]:
    """A closed loop: each client asks again when it has its answer."""

    async def client(http: httpx.AsyncClient) -> list[httpx.Response]:
        return [await http.post(OURS, json=BODY) for _ in range(each)]

    async def everybody() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=str(stack.http.base_url), timeout=20) as http:
            answers = await asyncio.gather(*(client(http) for _ in range(clients)))
            return [answer for own in answers for answer in own]

    return asyncio.run(everybody())


def batch_sizes(answers: list[httpx.Response]) -> list[int]:
    return [int(answer.headers["x-fillmask-batch-size"]) for answer in answers]


def test_b14_a_lone_request_does_not_wait_for_company(stack: Stack) -> None:
    for _ in range(5):
        answer = stack.post(OURS, BODY)
        assert answer.status_code == 200
        assert batch_sizes([answer]) == [1]


def test_b14_at_saturation_batches_fill(stack: Stack) -> None:
    answers = ask(stack, clients=64, each=8)
    assert {answer.status_code for answer in answers} == {200}
    assert max(batch_sizes(answers)) >= 16


def test_no_worker_takes_all_while_the_other_idles(stack: Stack) -> None:
    """Sixteen clients, two workers: seen elsewhere is one worker with each batch whole and the other idle."""
    answers = ask(stack, clients=16, each=20)
    sizes = Counter(batch_sizes(answers))
    whole = sizes[16] / len(answers)
    assert whole < 0.5, sizes
