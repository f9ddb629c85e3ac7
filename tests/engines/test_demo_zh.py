"""The demo model as others will load it: plain transformers, and the ONNX file beside it."""

from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest
import torch
from batches import batch_of
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from common.checkpoint import open_checkpoint
from common.settings import DEMO_MODEL
from worker.engines.graph_engines import graph_engine

FOLDER = DEMO_MODEL


@pytest.fixture(scope="module")
def fill() -> Any:
    model = AutoModelForMaskedLM.from_pretrained(FOLDER)
    return pipeline("fill-mask", model=model, tokenizer=AutoTokenizer.from_pretrained(FOLDER))


@pytest.mark.parametrize(("masked", "answer"), evaluate.NINE)
def test_nine_sentences(fill: Any, masked: str, answer: str) -> None:
    best = fill(masked)[0]
    assert best["token_str"] == answer
    assert best["sequence"] == masked.replace("[MASK]", answer)


def test_onnx_agrees_with_transformers(fill: Any) -> None:
    onnx = evaluate.Model(FOLDER)
    for masked, _ in evaluate.NINE:
        inputs = fill.tokenizer(masked, return_tensors="pt")
        with torch.no_grad():
            logits = fill.model(**inputs).logits[0, inputs["input_ids"][0].tolist().index(fill.tokenizer.mask_token_id)]
        assert np.abs(onnx.logits(masked) - logits.numpy()).max() < 1e-4


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_o06_the_same_words_beside_a_text_of_full_length(fill: Any, tmp_path: Path, name: str) -> None:
    """Nine sentences of some ten characters, padded to 256 tokens, against transformers without any padding."""
    checkpoint = open_checkpoint(str(FOLDER))
    engine = graph_engine(name, checkpoint, 1, tmp_path)
    engine.load()
    rows = [fill.tokenizer(masked)["input_ids"] for masked, _ in evaluate.NINE]
    found = engine.predict(batch_of([*rows, [checkpoint.mask_token_id] + [20] * 255], checkpoint))
    expected = [fill(masked, top_k=5) for masked, _ in evaluate.NINE]
    assert found.token_ids[:9].tolist() == [[word["token"] for word in words] for words in expected]
    scores = [[word["score"] for word in words] for words in expected]
    np.testing.assert_allclose(found.probabilities[:9], scores, atol=1e-4)
    engine.close()


def test_a_token_is_a_character(fill: Any) -> None:
    encoding = fill.tokenizer("Tom 有3只\U0001f600猫[MASK]。", return_offsets_mapping=True)
    assert encoding["offset_mapping"][1:5] == [(0, 1), (1, 2), (2, 3), (4, 5)]
    assert encoding["input_ids"].count(fill.tokenizer.unk_token_id) == 1
    assert fill.tokenizer.model_max_length == fill.model.config.max_position_embeddings >= 256
