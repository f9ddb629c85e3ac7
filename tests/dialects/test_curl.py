"""Every curl line of README.md runs as it is pasted, but for the port."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from stacks import Stack

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("curl ") and "127.0.0.1:8000" in line
]


def test_there_are_some() -> None:
    assert len(LINES) >= 5


@pytest.mark.parametrize("line", LINES)
def test_it_runs(stack: Stack, line: str) -> None:
    here = line.replace("127.0.0.1:8000", f"127.0.0.1:{stack.port}")
    command = ["bash", "-c", f"{here} --fail-with-body"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "error" not in json.loads(ran.stdout)
