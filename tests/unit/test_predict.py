"""`fillmask predict`: the whole way from a text to a table in one process."""

import json
from pathlib import Path

import pytest

from deploy.predict import Row, main, table, width


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"床前明月光，疑是地上霜。"]
    facts = {"architectures": ["BertForMaskedLM"], "vocab_size": len(pieces), "max_position_embeddings": 32}
    (tmp_path / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    return tmp_path


def test_chinese_characters_are_two_columns_wide() -> None:
    assert [width(text) for text in ("", "ab", "霜", "地。", "e\u0301")] == [0, 2, 2, 4, 1]


def test_columns_are_aligned_by_width() -> None:
    rows = [Row(1, 1, "上", 0.9, "地上霜"), Row(1, 10, "the", 0.05, "地the霜")]
    head, first, second = table(rows).splitlines()
    assert head == "rank  word  probability  filled text"
    assert first == "1     上    0.9000       地上霜"
    assert second == "10    the   0.0500       地the霜"


def test_a_text_with_two_masks(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["床前[MASK]月光，疑是[MASK]上霜。", "--engine", "echo", "--model", str(model), "--top-k", "3"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["mask", "rank", "word", "probability", "filled", "text"]
    assert [row.split()[:2] for row in rows] == [[mask, rank] for mask in "12" for rank in "123"]
    assert all("疑是[MASK]上霜。" in row for row in rows[:3])
    assert all("床前[MASK]月光" in row for row in rows[3:])


@pytest.mark.parametrize(
    ("text", "told"), [("床前明月光", "the text has no [MASK]"), ("[MASK]" * 40, "the text has 42 tokens")]
)
def test_a_text_that_cannot_be_filled_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    assert main([text, "--engine", "echo", "--model", str(model)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"fillmask predict: {told}")
    assert complaint.count("\n") == 1


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["床[MASK]", "--model", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
