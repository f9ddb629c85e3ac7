"""Running stacks for all end-to-end tests that only ask them questions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkpoints import build_checkpoint
from stacks import Stack

from common.settings import DEMO_MODEL


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def echo_stack(bert: Path) -> Iterator[Stack]:
    """The pipe without a model: answers tell which request they belong to."""
    with Stack(bert, "--engine", "echo") as stack:
        yield stack


@pytest.fixture(scope="session")
def demo() -> Iterator[Stack]:
    """What a newcomer gets: the bundled model, on the engine that is found to be the fastest."""
    with Stack(DEMO_MODEL) as stack:
        yield stack
