"""OnnxEngine with graphs that it did not export itself, and with ones that it must refuse."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from batches import CheckpointOf, batch_of
from onnx import TensorProto, helper, numpy_helper

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.engines.onnx import OnnxEngine

OURS = ("input_ids", "attention_mask")


@pytest.fixture
def bare(checkpoint_of: CheckpointOf, tmp_path: Path) -> Checkpoint:
    """A checkpoint of forty tokens whose folder is empty but for what the test puts there."""
    return replace(checkpoint_of("bert"), name=str(tmp_path), folder=tmp_path, vocabulary_size=40)


def table(size: int = 40) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(1).normal(0, 3, (size, size)).astype(np.float32)


def write_graph(
    path: Path, inputs: tuple[str, ...] = OURS, kind: int = TensorProto.INT64, size: int = 40, output: str = "logits"
) -> None:
    """The usual signature, logits at every position: here simply the row of a table that the token id names."""
    weights = table(size)
    weights[39 if size > 39 else 0] = np.nan
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], [output])],
        "lookup",
        [helper.make_tensor_value_info(name, kind, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "length", "vocabulary"])],
        [numpy_helper.from_array(weights, "table")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def loaded(checkpoint: Checkpoint) -> OnnxEngine:
    engine = OnnxEngine(checkpoint, threads=1, cache_dir=checkpoint.folder / "cache")
    engine.load()
    return engine


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32])
@pytest.mark.parametrize("inputs", [OURS, ("input_ids",), (*OURS, "token_type_ids", "position_ids")])
@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_o04_m35_the_graph_is_fed_what_it_takes(
    bare: Checkpoint, kind: int, inputs: tuple[str, ...], place: str
) -> None:
    write_graph(bare.folder / place, inputs, kind)
    mask = bare.mask_token_id
    found = loaded(bare).predict(batch_of([[2, mask, 3], [mask]], bare, top_k=3))
    order = np.argsort(-table()[mask])[:3]
    assert found.token_ids.tolist() == [order.tolist()] * 2
    exponentials = np.exp(table()[mask])
    np.testing.assert_allclose(found.probabilities[0], (exponentials / exponentials.sum())[order], rtol=1e-5)


def test_a_row_that_is_not_finite_harms_no_other(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx")
    batch = replace(batch_of([[4, 4], [4, 4]], bare), token_ids=np.array([[4, 4], [39, 4]]))
    batch = replace(batch, mask_rows=np.array([0, 1, 1]), mask_columns=np.array([0, 0, 1]))
    finite = np.isfinite(loaded(bare).predict(batch).probabilities)
    assert finite.all(axis=1).tolist() == [True, False, True]


def test_a_large_model_keeps_its_weights_beside_the_graph(bare: Checkpoint) -> None:
    write_graph(bare.folder / "whole.onnx")
    model = onnx.load(bare.folder / "whole.onnx")
    onnx.save(
        model, bare.folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0
    )
    assert (bare.folder / "model.onnx_data").is_file()
    assert loaded(bare).predict(batch_of([[4]], bare)).token_ids.shape == (1, 5)


def test_o04_an_input_that_nobody_can_make_up(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", (*OURS, "pixel_values"))
    with pytest.raises(StartupError, match="wants an input pixel_values"):
        loaded(bare)


def test_o04_an_input_of_another_type(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", ("input_ids", "attention_mask"), TensorProto.INT32)
    graph = onnx.load(bare.folder / "model.onnx")
    graph.graph.input[1].type.tensor_type.elem_type = TensorProto.FLOAT
    onnx.save(graph, bare.folder / "model.onnx")
    with pytest.raises(StartupError, match=r"attention_mask of tensor\(float\)"):
        loaded(bare)


def test_o04_positions_that_start_elsewhere_are_not_guessed(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", (*OURS, "position_ids"))
    with pytest.raises(StartupError, match="wants an input position_ids"):
        loaded(replace(bare, architecture="RobertaForMaskedLM"))


def test_another_vocabulary(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", size=39)
    with pytest.raises(StartupError, match=r"\(2, 39\).* has 40 tokens"):
        loaded(bare)


def test_no_head(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", output="last_hidden_state")
    with pytest.raises(StartupError, match="without a masked-LM head"):
        loaded(bare)


def test_no_graph_at_all(bare: Checkpoint) -> None:
    (bare.folder / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(StartupError, match="no graph that ONNX Runtime can load"):
        loaded(bare)


def test_a_graph_without_a_head_beside_good_weights(bare: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it brings was exported for feature extraction, so its weights are asked instead."""
    write_graph(bare.folder / "model.onnx", output="last_hidden_state")
    write_graph(bare.folder / "exported.onnx")
    monkeypatch.setattr("worker.engines.graph.cached_onnx", lambda *_: bare.folder / "exported.onnx")
    assert loaded(bare).predict(batch_of([[4]], bare)).token_ids.shape == (1, 5)


def test_neither_graph_nor_weights_tells_both(bare: Checkpoint) -> None:
    write_graph(bare.folder / "model.onnx", output="last_hidden_state")
    with pytest.raises(StartupError, match=r"without a masked-LM head; and .* holds no weights"):
        loaded(bare)
