"""More of what clients send, in every dialect at once: the text comes back as it was, and nothing is more than it says.

Ids are those of the field cases; tests/e2e/test_input.py has the rest.
"""

import gzip
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stacks import Stack

OURS = "/v1/fill-mask"
POEM = "床前明月光，疑是地[MASK]霜。"


class Dialect(NamedTuple):
    """`body` asks for the two best of one text with `parameters` added; `filled` finds the filled texts, mask by mask."""

    path: str
    body: Callable[..., dict[str, Any]]
    filled: Callable[[Any], list[list[str]]]


def infer(text: str, **parameters: Any) -> dict[str, Any]:
    inputs = [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]
    return {"inputs": inputs, "outputs": [{"name": "filled_text"}], "parameters": {"top_k": 2} | parameters}


def rows(answer: Any) -> list[list[str]]:
    cells = answer["outputs"][0]["data"]
    return [cells[first : first + 2] for first in range(0, len(cells), 2)]


def of_masks(result: Any) -> list[list[str]]:
    return [[candidate["filled_text"] for candidate in mask["candidates"]] for mask in result["masks"]]


def of_elements(elements: Any) -> list[list[str]]:
    lists = elements if isinstance(elements[0], list) else [elements]
    return [[element["sequence"] for element in of_mask] for of_mask in lists]


DIALECTS = (
    Dialect(OURS, lambda text, **more: {"texts": [text], "top_k": 2} | more, lambda a: of_masks(a["results"][0])),
    Dialect("/", lambda text, **more: {"inputs": text, "parameters": {"top_k": 2} | more}, of_elements),
    Dialect("/models/bert", lambda text, **more: {"inputs": text, "parameters": {"top_k": 2} | more}, of_elements),
    Dialect(
        "/v1/models/bert:predict",
        lambda text, **more: {"instances": [text], "parameters": {"top_k": 2} | more},
        lambda a: of_masks(a["predictions"][0]),
    ),
    Dialect("/v2/models/bert/infer", infer, rows),
)

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.path for dialect in DIALECTS])

STRANGE = [
    *("\u200b", "\u200d", "\ufeff", "\u0000", "\u00ad", "\u200e", "\u202e", "\u2067", "\u0301", "\u20dd", "\ufe0f"),
    *("\r\n", "\r", "\n", "\t", "\u2028", "\u0085", "\u3000", "\u00a0", "  ", "\x7f", "\x1b", "\uffff", "\U0010ffff"),
    *(
        "👨‍👩‍👧",
        "🇨🇳",
        "e\u0301",
        "ﬁ",
        "Ａ",
        "İ",
        "ß",
        "각",
        "ㄱ",
        "क्षि",
        "𠮷",
        "مرحبا",
        "好",
        "天",
        "a",
        "9",
        "”",
        "…",
        "\\",
        '"',
    ),
    *("[", "]", "[MASK", "MASK]", "[mask]", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "##a", "<", "&lt;", "%5BMASK%5D"),
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*STRANGE, *["[MASK]"] * 20]), min_size=1, max_size=12).map("".join))
def test_m09_m26_strange_texts_come_back_but_for_the_span_in_every_dialect(echo_stack: Stack, text: str) -> None:
    places = [place for place in range(len(text)) if text.startswith("[MASK]", place)]
    found = [echo_stack.post(dialect.path, dialect.body(text)) for dialect in DIALECTS]
    if not places:
        assert [response.json()["error_type"] for response in found] == ["no_mask"] * len(DIALECTS)
        return
    filled = [dialect.filled(response.json()) for dialect, response in zip(DIALECTS, found, strict=True)]
    masks = found[0].json()["results"][0]["masks"]
    assert [(mask["start"], mask["end"]) for mask in masks] == [(place, place + 6) for place in places]
    expected = [
        [text[: mask["start"]] + candidate["word"] + text[mask["end"] :] for candidate in mask["candidates"]]
        for mask in masks
    ]
    assert filled == [expected] * len(DIALECTS)


@every_dialect
def test_m15_a_target_that_is_named_twice_is_one_candidate(echo_stack: Stack, dialect: Dialect) -> None:
    targets = ["上", "下", "上"]
    if dialect.filled is rows:
        (shown,) = echo_stack.post(dialect.path, infer(POEM, targets=targets)).json()["outputs"]
        assert len(shown["data"]) == 2
    else:
        (filled,) = dialect.filled(echo_stack.post(dialect.path, dialect.body(POEM, targets=targets)).json())
        assert sorted(filled) == sorted(POEM.replace("[MASK]", target) for target in ("上", "下"))


def test_m15_also_where_whole_targets_are_scored(echo_stack: Stack) -> None:
    body = {"texts": [POEM], "targets": ["天气", "上", "天气"], "score_targets": "pseudo_likelihood"}
    (mask,) = echo_stack.post(OURS, body).json()["results"][0]["masks"]
    assert sorted(candidate["word"] for candidate in mask["candidates"]) == ["上", "天气"]


@every_dialect
@pytest.mark.parametrize("digits", [40, 400, 4300])
def test_m18_numbers_beyond_all_bounds(echo_stack: Stack, dialect: Dialect, digits: int) -> None:
    """Refused in few words: Python may neither make a float of them nor print them at length."""
    asked = [dialect.body(POEM, top_k=10**digits - 1)]
    if dialect.filled is rows:
        asked += [infer(POEM, timeout=10**digits - 1)]
        asked += [{"inputs": [*infer(POEM)["inputs"], top_k_tensor(10**digits - 1)]}]
    for body in asked:
        refused = echo_stack.post(dialect.path, body)
        assert refused.status_code == 422
        assert refused.json()["error_type"] == "invalid_parameter"
        assert len(refused.content) < 300


def top_k_tensor(value: int) -> dict[str, Any]:
    return {"name": "top_k", "shape": [1], "datatype": "INT32", "data": [value]}


def test_m14_as_many_answers_as_texts_up_to_the_limit(echo_stack: Stack) -> None:
    texts = [f"第{number}个{'[MASK]' * (1 + number % 3)}" for number in range(256)]
    together = echo_stack.post(OURS, {"texts": texts, "top_k": 1}).json()["results"]
    assert [len(result["masks"]) for result in together] == [text.count("[MASK]") for text in texts]
    for number in (0, 100, 255):
        alone = echo_stack.post(OURS, {"texts": [texts[number]], "top_k": 1}).json()["results"]
        assert alone == [together[number]]


@pytest.mark.parametrize("path", [OURS, "/", "/models/bert", "/v1/models/bert:predict", "/predict", "/fill"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity"])
def test_h11_a_packed_body_is_refused_by_its_name(echo_stack: Stack, path: str, encoding: str) -> None:
    """Only /v2 unpacks; elsewhere it would look like broken JSON."""
    packed = gzip.compress(json.dumps({"texts": [POEM]}).encode())
    headers = {"content-type": "application/json", "content-encoding": encoding}
    refused = echo_stack.http.post(path, content=packed, headers=headers)
    assert refused.status_code == 415
    assert "Content-Encoding" in refused.json()["error"]
    assert refused.json()["error_type"] == "unsupported_media_type"


def test_an_identity_is_no_packing(echo_stack: Stack) -> None:
    headers = {"content-type": "application/json", "content-encoding": "Identity"}
    body = json.dumps({"texts": [POEM]}).encode()
    assert echo_stack.http.post(OURS, content=body, headers=headers).status_code == 200
