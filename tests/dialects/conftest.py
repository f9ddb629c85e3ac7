"""One running stack for all real clients. Its model is named like the bundled one, so that README's lines run as they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoints import build_checkpoint
from stacks import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("models") / "demo-zh"
    with Stack(build_checkpoint("bert", folder), "--engine", "echo") as stack:
        yield stack


@pytest.fixture(scope="session")
def url(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.port}"
