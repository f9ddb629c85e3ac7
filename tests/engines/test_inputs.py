"""What a graph is fed: exactly the inputs that its model takes, with or without segments, with or without a padding token."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from batches import CheckpointOf, assert_same, batch_of, masks_of, random_row
from checkpoints import change_config

from common.checkpoint import Checkpoint, open_checkpoint
from worker.engines.graph_engines import graph_engine

SEGMENTS = {"bert": True, "roberta": False, "xlm-roberta": False, "albert": True, "distilbert": False, "electra": True}
SEGMENTS |= {"modernbert": False}


def test_m35_token_type_ids_only_where_the_model_tells_segments_apart(checkpoint: Checkpoint) -> None:
    graph = onnx.load(checkpoint.folder / "model.onnx", load_external_data=False).graph
    inputs = [given.name for given in graph.input]
    segments = ["token_type_ids"] * SEGMENTS[checkpoint.folder.name]
    assert inputs == ["input_ids", "attention_mask", *segments, "mask_rows", "mask_columns"]


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_m36_a_tokenizer_without_a_padding_token(
    checkpoint_of: CheckpointOf, tmp_path: Path, architecture: str, name: str
) -> None:
    """Two texts of different lengths in one batch get what each gets alone."""
    folder = shutil.copytree(checkpoint_of(architecture).folder, tmp_path / "model")
    change_config(folder, pad_token_id=None)
    change_config(folder, "tokenizer_config.json", pad_token=None)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if "pad" not in token["content"].lower()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    checkpoint = open_checkpoint(str(folder))
    engine = graph_engine(name, checkpoint, 1, tmp_path)
    engine.load()
    generator = np.random.default_rng(9)
    rows = [random_row(checkpoint, length, generator) for length in (4, 40)]
    together = engine.predict(batch_of(rows, checkpoint))
    for index, row in enumerate(rows):
        assert_same(masks_of(together, slice(index, index + 1)), engine.predict(batch_of([row], checkpoint)))
