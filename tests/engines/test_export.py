"""worker/export.py and worker/graph_cache.py: which checkpoints become a graph, and when one is exported again."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from batches import CheckpointOf, batch_of
from checkpoints import build_checkpoint, change_config
from transformers import AutoModel, AutoModelForMaskedLM, BertForMaskedLM, BertForPreTraining

from common.checkpoint import Checkpoint, open_checkpoint
from common.errors import StartupError
from worker import export_graph, graph_cache
from worker.agreement import Feed, Logits
from worker.engines.onnx import OnnxEngine
from worker.export import export_onnx
from worker.export_check import compare
from worker.graph_cache import cached_onnx
from worker.masked_head import MaskedHead, fetch_weights

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A fresh copy that a test may change, without any graph."""
    return build_checkpoint("bert", tmp_path / "bert")


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(str(folder))


def resave(folder: Path, model_class: Any, **options: Any) -> None:
    """Writes the checkpoint's weights anew as another class would; config.json still names a masked LM."""
    model_class.from_pretrained(folder).save_pretrained(folder, **options)
    change_config(folder, architectures=["BertForMaskedLM"])


# Which checkpoints


def test_m02_a_missing_head_is_refused_by_name(bert: Path, tmp_path: Path) -> None:
    resave(bert, AutoModel)
    with pytest.raises(StartupError, match=r"masked-LM head: .*cls\.predictions\.transform\.dense\.weight") as refused:
        cached_onnx(opened(bert), tmp_path / "cache")  # through the child, whose one line must arrive as it was
    assert "\n" not in refused.value.message
    assert not list((tmp_path / "cache").rglob("*.onnx"))


def test_m02_an_electra_discriminator_is_refused(tmp_path: Path) -> None:
    folder = build_checkpoint("electra", tmp_path / "electra")
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    change_config(folder, architectures=["ElectraForPreTraining"])
    with pytest.raises(StartupError, match="generator_predictions"):
        MaskedHead.load(opened(folder))


def test_m03_a_pooler_and_a_next_sentence_head_do_no_harm(bert: Path) -> None:
    expected = MaskedHead.load(opened(bert)).reference([2, 4, 50, 3])
    model = BertForPreTraining(BertForMaskedLM.from_pretrained(bert).config)
    model.load_state_dict(BertForMaskedLM.from_pretrained(bert).state_dict(), strict=False)
    model.save_pretrained(bert)
    assert opened(bert).architecture == "BertForPreTraining"
    np.testing.assert_allclose(MaskedHead.load(opened(bert)).reference([2, 4, 50, 3]), expected, atol=1e-4)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
def test_m03_tied_and_derived_tensors_may_be_stored_or_not(bert: Path, file: str) -> None:
    """As the original checkpoints have it: decoder.weight and decoder.bias left out, position_ids left in."""
    from safetensors.torch import load_file, save_file

    expected = MaskedHead.load(opened(bert)).reference([2, 4, 50, 3])
    tensors = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    tensors = {name: tensor for name, tensor in tensors.items() if "predictions.decoder" not in name}
    tensors["bert.embeddings.position_ids"] = torch.arange(512)[None]
    if file.endswith(".bin"):
        torch.save(tensors, bert / file)
    else:
        save_file(tensors, bert / file, metadata={"format": "pt"})
    found = MaskedHead.load(opened(bert)).reference([2, 4, 50, 3])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_d01_safetensors_go_before_a_pickle(bert: Path) -> None:
    (bert / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'false'\ntR.")
    assert [file.name for file in fetch_weights(opened(bert))] == ["model.safetensors"]
    MaskedHead.load(opened(bert))


class Harm:
    """Unpickled carelessly, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_d01_a_pickle_that_runs_code_is_refused(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    torch.save({"bert.embeddings.word_embeddings.weight": Harm(bert / "harm")}, bert / "pytorch_model.bin")
    with pytest.raises(StartupError, match="cannot be loaded"):
        MaskedHead.load(opened(bert))
    assert not (bert / "harm").exists()


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n"])
def test_weights_that_are_none(bert: Path, content: bytes) -> None:
    (bert / "model.safetensors").write_bytes(content)
    with pytest.raises(StartupError, match="cannot be loaded") as refused:
        MaskedHead.load(opened(bert))
    assert "\n" not in refused.value.message


def test_no_weights(bert: Path, tmp_path: Path) -> None:
    (bert / "model.safetensors").unlink()
    with pytest.raises(StartupError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        cached_onnx(opened(bert), tmp_path)


def test_without_the_export_extra(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(StartupError, match=r"pip install 'fillmask\[export\]'"):
        export_onnx(opened(bert), tmp_path)


# The graph


def test_the_head_runs_at_the_masks_only(checkpoint: Checkpoint) -> None:
    """The last matrix product before the logits, which is the vocabulary's, already depends on where the masks are."""
    graph = onnx.load(checkpoint.folder / "model.onnx").graph
    maker = {name: node for node in graph.node for name in node.output}
    name = "logits"
    while maker[name].op_type not in ("MatMul", "Gemm"):
        name = next(given for given in maker[name].input if given in maker)
    seen, left = set(), list(maker[name].input)
    while left:
        given = left.pop()
        if given not in seen:
            seen.add(given)
            left += maker[given].input if given in maker else []
    assert {"mask_rows", "mask_columns", "input_ids", "attention_mask"} <= seen


def test_the_report_and_no_traces_of_this_machine(checkpoint: Checkpoint) -> None:
    report = json.loads((checkpoint.folder / "export.json").read_text(encoding="utf-8"))
    assert report["torch"] == torch.__version__
    assert [(entry["count"], entry["longest"]) for entry in report["deviations"]][0:2] == [(1, 3), (2, 17)]
    assert all(entry["max_logit_difference"] < 1e-3 for entry in report["deviations"])
    assert os.fsencode(ROOT) not in (checkpoint.folder / "model.onnx").read_bytes()
    assert not list(checkpoint.folder.glob(".export-*"))


def test_large_weights_lie_beside_the_graph(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_graph, "EMBEDDED_BYTES", 0)
    export_onnx(opened(bert), bert)
    assert (bert / "model.onnx.data").stat().st_size > (bert / "model.onnx").stat().st_size
    engine = OnnxEngine(opened(bert), threads=1, cache_dir=bert)
    engine.load()
    assert engine.predict(batch_of([[2, 4, 3]], opened(bert))).token_ids.shape == (1, 5)


@pytest.mark.parametrize("wrong", ["shifted", "reordered", "not finite", "ignores padding"])
def test_a_graph_that_says_something_else_is_not_kept(checkpoint_of: CheckpointOf, wrong: str) -> None:
    checkpoint = checkpoint_of("bert")
    weights = np.random.default_rng(0).normal(0, 1, checkpoint.vocabulary_size).astype(np.float32)

    def row(ids: list[int]) -> Logits:
        return np.outer(np.ones(len(ids)), weights * len(ids)).astype(np.float32)

    def graph(feed: Feed) -> Logits:
        lengths = feed["attention_mask"].sum(axis=1)
        if wrong == "ignores padding":
            lengths[:] = lengths.max()
        logits = np.outer(lengths[feed["mask_rows"]], weights).astype(np.float32)
        if wrong == "not finite":
            logits[0, 0] = np.nan
        return logits + {"shifted": 0.01}.get(wrong, 0) if wrong != "reordered" else logits[:, ::-1]

    with pytest.raises(StartupError, match="differs from torch"):
        compare(graph, row, checkpoint)


# The cache


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The destinations of exports that cached_onnx has asked for; none of them is really made."""
    asked: list[Path] = []

    def pretend(_folder: Path, destination: Path) -> None:
        asked.append(destination)
        (destination / "model.onnx").write_bytes(b"graph")

    monkeypatch.setattr(graph_cache, "_export_in_child", pretend)
    return asked


def test_exported_once_and_found_again(bert: Path, tmp_path: Path, exports: list[Path]) -> None:
    first = cached_onnx(opened(bert), tmp_path / "cache")
    copy = shutil.copytree(bert, tmp_path / "copy")
    assert cached_onnx(opened(bert), tmp_path / "cache") == first
    assert cached_onnx(opened(copy), tmp_path / "cache") == first
    assert exports == [first.parent]


@pytest.mark.parametrize("file", ["weights", "tokenizer"])
def test_exported_again_when_the_model_changes(bert: Path, tmp_path: Path, exports: list[Path], file: str) -> None:
    first = cached_onnx(opened(bert), tmp_path / "cache")
    before = (bert / "model.safetensors").stat()
    if file == "weights":
        build_checkpoint("bert", bert, seed=8)  # the same size, and made to look as old
        os.utime(bert / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (bert / "model.safetensors").stat().st_size == before.st_size
    else:
        change_config(bert, "tokenizer_config.json", model_max_length=99)
    assert cached_onnx(opened(bert), tmp_path / "cache") != first
    assert len(exports) == 2


def test_an_export_that_failed_is_tried_again(
    bert: Path, tmp_path: Path, exports: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = graph_cache._export_in_child

    def fail(_folder: Path, _destination: Path) -> None:
        raise StartupError("no room")

    monkeypatch.setattr(graph_cache, "_export_in_child", fail)
    with pytest.raises(StartupError, match="no room"):
        cached_onnx(opened(bert), tmp_path / "cache")
    monkeypatch.setattr(graph_cache, "_export_in_child", pretend)
    assert cached_onnx(opened(bert), tmp_path / "cache").is_file()


def test_a_cache_that_cannot_be_written(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StartupError, match="cannot be written"):
        cached_onnx(opened(bert), tmp_path / "cache")


SLOW_EXPORT = """
import sys, time
from pathlib import Path
from common.checkpoint import open_checkpoint
from worker import graph_cache

def slow(folder, destination):
    with (destination / "calls").open("a") as calls:
        calls.write("x")
    time.sleep(1)
    (destination / "model.onnx").write_bytes(b"graph")

graph_cache._export_in_child = slow
print("ready", flush=True)
sys.stdin.readline()
graph_cache.cached_onnx(open_checkpoint(sys.argv[1]), Path(sys.argv[2]))
"""


def test_two_workers_at_once_export_once(bert: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_EXPORT, str(bert), str(tmp_path / "cache")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    workers = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=30)
        assert worker.returncode == 0
    (calls,) = (tmp_path / "cache").rglob("calls")
    assert calls.read_text() == "x"


WORKER = """
import json, sys
from pathlib import Path
from batches import batch_of
from common.checkpoint import open_checkpoint
from worker.engines.onnx import OnnxEngine
checkpoint = open_checkpoint(sys.argv[1])
engine = OnnxEngine(checkpoint, 1, Path(sys.argv[2]))
engine.load()
found = engine.predict(batch_of([[2, 50, 4, 60, 3]], checkpoint))
heavy = [name for name in ("torch", "transformers", "onnx") if name in sys.modules]
print(json.dumps([found.token_ids.tolist(), found.probabilities.tolist(), heavy]))
"""


def test_d01_d05_a_worker_of_a_bin_alone_on_a_path_beyond_ascii(tmp_path: Path, checkpoint_of: CheckpointOf) -> None:
    """From a .bin alone, under LANG=C, exported by a child: the whole way that a real worker goes, and no torch in it."""
    folder = build_checkpoint("bert", tmp_path / "数据" / "模型 文件")
    torch.save(AutoModelForMaskedLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    command = [sys.executable, "-c", WORKER, str(folder), str(tmp_path / "缓存")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), "LC_ALL": "C"}
    worker = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=100, check=False)
    assert worker.returncode == 0, worker.stderr
    ids, probabilities, heavy = json.loads(worker.stdout)
    expected = MaskedHead.load(checkpoint_of("bert")).reference([2, 50, 4, 60, 3])[2]  # the same seed, the same weights
    assert ids == [np.argsort(-expected)[:5].tolist()]
    exponentials = np.exp(expected - expected.max())
    np.testing.assert_allclose(probabilities[0], np.sort(exponentials / exponentials.sum())[:-6:-1], atol=1e-4)
    assert heavy == []
