"""A model's files are a stranger's: none of their code is run, neither a pickle's nor a repository's own."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import build_checkpoint

from common.checkpoint import open_checkpoint
from common.errors import StartupError
from worker.masked_head import MaskedHead


class Payload:
    """Unpickled the way pickle does it, this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._folder,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_checkpoint("bert", tmp_path / "model")


def test_a_pickle_brings_tensors_or_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"bert.embeddings.word_embeddings.weight": Payload(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(StartupError, match="cannot be loaded"):
        MaskedHead.load(open_checkpoint(str(folder)))
    assert not (tmp_path / "ran").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "ran").exists(), "this pickle would have done it"


def test_a_repositorys_own_code_is_not_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForMaskedLM": "theirs.Theirs", "AutoConfig": "theirs.TheirConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    MaskedHead.load(open_checkpoint(str(folder)))
    assert not (tmp_path / "ran").exists()
