"""The demo model as others will load it: plain transformers, and the ONNX file beside it."""

from typing import Any

import evaluate
import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from common.settings import DEMO_MODEL

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


def test_a_token_is_a_character(fill: Any) -> None:
    encoding = fill.tokenizer("Tom 有3只\U0001f600猫[MASK]。", return_offsets_mapping=True)
    assert encoding["offset_mapping"][1:5] == [(0, 1), (1, 2), (2, 3), (4, 5)]
    assert encoding["input_ids"].count(fill.tokenizer.unk_token_id) == 1
    assert fill.tokenizer.model_max_length == fill.model.config.max_position_embeddings >= 256
