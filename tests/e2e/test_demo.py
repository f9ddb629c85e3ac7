"""The first minute, for real: `fillmask up` and `fillmask predict` with the bundled model, and what a newcomer asks first."""

import subprocess
import sys

from evaluate import NINE
from stacks import Stack

OURS = "/v1/fill-mask"


def test_nine_sentences_in_one_request(demo: Stack) -> None:
    results = demo.post(OURS, {"texts": [masked for masked, _ in NINE], "top_k": 3}).json()["results"]
    best = [result["masks"][0]["candidates"][0] for result in results]
    assert [candidate["word"] for candidate in best] == [answer for _, answer in NINE]
    assert [candidate["filled_text"] for candidate in best] == [masked.replace("[MASK]", word) for masked, word in NINE]


def test_the_tutorials_questions(demo: Stack) -> None:
    predicted = demo.post("/predict", {"text": "春眠不觉晓，处处闻啼[MASK]。"}).json()["results"]
    assert predicted[0]["word"] == "鸟"
    filled = demo.post("/fill", {"texts": ["床前明月光，疑是地[MASK]霜。"]}).json()["results"]
    assert filled[0][0][0] == "上"


def test_targets_are_compared(demo: Stack) -> None:
    answer = demo.post(OURS, {"texts": ["今天天[MASK]真好。"], "targets": ["书", "气", "鸟"]}).json()
    assert answer["results"][0]["masks"][0]["candidates"][0]["word"] == "气"


def test_m15_whole_words_are_ranked_as_a_reader_would(demo: Stack) -> None:
    """Words of two characters, which no single token could tell apart."""
    asked = {"texts": ["北京是中国的[MASK]", "北京是中国的[MASK]。"], "targets": ["城市", "省会", "首都"]}
    results = demo.post(OURS, asked | {"score_targets": "pseudo_likelihood"}).json()["results"]
    for result in results:
        assert [candidate["word"] for candidate in result["masks"][0]["candidates"]] == ["首都", "城市", "省会"]


def test_neighbouring_masks_become_words(demo: Stack) -> None:
    """Each mask by itself would not: 今天[MASK][MASK]很好 has 天 and 天 for its likeliest characters, or the like."""
    texts = ["今天[MASK][MASK]很好", "今天[MASK][MASK]很好。", "北京是中国的[MASK][MASK]。"]
    results = demo.post(OURS, {"texts": texts, "joint": True, "top_k": 5}).json()["results"]
    words = [[candidate["word"] for candidate in result["masks"][0]["candidates"]] for result in results]
    assert "天气" in words[0]
    assert "天气" in words[1]
    assert words[2][0] == "首都"


def test_predict_without_any_server() -> None:
    command = [sys.executable, "-m", "deploy.cli", "predict", "床前明月光，疑是地[MASK]霜。", "--top-k", "3"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(printed) == 4
    assert printed[1].split()[:2] == ["1", "上"]
    assert printed[1].endswith("床前明月光，疑是地上霜。")
