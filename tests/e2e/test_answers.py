"""What a good request gets, in each dialect, through real processes; the echo engine makes mix-ups visible."""

import asyncio
import json
import math
import random
from typing import Any

import pytest
from stacks import Stack

from loadtest.closed_loop import Load, closed_loop

OURS = "/v1/fill-mask"


def test_m13_m14_one_shape_for_one_and_for_many(echo_stack: Stack) -> None:
    texts = ["床前明月光，疑是地[MASK]霜。", "[MASK]", "今天[MASK][MASK]很好"]
    together = echo_stack.post(OURS, {"texts": texts, "top_k": 3}).json()["results"]
    alone = [echo_stack.post(OURS, {"texts": [text], "top_k": 3}).json()["results"][0] for text in texts]
    assert together == alone
    assert [len(result["masks"]) for result in together] == [1, 1, 2]
    for text, result in zip(texts, together, strict=True):
        for mask in result["masks"]:
            assert text[mask["start"] : mask["end"]] == "[MASK]"
            assert len(mask["candidates"]) == 3
            scores = [candidate["score"] for candidate in mask["candidates"]]
            assert scores == sorted(scores, reverse=True)


def test_the_tutorials_predict(echo_stack: Stack) -> None:
    response = echo_stack.post("/predict", {"text": "春眠不觉晓，处处闻啼[MASK]。"})
    assert response.status_code == 200
    body = response.json()
    assert list(body) == ["results"]
    assert len(body["results"]) == 5
    assert all(list(entry) == ["word", "confidence"] for entry in body["results"])
    assert [entry["confidence"] for entry in body["results"]] == [0.5, 0.25, 0.125, 0.0625, 0.0312]


def test_the_tutorials_own_error_for_a_text_without_a_mask(echo_stack: Stack) -> None:
    response = echo_stack.post("/predict", {"text": "春眠不觉晓"})
    assert response.status_code == 400
    assert response.json()["error"] == "请在文本中包含[MASK]标记"


def test_the_tutorials_fill(echo_stack: Stack) -> None:
    response = echo_stack.post("/fill", {"texts": ["床前明月光，疑是地[MASK]霜。", "今天[MASK][MASK]很好"]})
    assert response.status_code == 200
    lists = response.json()["results"]
    assert [len(pairs) for pairs in lists] == [5, 5, 5], "one inner list a mask, in order"
    assert all(isinstance(word, str) and isinstance(score, float) for pairs in lists for word, score in pairs)


def test_the_request_id_comes_back(echo_stack: Stack) -> None:
    body = {"texts": ["[MASK]"]}
    assert echo_stack.post(OURS, body, **{"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert echo_stack.post(OURS, body).headers["x-request-id"]
    assert (
        echo_stack.post(OURS, body, **{"x-request-id": "no spaces, please"}).headers["x-request-id"]
        != "no spaces, please"
    )


FILL_ROUTES: list[tuple[str, dict[str, Any]]] = [
    (OURS, {"texts": ["今天[MASK]很好"]}),
    (OURS, {"texts": ["今天[MASK][MASK]很好"], "joint": True}),
    (OURS, {"texts": ["今天[MASK]很好"], "targets": ["天气"], "score_targets": "pseudo_likelihood"}),
    ("/", {"inputs": "今天[MASK]很好"}),
    ("/v2/models/bert/infer", {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["[MASK]"]}]}),
    ("/v1/models/bert:predict", {"instances": ["今天[MASK]很好"]}),
    ("/predict", {"text": "今天[MASK]很好"}),
    ("/fill", {"texts": ["今天[MASK]很好"]}),
]


@pytest.mark.parametrize(("path", "body"), FILL_ROUTES)
def test_every_fill_route_tells_where_the_time_went(echo_stack: Stack, path: str, body: dict[str, Any]) -> None:
    response = echo_stack.post(path, body)
    assert response.status_code == 200, response.text
    for part in ("tokenize", "queue", "inference"):
        assert 0 <= float(response.headers[f"x-fillmask-{part}-ms"]) < 10_000
    assert int(response.headers["x-fillmask-batch-size"]) >= 1
    assert response.headers["x-fillmask-model-revision"] == "main"
    assert response.headers["x-request-id"]
    assert "x-fillmask-warnings" not in response.headers


def test_m29_unknown_tokens_are_warned_of(echo_stack: Stack) -> None:
    """In a header and in the body; the text itself is filled as it is."""
    texts = ["重刋道藏輯要[MASK]", "今天[MASK]很好", "ラピュタ鿿[MASK]"]
    response = echo_stack.post(OURS, {"texts": texts, "top_k": 1})
    results, warnings = response.json()["results"], response.json()["warnings"]
    unknown = [result["unknown_tokens"] for result in results]
    assert unknown[1] == 0
    assert unknown[0] > 0
    assert unknown[2] > 0
    assert [(warning["index"], warning["warning_type"]) for warning in warnings] == [
        (0, "unknown_tokens"),
        (2, "unknown_tokens"),
    ]
    assert response.headers["x-fillmask-warnings"] == f"unknown_tokens={sum(unknown)}"
    for text, result in zip(texts, results, strict=True):
        (candidate,) = result["masks"][0]["candidates"]
        assert candidate["filled_text"] == text.replace("[MASK]", candidate["word"])
    assert echo_stack.post("/", {"inputs": texts}).headers["x-fillmask-warnings"]


def test_m15_whole_targets_are_scored_where_that_is_asked_for(echo_stack: Stack) -> None:
    """天气 is refused by default; with pseudo_likelihood it is scored as a word of two tokens, never as 天."""
    text = "今天[MASK]很好"
    body = {"texts": [text], "targets": ["天气", "心情", "天"]}
    assert echo_stack.post(OURS, body).json()["error_type"] == "bad_target"
    answer = echo_stack.post(OURS, body | {"score_targets": "pseudo_likelihood"}).json()
    (mask,) = answer["results"][0]["masks"]
    assert text[mask["start"] : mask["end"]] == "[MASK]"
    tokens = {candidate["word"]: len(candidate["token_ids"]) for candidate in mask["candidates"]}
    assert tokens == {"天气": 2, "心情": 2, "天": 1}
    scores = [candidate["score"] for candidate in mask["candidates"]]
    assert scores == sorted(scores, reverse=True)
    for candidate in mask["candidates"]:
        assert candidate["score"] == pytest.approx(math.exp(candidate["log_likelihood"]))
        assert candidate["filled_text"] == f"今天{candidate['word']}很好"
    first = echo_stack.post(OURS, body | {"score_targets": "pseudo_likelihood", "top_k": 1}).json()
    assert first["results"][0]["masks"][0]["candidates"] == mask["candidates"][:1]


def test_neighbouring_masks_decoded_together(echo_stack: Stack) -> None:
    texts = ["今天[MASK][MASK]很好", "[MASK]月[MASK][MASK]"]
    answer = echo_stack.post(OURS, {"texts": texts, "joint": True, "top_k": 3}).json()
    spans = [
        [text[m["start"] : m["end"]] for m in r["masks"]] for text, r in zip(texts, answer["results"], strict=True)
    ]
    assert spans == [["[MASK][MASK]"], ["[MASK]", "[MASK][MASK]"]]
    for text, result in zip(texts, answer["results"], strict=True):
        for mask in result["masks"]:
            assert len(mask["candidates"]) == 3
            for candidate in mask["candidates"]:
                expected = text[: mask["start"]] + candidate["word"] + text[mask["end"] :]
                assert candidate["filled_text"] == expected
    alone = echo_stack.post(OURS, {"texts": texts[1:], "joint": True, "top_k": 3}).json()
    assert alone["results"] == answer["results"][1:]


@pytest.mark.parametrize(
    "options",
    [
        {"joint": True, "targets": ["天"]},
        {"score_targets": "pseudo_likelihood"},
        {"score_targets": "average"},
        {"joint": 1},
        {"texts": ["[MASK]月[MASK]"], "targets": ["天气"], "score_targets": "pseudo_likelihood"},
    ],
)
def test_options_that_contradict_are_refused(echo_stack: Stack, options: dict[str, Any]) -> None:
    refused = echo_stack.post(OURS, {"texts": ["今天[MASK]很好"]} | options)
    assert refused.status_code == 422
    assert refused.json()["error_type"] == "invalid_parameter"


def test_operators_see_what_happens(echo_stack: Stack) -> None:
    assert echo_stack.http.get("/healthz").json() == {"status": "alive"}
    assert echo_stack.http.get("/readyz").json() == {"status": "ready"}
    info = echo_stack.http.get("/info").json()
    assert info["mask_token"] == "[MASK]"
    assert [worker["state"] for worker in info["workers"]] == ["ready"]
    echo_stack.post(OURS, {"texts": ["[MASK]"]})
    metrics = echo_stack.http.get("/metrics").text
    assert 'fillmask_http_requests_total{route="/v1/fill-mask",status="200"}' in metrics
    assert "fillmask_late_replies_total 0.0" in metrics


def test_the_openapi_document_and_its_examples(echo_stack: Stack) -> None:
    paths = echo_stack.http.get("/openapi.json").json()["paths"]
    posts = {path: operations["post"] for path, operations in paths.items() if "post" in operations}
    assert posts.keys() >= {OURS, "/", "/models/{model}", "/v2/models/{model}/infer", "/predict", "/fill"}
    for path, operation in posts.items():
        assert operation["responses"]["503"]["content"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        example = schema["examples"][0] if "examples" in schema else _example(schema)
        filled_in = path.replace("{model}", "bert").replace("{version}", "main")
        assert echo_stack.post(filled_in, example).status_code == 200, path
    assert echo_stack.http.get("/docs").status_code == 200


def _example(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: field["examples"][0] for name, field in schema["properties"].items()}


def test_b09_ten_thousand_at_once_each_with_its_own_answer(echo_stack: Stack) -> None:
    """Every text is another one, with its own top_k and mask count; the echo engine's answer can be told beforehand."""
    vocabulary = _vocabulary(echo_stack)
    chance = random.Random(2026)

    def body(number: int) -> bytes:
        words = f"第{number}个{'[MASK]' * chance.randint(1, 3)}"
        return json.dumps({"texts": [words], "top_k": chance.choice((1, 2, 5, 20))}).encode()

    def right(asked: bytes, status: int, answer: bytes) -> bool:
        sent = json.loads(asked)
        (text,) = sent["texts"]
        masks = json.loads(answer)["results"][0]["masks"] if status == 200 else []
        first = _echo(vocabulary, text)
        size = len(vocabulary)
        expected = [(first + rank) % size for rank in range(sent["top_k"])]
        return len(masks) == text.count("[MASK]") and all(
            [candidate["token_id"] for candidate in mask["candidates"]] == expected for mask in masks
        )

    bodies = iter([body(number) for number in range(10_000)])
    load = Load(echo_stack.port, OURS, bodies, connections=200, duration_s=100)
    outcome = asyncio.run(closed_loop(load, right))
    assert (outcome.answered, outcome.wrong, outcome.lost) == (10_000, 0, 0)


def _vocabulary(stack: Stack) -> dict[str, int]:
    """Token -> id, as the service itself tells: the echo engine lists the whole vocabulary."""
    candidates = stack.post(OURS, {"texts": ["[MASK]"], "top_k": 1000}).json()["results"][0]["masks"][0]["candidates"]
    return {candidate["token"]: candidate["token_id"] for candidate in candidates}


def _echo(vocabulary: dict[str, int], text: str) -> int:
    """What the echo engine answers first: the sum of the text's token ids."""
    words, masks = text[: text.index("[MASK]")], text.count("[MASK]")
    digits = words[1:-1]
    pieces = ["第", *([digits[0]] + [f"##{digit}" for digit in digits[1:]]), "个"]
    ids = [vocabulary.get(piece, vocabulary["[UNK]"]) for piece in pieces]
    total = vocabulary["[CLS]"] + sum(ids) + masks * vocabulary["[MASK]"] + vocabulary["[SEP]"]
    return total % len(vocabulary)
