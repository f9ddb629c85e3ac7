"""`fillmask bench`, as loadtest/bench.py runs it: JSON lines in, JSON lines out, and no secret way to be fast."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common.settings import DEMO_MODEL

ROOT = Path(__file__).resolve().parents[2]


def bench(*asked: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "deploy.cli", "bench", "--engine", "onnx", "--model", str(DEMO_MODEL)]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_engine_is_timed_compared_and_weighed() -> None:
    loaded, timed, alone, together, memory = bench(
        {"do": "time", "count": 3, "length": 9, "seconds": 0.05},
        {"do": "answer", "count": 10, "length": 20, "batch": 1},
        {"do": "answer", "count": 10, "length": 20, "batch": 4},
        {"do": "memory"},
    )
    assert loaded["engine"] == "onnx"
    assert timed["texts"] % 3 == 0
    assert timed["seconds"] >= 0.05
    assert len(alone["token_ids"]) == 10
    assert [ids[0] for ids in alone["token_ids"]] == [ids[0] for ids in together["token_ids"]], "the same texts"
    assert len({tuple(ids) for ids in alone["token_ids"]}) > 5, "not all the same"
    assert 0 < memory["rss_bytes"] <= memory["peak_bytes"]
