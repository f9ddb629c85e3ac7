"""`fillmask export --triton`: the repository parses as Triton parses it, and requests may be joined as Triton joins them."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from batches import CheckpointOf, batch_of, random_row
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as definition

from common.checkpoint import Checkpoint
from deploy import export
from worker.engines.graph_engines import graph_engine

TYPES = {"tensor(int64)": definition.TYPE_INT64, "tensor(float)": definition.TYPE_FP32}


@pytest.fixture(scope="module")
def checkpoint(checkpoint_of: CheckpointOf) -> Checkpoint:
    return checkpoint_of("bert")


@pytest.fixture(scope="module")
def repository(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton")
    assert export.main(["--model", str(checkpoint.folder), "--triton", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def session(repository: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(repository / "bert" / "1" / "model.onnx", providers=["CPUExecutionProvider"])


def test_the_configuration_is_what_the_graph_is(repository: Path, session: onnxruntime.InferenceSession) -> None:
    text = (repository / "bert" / "config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, definition.ModelConfig())
    assert config.name == "bert", "Triton wants the folder's name here"
    assert (repository / "bert" / "1" / config.default_model_filename).is_file()
    assert max(config.dynamic_batching.preferred_batch_size) <= config.max_batch_size
    assert config.dynamic_batching.max_queue_delay_microseconds > 0
    for told, there in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        sizes = {entry.name: [size if isinstance(size, int) else -1 for size in entry.shape[1:]] for entry in there}
        assert {entry.name: TYPES[entry.type] for entry in there} == {entry.name: entry.data_type for entry in told}
        assert sizes == {entry.name: list(entry.dims) for entry in told}
        assert not any(isinstance(entry.shape[0], int) for entry in there), "the batch comes first"


def test_joined_along_the_first_dimension_each_gets_its_own(
    checkpoint: Checkpoint, session: onnxruntime.InferenceSession
) -> None:
    """Texts padded to one length, one mask each; the answers are those of our own engine."""
    generator = np.random.default_rng(6)
    rows = [random_row(checkpoint, length, generator) for length in (3, 9, 16, 5)]
    batch = batch_of(rows, checkpoint, top_k=20)
    feeds = [
        {
            "input_ids": batch.token_ids[row : row + 1],
            "attention_mask": batch.attention_mask[row : row + 1],
            "mask_position": batch.mask_columns[row : row + 1, None],
        }
        for row in range(len(rows))
    ]
    alone = [session.run(None, feed) for feed in feeds]
    joined = session.run(None, {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    for index, output in enumerate(joined):
        np.testing.assert_allclose(output, np.concatenate([found[index] for found in alone]), atol=1e-4)
    engine = graph_engine("onnx", checkpoint, 1, checkpoint.folder)
    engine.load()
    expected = engine.predict(batch)
    np.testing.assert_allclose(joined[1], expected.probabilities, atol=1e-4)
    assert (joined[0][:, 0] == expected.token_ids[:, 0]).all()


def test_a_repository_holds_several_models_and_none_is_overwritten(
    repository: Path, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export.main(["--model", str(checkpoint.folder), "--triton", str(repository)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in repository.iterdir()] == ["bert"]
