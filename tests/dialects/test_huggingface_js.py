"""npm's @huggingface/inference against the running service. Needs node >= 18 and npm; skipped without, but not in CI."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

VERSION = "4.13.30"
POEM = "床前明月光，疑是地[MASK]霜。"


def client_folder() -> Path:
    """Where the package lies, installed once a machine."""
    folder = Path(tempfile.gettempdir()) / f"fillmask-huggingface-inference-{VERSION}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "installed").exists():
            folder.mkdir(exist_ok=True)
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
            subprocess.run(
                [*command, f"@huggingface/inference@{VERSION}"], check=True, capture_output=True, timeout=100
            )
            (folder / "installed").touch()
    return folder


@pytest.fixture(scope="module")
def seen(url: str) -> dict[str, Any]:
    if not (shutil.which("node") and shutil.which("npm")) and not os.environ.get("CI"):
        pytest.skip("needs node and npm")
    script = shutil.copy(Path(__file__).with_name("client.mjs"), client_folder())
    ran = subprocess.run(["node", script, url], check=True, capture_output=True, text=True, timeout=60)
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed


def test_it_fills(seen: dict[str, Any]) -> None:
    assert [element["score"] for element in seen["one"]] == [0.5, 0.25, 0.125, 0.0625, 0.03125]
    for element in seen["one"]:
        assert element["sequence"] == POEM.replace("[MASK]", element["token_str"].removeprefix("##"))
    assert seen["two"] == seen["one"][:2]
    assert {element["token_str"] for element in seen["targets"]} == {"上", "下"}


def test_errors_can_be_read(seen: dict[str, Any]) -> None:
    assert "has no [MASK]" in seen["noMask"]["message"]
    assert seen["noMask"]["status"] == 422


def test_several_masks_are_more_than_this_client_takes(seen: dict[str, Any]) -> None:
    """transformers answers with a list a mask; this client's own check refuses that shape, from any server."""
    assert "malformed response" in seen["severalMasks"]["message"]
