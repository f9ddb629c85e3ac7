"""Whatever a client sends: a clear error in one shape, never a 5xx, never its own text back. Ids are those of the field cases."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stacks import Stack

OURS = "/v1/fill-mask"
GOOD = "床前明月光，疑是地[MASK]霜。"
MARK = "secret-in-the-text"


def send(
    stack: Stack, content: bytes, content_type: str | None = "application/json", path: str = OURS
) -> httpx.Response:
    headers = {"content-type": content_type} if content_type else {}
    return stack.http.post(path, content=content, headers=headers)


def assert_refused(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"] == "application/json"
    assert len(response.content) <= 4096
    assert MARK not in response.text
    body: dict[str, Any] = response.json()
    assert body["error"]
    assert body["error_type"]
    return body


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_h01_numbers_that_are_none(echo_stack: Stack, number: str) -> None:
    body = f'{{"texts": ["{GOOD}"], "top_k": {number}}}'.encode()
    assert assert_refused(send(echo_stack, body), 400, 422)["error_type"] in {"invalid_parameter", "malformed_body"}


@pytest.mark.parametrize("content_type", ["multipart/form-data", "application/octet-stream", "application/json"])
def test_h02_bytes_that_are_no_text(echo_stack: Stack, content_type: str) -> None:
    assert_refused(send(echo_stack, b"\xff\x00\xfe", content_type), 400, 415)


@pytest.mark.parametrize("value", ["true", '"3"', "5.0", "5.5", "null", "[]"])
def test_h06_a_number_is_a_number(echo_stack: Stack, value: str) -> None:
    body = f'{{"texts": ["{GOOD}"], "top_k": {value}}}'.encode()
    assert "top_k" in assert_refused(send(echo_stack, body), 422)["error"]


@pytest.mark.parametrize("field", ["topk", "target", "topK", "text"])
def test_h07_a_misspelt_field_is_named(echo_stack: Stack, field: str) -> None:
    refused = assert_refused(echo_stack.post(OURS, {"texts": [GOOD], field: 3}), 422)
    assert field in refused["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"texts":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"a":' * 900 + b"1" + b"}" * 900,
    ],
    ids=["100000 lists", "900 lists in texts", "900 objects"],
)
def test_h09_deep_nesting(echo_stack: Stack, body: bytes) -> None:
    assert_refused(send(echo_stack, body), 400, 422)


@pytest.mark.parametrize("encoding", ["gbk", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=gbk"])
def test_h10_only_utf_8(echo_stack: Stack, encoding: str, content_type: str) -> None:
    body = json.dumps({"texts": [GOOD]}, ensure_ascii=False).encode(encoding)
    assert "UTF-8" in assert_refused(send(echo_stack, body, content_type), 400)["error"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_h11_the_content_type_is_asked_for(echo_stack: Stack, content_type: str | None) -> None:
    body = json.dumps({"texts": [GOOD]}).encode()
    assert "Content-Type: application/json" in assert_refused(send(echo_stack, body, content_type), 415)["error"]


def test_h11_a_charset_does_no_harm(echo_stack: Stack) -> None:
    body = json.dumps({"texts": [GOOD]}).encode()
    assert send(echo_stack, body, "application/json; charset=utf-8").status_code == 200


def test_h04_a_body_over_the_limit(echo_stack: Stack) -> None:
    refused = assert_refused(echo_stack.post(OURS, {"texts": ["好" * 1_000_000]}), 413)
    assert refused["details"]["limit"] == 1 << 20


def test_m28_a_lone_surrogate(echo_stack: Stack) -> None:
    for body in (b'{"texts": ["\\ud83d[MASK]"]}', b'{"texts": ["[MASK]"], "targets": ["\\ud83d"]}', b'{"\\ud83d": 1}'):
        assert_refused(send(echo_stack, body), 400, 422)


@pytest.mark.parametrize("texts", [[], [""], ["   "], ["\u200b"], [GOOD, ""]])
def test_m33_nothing_to_fill(echo_stack: Stack, texts: list[str]) -> None:
    refused = assert_refused(echo_stack.post(OURS, {"texts": texts}), 422)
    if texts:
        assert refused["error_type"] == "no_mask"
        assert refused["details"]["index"] == len(texts) - 1


@pytest.mark.parametrize("look_alike", ["[mask]", "［ＭＡＳＫ］", "【MASK】", "[ MASK ]", "___", "[BLANK]", "<mask>"])
def test_m11_look_alike_masks_are_named(echo_stack: Stack, look_alike: str) -> None:
    refused = assert_refused(echo_stack.post(OURS, {"texts": [f"床前明月光，疑是地{look_alike}霜。"]}), 422)
    assert refused["error_type"] == "no_mask"
    assert "looks like a mask" in refused["error"]
    assert "[MASK]" in refused["error"]


def test_m07_the_longest_text_and_one_more(echo_stack: Stack) -> None:
    assert echo_stack.post(OURS, {"texts": ["好" * 509 + "[MASK]"]}).status_code == 200
    refused = assert_refused(echo_stack.post(OURS, {"texts": ["好" * 510 + "[MASK]"]}), 422)
    assert refused["error_type"] == "too_long"
    assert (refused["details"]["tokens"], refused["details"]["limit"]) == (513, 512)


@pytest.mark.parametrize("top_k", [0, -1, 1001, 10**9])
def test_m18_top_k_out_of_range(echo_stack: Stack, top_k: int) -> None:
    assert "top_k" in assert_refused(echo_stack.post(OURS, {"texts": [GOOD], "top_k": top_k}), 422)["error"]


def test_m18_top_k_beyond_the_vocabulary_means_all(echo_stack: Stack) -> None:
    answer = echo_stack.post(OURS, {"texts": [GOOD], "top_k": 1000}).json()
    vocabulary = echo_stack.http.get("/info").json()["vocabulary_size"]
    assert len(answer["results"][0]["masks"][0]["candidates"]) == vocabulary


def test_m15_m16_targets_that_are_not_one_token(echo_stack: Stack) -> None:
    refused = assert_refused(
        echo_stack.post(OURS, {"texts": [GOOD], "targets": ["天", "天气", "[MASK]", "[UNK]", "鿿"]}), 422
    )
    assert refused["error_type"] == "bad_target"
    assert refused["details"]["targets"] == [1, 2, 3, 4]


def test_m18_fewer_targets_than_top_k(echo_stack: Stack) -> None:
    answer = echo_stack.post(OURS, {"texts": [GOOD], "targets": ["天", "气"], "top_k": 5}).json()
    assert {candidate["word"] for candidate in answer["results"][0]["masks"][0]["candidates"]} == {"天", "气"}


@pytest.mark.parametrize("value", ["0", "-5", "60001", "1e3", "soon", "9" * 20, "٣"])
def test_a_deadline_is_a_number_of_milliseconds(echo_stack: Stack, value: str) -> None:
    headers = {b"x-request-timeout-ms": value.encode()}
    refused = echo_stack.http.post(OURS, json={"texts": [GOOD]}, headers=headers)
    assert_refused(refused, 422)


def test_unknown_paths_and_methods(echo_stack: Stack) -> None:
    assert_refused(echo_stack.http.get("/nowhere"), 404)
    assert_refused(echo_stack.http.get(OURS), 405)


def test_errors_do_not_repeat_the_text(echo_stack: Stack) -> None:
    for body in ({"texts": [MARK]}, {"texts": [MARK * 2000]}, {"texts": MARK}, {"texts": [GOOD], "targets": [MARK]}):
        assert_refused(echo_stack.post(OURS, body), 422)


@pytest.mark.parametrize(
    ("body", "error_type", "numbers"),
    [
        ({"texts": ["好" * 20_001]}, "text_too_long", {"index": 0, "characters": 20_001, "limit": 20_000}),
        ({"texts": [GOOD] * 257}, "too_many_texts", {"field": "texts", "found": 257, "limit": 256}),
        ({"texts": [GOOD, "[MASK]" * 65]}, "too_many_masks", {"index": 1, "masks": 65, "limit": 64}),
        ({"texts": [GOOD], "top_k": 1001}, "top_k_too_large", {"field": "top_k", "found": 1001, "limit": 1000}),
        (
            {"texts": [GOOD], "targets": ["天"] * 201},
            "too_many_targets",
            {"field": "targets", "found": 201, "limit": 200},
        ),
        (
            {"texts": ["[MASK]" * 20], "top_k": 1000},
            "answer_too_large",
            {"candidates": 20 * 507, "masks": 20, "limit": 10_000},  # 507: the tiny vocabulary
        ),
        (
            {"texts": ["好" * 400 + "[MASK]" * 60] * 50, "top_k": 2},
            "answer_too_large",
            {"characters": 50 * 60 * 2 * 760, "masks": 3000, "limit": 2_000_000},
        ),
        ({"texts": ["[MASK]" * 40], "joint": True}, "too_many_steps", {"steps": 1 + 39 * 8, "limit": 256}),
        (
            {"texts": [GOOD] * 100, "targets": ["天", "地", "人"], "score_targets": "pseudo_likelihood"},
            "too_many_steps",
            {"steps": 300, "limit": 256},
        ),
    ],
)
def test_each_limit_has_its_own_code_and_numbers(
    echo_stack: Stack, body: dict[str, Any], error_type: str, numbers: dict[str, Any]
) -> None:
    refused = assert_refused(echo_stack.post(OURS, body), 422)
    assert refused["error_type"] == error_type
    assert refused["details"] == numbers
    assert str(numbers["limit"]) in refused["error"]


def test_m18_a_default_top_k_hides_no_target(echo_stack: Stack) -> None:
    targets = list("天地人上下大小多少来去你我他")
    answer = echo_stack.post(OURS, {"texts": [GOOD], "targets": targets}).json()
    assert {candidate["word"] for candidate in answer["results"][0]["masks"][0]["candidates"]} == set(targets)
    answer = echo_stack.post(OURS, {"texts": [GOOD], "targets": targets, "top_k": 5}).json()
    assert len(answer["results"][0]["masks"][0]["candidates"]) == 5


def test_m16_a_words_middle_may_be_a_target(echo_stack: Stack) -> None:
    answer = echo_stack.post(OURS, {"texts": ["a book[MASK]"], "targets": ["##ing", "good"]}).json()
    words = [candidate["word"] for candidate in answer["results"][0]["masks"][0]["candidates"]]
    assert set(words) == {"ing", "good"}


def test_m26_invisible_characters_survive_and_change_nothing(echo_stack: Stack) -> None:
    marked = "\ufeff今\u200b天[MASK]\u0000气\u00ad"
    plain, same = echo_stack.post(OURS, {"texts": ["今天[MASK]气", marked]}).json()["results"]
    ids = [[c["token_id"] for c in result["masks"][0]["candidates"]] for result in (plain, same)]
    assert ids[0] == ids[1]
    for candidate in same["masks"][0]["candidates"]:
        assert candidate["filled_text"] == marked.replace("[MASK]", candidate["word"])


def test_m28_one_bad_text_beside_seven_good_ones(echo_stack: Stack) -> None:
    """Sent at once, so that they could share a batch: each good one gets its answer, and the bad one its refusal."""
    bodies = [json.dumps({"texts": [GOOD]}).encode()] * 7 + [b'{"texts": ["\\ud83d[MASK]"]}']
    with ThreadPoolExecutor(8) as clients:
        responses = list(clients.map(lambda body: send(echo_stack, body), bodies))
    assert [response.status_code for response in responses[:7]] == [200] * 7
    assert all(response.json() == responses[0].json() for response in responses[:7])
    assert_refused(responses[7], 400, 422)


def test_m37_sixty_four_clients_with_single_texts_and_lists(echo_stack: Stack) -> None:
    """One tokenizer for all of them, from the event loop and from threads at once."""
    short = echo_stack.post(OURS, {"texts": [GOOD]}).json()["results"][0]
    long_text = "好" * 300 + "[MASK]"
    long = echo_stack.post(OURS, {"texts": [long_text]}).json()["results"][0]

    def ask(number: int) -> bool:
        texts = [GOOD] if number % 2 else [long_text, GOOD] * 10
        expected = [short] if number % 2 else [long, short] * 10
        return bool(echo_stack.post(OURS, {"texts": texts}).json()["results"] == expected)

    with ThreadPoolExecutor(64) as clients:
        assert all(clients.map(ask, range(320)))


@pytest.mark.parametrize("path", ["/predict", "/fill", "/", "/v1/models/bert:predict", "/v2/models/bert/infer"])
@pytest.mark.parametrize(
    "body", [b"", b"\xff\x00\xfe", b"NaN", b'{"top_k": 1e400}', b"[" * 50_000, b'{"\\ud83d": 1}', "好".encode("gbk")]
)
def test_h01_h02_h09_h10_in_every_dialect(echo_stack: Stack, path: str, body: bytes) -> None:
    assert_refused(send(echo_stack, body, path=path), 400, 422)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.text(max_size=60))
def test_m09_only_the_span_of_the_mask_changes(echo_stack: Stack, before: str, after: str) -> None:
    text = f"{before}[MASK]{after}"
    response = echo_stack.http.post(OURS, json={"texts": [text], "top_k": 3})
    assert response.status_code == 200, response.text
    for mask in response.json()["results"][0]["masks"]:
        assert text[mask["start"] : mask["end"]] == "[MASK]"
        for candidate in mask["candidates"]:
            assert candidate["filled_text"] == text[: mask["start"]] + candidate["word"] + text[mask["end"] :]


huge = st.sampled_from([10**40, -(10**400), 10**4000])
secrets = st.text(max_size=20).map(MARK.__add__)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | huge | st.floats(allow_nan=False) | secrets,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
bodies = json_values | st.fixed_dictionaries(
    {},
    optional={name: json_values for name in ("texts", "text", "top_k", "targets", "inputs", "instances", "parameters")},
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([OURS, "/predict", "/fill", "/", "/v1/models/bert:predict", "/v2/models/bert/infer"]), bodies)
def test_any_json_gets_an_answer_that_is_short_and_does_not_repeat_it(echo_stack: Stack, path: str, body: Any) -> None:
    response = send(echo_stack, json.dumps(body).encode(), path=path)
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert_refused(response, 400, 422)
