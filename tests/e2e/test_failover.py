"""The promise when Redis itself is replaced: the primary dies under a steady load, behind three sentinels or in a cluster."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from stacks import Stack
from topologies import ClusterSet, SentinelSet, cluster_set, sentinel_set
from waiting import wait_until

import loadtest.stack
from common.checkpoint import open_checkpoint
from common.keys import Keys
from loadtest.drill import Drill

OURS = "/v1/fill-mask"
BODY = '{"texts": ["今天[MASK]气真好"], "top_k": 1}'.encode()
RECOVERS_WITHIN_S = 10.0

SLOW = ("--drill-batch-ms", "1", "--drill-token-us", "800")
"""Less than what is asked for, so that some requests are always under way."""


@pytest.mark.parametrize("topology", [sentinel_set, cluster_set])
def test_r10_the_primary_dies(
    bert: Path, topology: Callable[[], AbstractContextManager[SentinelSet | ClusterSet]]
) -> None:
    key = Keys(open_checkpoint(str(bert)).fingerprint).prefix
    options = ("--engine", "drill", "--log-level", "error", "--workers", "2", *SLOW)
    with topology() as redises, Stack(bert, *options, "--redis-url", redises.url) as stack:
        drill = Drill(stack)
        took_s = 0.0

        def kill_the_primary(_: Drill) -> str:
            nonlocal took_s
            before = redises.slot_owner(key)
            wait_until(lambda: stack.http.get("/info").json()["in_flight"])
            before.kill()
            started = time.monotonic()
            wait_until(lambda: loadtest.stack.answers(stack.port, OURS, BODY), within_s=RECOVERS_WITHIN_S)
            took_s = time.monotonic() - started
            assert redises.slot_owner(key) is not before
            return f"served again after {took_s:.1f} s"

        tally = drill.run("primary killed", kill_the_primary, duration_s=5.0)
        assert (tally.outcome.lost, tally.outcome.wrong) == (0, 0)
        assert tally.right + sum(tally.failed.values()) == tally.sent
        assert 0 < took_s < RECOVERS_WITHIN_S
        assert tally.right > 500
        assert max(tally.outcome.latencies_s) > took_s / 2, "what the dead primary held was put again, and answered"
        assert stack.http.get("/readyz").status_code == 200
