"""common/checkpoint.py: a model's limits and tokens from its own files, and one clear line when they will not do."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.checkpoint import open_checkpoint
from common.errors import StartupError

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 7,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
ROBERTA = BERT | {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "max_position_embeddings": 514}
ROBERTA |= {"pad_token_id": 1}


def model(folder: Path, config: dict[str, Any], tokens: tuple[str, ...] = SPECIAL, **tokenizer: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join((*tokens, "好", "坏")) + "\n", encoding="utf-8")
    if tokenizer:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("config", "tokenizer", "limit"),
    [
        (BERT, {}, 512),
        (BERT, {"model_max_length": 1000000000000000019884624838656}, 512),
        (BERT, {"model_max_length": 128}, 128),
        (BERT, {"model_max_length": 5000}, 512),
        (ROBERTA, {}, 512),
        (ROBERTA, {"model_max_length": 514}, 512),
        (ROBERTA | {"model_type": "xlm-roberta"}, {"model_max_length": 512}, 512),
        (BERT | {"max_position_embeddings": None}, {"model_max_length": 256}, 256),
    ],
)
def test_the_limit_comes_from_the_model(
    tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any], limit: int
) -> None:
    assert open_checkpoint(model(tmp_path, config, **tokenizer)).max_tokens == limit


def test_no_limit_anywhere(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="how many tokens it takes"):
        open_checkpoint(model(tmp_path, BERT | {"max_position_embeddings": None}))


def test_facts_of_a_plain_vocabulary(tmp_path: Path) -> None:
    found = open_checkpoint(model(tmp_path, BERT))
    assert (found.mask_token, found.mask_token_id, found.pad_token_id, found.unknown_token_id) == ("[MASK]", 4, 0, 1)
    assert found.special_token_ids == {0, 1, 2, 3, 4}
    assert found.vocabulary_size == 7


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "BertForSequenceClassification", "BartModel", "BertModel"])
def test_m05_another_architecture(tmp_path: Path, architecture: str) -> None:
    with pytest.raises(StartupError, match=f"it is {architecture}; a masked-language model"):
        open_checkpoint(model(tmp_path, BERT | {"architectures": [architecture]}))


def test_m05_a_tokenizer_without_a_mask(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="defines no mask token"):
        open_checkpoint(model(tmp_path, BERT, tokens=SPECIAL[:4]))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    name = model(tmp_path, BERT)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(StartupError, match=r"neither tokenizer\.json nor vocab\.txt"):
        open_checkpoint(name)


@pytest.mark.parametrize("config", ["", "{", "\ufeff{}", "[]"])
def test_a_config_that_is_none(tmp_path: Path, config: str) -> None:
    name = model(tmp_path, BERT)
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(StartupError, match=r"is no JSON|holds no config\.json"):
        open_checkpoint(name)


@pytest.mark.parametrize("name", ["/models/bert-base-chinse", "./nowhere", "~/nowhere-at-all", "a/b/c", "models/x/"])
def test_a_path_that_leads_nowhere_is_not_looked_for_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.checkpoint._fetch_from_hub", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(StartupError, match="does not exist"):
        open_checkpoint(name)


@pytest.mark.parametrize("name", ["", "  "])
def test_no_name(name: str) -> None:
    with pytest.raises(StartupError, match="no model is named"):
        open_checkpoint(name)


def test_a_trailing_slash_and_a_path_beyond_ascii(tmp_path: Path) -> None:
    name = model(tmp_path / "模型 文件", BERT)
    assert open_checkpoint(name + "/").fingerprint == open_checkpoint(name).fingerprint


def test_a_hub_id_while_offline(tmp_path: Path) -> None:
    program = (
        "from common.checkpoint import open_checkpoint\n"
        "from common.errors import StartupError\n"
        "try: open_checkpoint('nobody/nothing')\n"
        "except StartupError as error: print(error)\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert found.stdout.count("\n") == 1
    for word in ("nobody/nothing", "HF_HUB_OFFLINE is set", str(tmp_path)):
        assert word in found.stdout


def test_the_fingerprint_covers_what_a_text_means(tmp_path: Path) -> None:
    first = open_checkpoint(model(tmp_path / "one", BERT)).fingerprint
    assert open_checkpoint(model(tmp_path / "two", BERT)).fingerprint == first
    assert open_checkpoint(model(tmp_path / "three", BERT, tokens=(*SPECIAL, "新"))).fingerprint != first
    assert open_checkpoint(model(tmp_path / "four", BERT | {"hidden_size": 5})).fingerprint != first
