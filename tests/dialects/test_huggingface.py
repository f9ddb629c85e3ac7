"""huggingface_hub's own client against the running service."""

from typing import Any

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from stacks import Stack

POEM = "床前明月光，疑是地[MASK]霜。"
TWO = "今天[MASK][MASK]很好"
MODEL = "demo-zh"


@pytest.fixture(scope="module")
def client(url: str) -> InferenceClient:
    return InferenceClient(url)


def test_one_text_one_mask(client: InferenceClient) -> None:
    elements = client.fill_mask(POEM)
    assert len(elements) == 5
    assert [element.score for element in elements] == [0.5, 0.25, 0.125, 0.0625, 0.03125]
    for element in elements:
        word = element.token_str.removeprefix("##")
        assert element.sequence == POEM.replace("[MASK]", word)
        assert isinstance(element.token, int)


def test_top_k_and_targets(client: InferenceClient) -> None:
    assert len(client.fill_mask(POEM, top_k=2)) == 2
    elements = client.fill_mask(POEM, targets=["上", "下"])
    assert {element.token_str for element in elements} == {"上", "下"}
    many = list("天地人上下大小多少来去你我他")
    assert len(client.fill_mask(POEM, targets=many)) == len(many), "a default top_k hides no target"


def test_several_masks_are_a_list_each(client: InferenceClient) -> None:
    lists: Any = client.fill_mask(TWO, top_k=2)
    assert [len(elements) for elements in lists] == [2, 2]
    first = lists[0][0]
    assert first.sequence == "今天" + first.token_str.removeprefix("##") + "[MASK]很好"
    assert lists[1][0].sequence.startswith("今天[MASK]")


def test_m14_lists_of_texts(client: InferenceClient, stack: Stack) -> None:
    """As many answers as texts, also for one; each the same as alone."""
    alone = stack.post("/", {"inputs": POEM}).json()
    assert stack.post("/", {"inputs": [POEM]}).json() == [alone]
    several = stack.post("/", {"inputs": [POEM, TWO]}).json()
    assert several == [alone, stack.post("/", {"inputs": TWO}).json()]
    elements: Any = client.fill_mask([POEM, POEM])  # type: ignore[arg-type]
    assert [len(of_text) for of_text in elements] == [5, 5]


@pytest.mark.parametrize(
    ("text", "asked", "told"),
    [
        ("床前明月光", {}, "has no [MASK]"),
        ("床前[mask]", {}, "looks like a mask"),
        (POEM, {"targets": ["天气"]}, "not single ordinary tokens"),
        (POEM, {"top_k": 0}, "top_k"),
        (POEM, {"top_k": 5000}, "limit of 1000"),
    ],
)
def test_errors_can_be_read(client: InferenceClient, text: str, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(HfHubHTTPError, match="422") as raised:
        client.fill_mask(text, **asked)
    assert told in str(raised.value)
    assert raised.value.request_id


def test_health_and_info(url: str) -> None:
    client = InferenceClient(url, provider="hf-inference")
    assert client.health_check()
    info = client.get_endpoint_info()
    assert info["model"] == MODEL
    assert info["limits"]["max_tokens"] == 512


def test_by_model_name(stack: Stack) -> None:
    body = {"inputs": POEM, "options": {"wait_for_model": True, "use_cache": False}}
    assert stack.post(f"/models/{MODEL}", body).json() == stack.post("/", body).json()
    for other in ("bert-base-chinese", "google-bert/bert-base-chinese", f"x/{MODEL}"):
        refused = stack.post(f"/models/{other}", body)
        assert refused.status_code == 404
        assert refused.json()["error_type"] == "unknown_model"
        assert MODEL in refused.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": POEM, "parameters": {"topk": 3}},
        {"inputs": POEM, "top_k": 3},
        {"inputs": []},
        {"inputs": [POEM, 3]},
        {"inputs": {"text": POEM}},
        {"parameters": {}},
    ],
)
def test_what_is_not_theirs_is_refused(stack: Stack, body: dict[str, Any]) -> None:
    refused = stack.post("/", body)
    assert refused.status_code == 422
    assert refused.json()["error_type"] == "invalid_parameter"
