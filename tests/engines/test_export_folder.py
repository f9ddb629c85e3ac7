"""`fillmask export DESTINATION`: what it leaves behind is a model that is served at once, in float32 and in int8."""

import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from batches import CheckpointOf, assert_same, batch_of, random_row

from common.checkpoint import FACTS, Checkpoint, open_checkpoint
from common.command_line import parse
from common.errors import StartupError
from deploy import export
from worker.engines.base import TopTokens
from worker.engines.graph_engines import graph_engine

EXACT = ("onnx", "openvino")
ROUNDED = ("onnx-int8", "openvino-int8")


class Asked(NamedTuple):
    code: int
    told: str
    complaint: str


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No more of the project's own than need be."""
    file = tmp_path_factory.mktemp("texts") / "texts"
    lines = export.SENTENCES.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join(lines[:100]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def refused(checkpoint_of: CheckpointOf, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Asked]:
    """The folder of an export whose int8 was asked to agree always, and did not; and what was asked."""
    folder = tmp_path_factory.mktemp("exported") / "模型"
    model = str(checkpoint_of("bert").folder)
    asked = ["--dynamic-int8", "--least-agreement", "1", "--texts", str(texts), str(folder)]
    told, complaint = io.StringIO(), io.StringIO()
    with redirect_stdout(told), redirect_stderr(complaint):
        code = export.main(["--model", model, *asked])
    assert not list(folder.glob("*int8*")), "not even in part"
    return folder, Asked(code, told.getvalue(), complaint.getvalue())


@pytest.fixture(scope="module")
def exported(refused: tuple[Path, Asked], texts: Path) -> Path:
    """The same with int8 of both kinds: a random model is rounded badly, so little is asked of it."""
    folder, _ = refused
    checkpoint = open_checkpoint(str(folder))
    asked = ["--int8", "--dynamic-int8", "--least-agreement", "0.1", "--texts", str(texts), str(folder)]
    settings = parse(export.ExportSettings, asked, "fillmask export")
    told = list(export.add_int8(settings, checkpoint, folder, export.token_ids(checkpoint, settings)))
    assert [line.startswith(f"int8 ({method})") for line, method in zip(told, ("static", "dynamic"), strict=True)]
    return folder


def answers(name: str, checkpoint: Checkpoint, rows: list[list[int]]) -> TopTokens:
    engine = graph_engine(name, checkpoint, 1, checkpoint.folder / "cache")
    engine.load()
    found = engine.predict(batch_of(rows, checkpoint))
    engine.close()
    return found


def test_the_folder_is_a_model_of_its_own(exported: Path, checkpoint_of: CheckpointOf) -> None:
    original = checkpoint_of("bert")
    for name in FACTS:
        path = original.folder / name
        assert not path.is_file() or path.read_bytes() == (exported / name).read_bytes()
    assert open_checkpoint(str(exported)).fingerprint == original.fingerprint, "both meet on the same queue"
    assert not list(exported.glob("*.safetensors"))
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_every_engine_serves_it(exported: Path, checkpoint_of: CheckpointOf, name: str) -> None:
    generator = np.random.default_rng(2)
    rows = [random_row(checkpoint_of("bert"), length, generator) for length in (5, 19)]
    found, expected = answers(name, open_checkpoint(str(exported)), rows), answers("onnx", checkpoint_of("bert"), rows)
    if name in EXACT:
        assert_same(found, expected)
    else:
        np.testing.assert_allclose(found.probabilities.sum(), expected.probabilities.sum(), rtol=0.5)


@pytest.mark.parametrize("kind", ["openvino-int8", "onnx-int8"])
def test_the_report_lies_beside_it(exported: Path, kind: str) -> None:
    report = json.loads((exported / kind / "report.json").read_text(encoding="utf-8"))
    assert report["least_agreement"] == 0.1 <= report["same_first_choice"] <= 1
    assert report["compared_gaps"] > 400
    if kind == "openvino-int8":
        assert report["same_beside_others"] > 0.98, "static scales: neighbours do not matter"
    assert report["fingerprint"] == open_checkpoint(str(exported)).fingerprint


def test_a_worker_warns_of_int8_that_is_far_from_float32(
    exported: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    for agreement, level in ((0.9799, "WARNING"), (0.98, "INFO")):
        report = json.dumps({"same_first_choice": agreement})
        (folder / "onnx-int8" / "report.json").write_text(report, encoding="utf-8")
        caplog.clear()
        with caplog.at_level("INFO"):
            answers("onnx-int8", open_checkpoint(str(folder)), [[2, 4, 3]])
        assert [record.levelname for record in caplog.records if "agrees with float32" in record.message] == [level]


@pytest.mark.parametrize("name", ROUNDED)
def test_int8_that_is_not_there_is_never_replaced_by_float32(checkpoint_of: CheckpointOf, name: str) -> None:
    with pytest.raises(StartupError, match=rf"holds no {name}/.*; fillmask export --.*int8 makes one"):
        answers(name, checkpoint_of("bert"), [[2, 4, 3]])


def test_int8_that_disagrees_is_refused_and_float32_stays(refused: tuple[Path, Asked]) -> None:
    _, asked = refused
    assert asked.code == 2
    assert "checked it against torch" in asked.told
    assert re.search(
        r"of \d{3,} gaps .* in \d+\.\d% \(dynamic; as itself beside other texts in \d+\.\d%\); less than 100.0% is not kept",
        asked.complaint,
    )
    assert asked.complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (None, "cannot be read"),
        ("今天天气很好。\n" * 99, "99 usable texts are too few"),
        ("\n" * 500, "0 usable texts"),
    ],
)
def test_unusable_texts_are_told_before_anything_slow_is_done(
    checkpoint_of: CheckpointOf, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str | None, told: str
) -> None:
    if written is not None:
        (tmp_path / "texts").write_text(written, encoding="utf-8")
    asked = ["--dynamic-int8", "--texts", str(tmp_path / "texts"), str(tmp_path / "model")]
    assert export.main(["--model", str(checkpoint_of("bert").folder), *asked]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_what_contradicts_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        export.main(["--triton", "--int8", str(tmp_path / "model")])
    assert "--triton writes float32 only" in capsys.readouterr().err
