"""NVIDIA's tritonclient against the running service, and the protocol's corners by hand."""

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from stacks import Stack
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

MODEL = "demo-zh"
POEM = "床前明月光，疑是地[MASK]霜。"
TWO = "今天[MASK][MASK]很好"
INFER = f"/v2/models/{MODEL}/infer"


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Any]:
    client = InferenceServerClient(f"127.0.0.1:{stack.port}")
    yield client
    client.close()


def tensor(name: str, values: list[str] | list[int], binary: bool = True, datatype: str = "BYTES") -> Any:
    given = InferInput(name, [len(values)], datatype)
    array = np.array(values, dtype=np.object_ if datatype == "BYTES" else np.int32)
    return given.set_data_from_numpy(array, binary_data=binary)


def rows(result: InferResult) -> dict[str, Any]:
    names = ("text_index", "mask_index", "token", "token_id", "score", "filled_text")
    return {name: result.as_numpy(name).tolist() for name in names}


def test_server_and_model(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "main")
    assert not client.is_model_ready("another")
    assert not client.is_model_ready(MODEL, "7")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_configuration"]
    metadata = client.get_model_metadata(MODEL)
    assert metadata["name"] == MODEL
    assert {"name": "text", "datatype": "BYTES", "shape": [-1]} in metadata["inputs"]
    assert {"name": "score", "datatype": "FP32", "shape": [-1, -1]} in metadata["outputs"]


def test_the_configuration_says_what_must_be_sent(client: Any) -> None:
    """Triton's extension; perf_analyzer asks for it first."""
    told = client.get_model_config(MODEL)
    assert (told["name"], told["max_batch_size"]) == (MODEL, 0)
    assert {"name": "text", "data_type": "TYPE_STRING", "dims": [-1], "optional": False} in told["input"]
    assert {"name": "top_k", "data_type": "TYPE_INT32", "dims": [1], "optional": True} in told["input"]
    assert {"name": "score", "data_type": "TYPE_FP32", "dims": [-1, -1], "optional": False} in told["output"]
    assert client.get_model_config(MODEL, "main") == told
    with pytest.raises(InferenceServerException, match="only the model"):
        client.get_model_config("another")


def test_texts_become_one_row_a_mask(client: Any) -> None:
    inputs = [tensor("text", [POEM, TWO]), tensor("top_k", [3], datatype="INT32")]
    told = rows(client.infer(MODEL, inputs, model_version="main", request_id="mine"))
    assert told["text_index"] == [0, 1, 1]
    assert told["mask_index"] == [0, 0, 1]
    assert [len(scores) for scores in told["score"]] == [3, 3, 3]
    assert told["score"][0] == [0.5, 0.25, 0.125]
    first = told["token"][1][0].decode().removeprefix("##")
    assert told["filled_text"][1][0].decode() == f"今天{first}[MASK]很好"


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_json_and_binary_packed_and_not(
    client: Any, binary: bool, request_algorithm: str | None, response_algorithm: str | None
) -> None:
    names = ("text_index", "mask_index", "token", "token_id", "score", "filled_text")
    inputs = [tensor("text", [POEM, TWO], binary), tensor("targets", ["上", "下"], binary)]
    result = client.infer(
        MODEL,
        inputs,
        outputs=[InferRequestedOutput(name, binary_data=binary) for name in names],
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    told = result.get_response()
    assert all(("data" in output) != binary for output in told["outputs"])
    expected = rows(client.infer(MODEL, [tensor("text", [POEM, TWO]), tensor("targets", ["上", "下"])]))
    found = rows(result)
    for name in names:
        cells = np.array(found[name], dtype=object).ravel().tolist()
        cells = [cell.encode() if isinstance(cell, str) else cell for cell in cells]
        assert cells == np.array(expected[name], dtype=object).ravel().tolist(), name


def test_some_outputs_in_the_order_asked_for(client: Any) -> None:
    outputs = [InferRequestedOutput("score"), InferRequestedOutput("token", binary_data=False)]
    told = client.infer(MODEL, [tensor("text", [POEM])], outputs=outputs, request_id="mine").get_response()
    assert [output["name"] for output in told["outputs"]] == ["score", "token"]
    assert (told["id"], told["model_name"], told["model_version"]) == ("mine", MODEL, "main")


def test_parameters_instead_of_inputs(client: Any) -> None:
    result = client.infer(MODEL, [tensor("text", [POEM])], parameters={"top_k": 2}, priority=1)
    assert result.as_numpy("score").shape == (1, 2)
    result = client.infer(MODEL, [tensor("text", [POEM])], parameters={"targets": "上"})
    assert result.as_numpy("token").tolist() == [["上".encode()]]


def test_the_timeout_is_the_deadline(client: Any) -> None:
    inputs = [tensor("text", [POEM])]
    assert client.infer(MODEL, inputs, timeout=5_000_000).as_numpy("score").shape == (1, 5)
    with pytest.raises(InferenceServerException, match=r"not answered within|longer than the deadline") as raised:
        client.infer(MODEL, inputs, timeout=1)
    assert raised.value.status() in ("503", "504")  # refused at once if the wait is known to be longer
    with pytest.raises(InferenceServerException, match="at most 60000 ms"):
        client.infer(MODEL, inputs, timeout=10**9)


@pytest.mark.parametrize(
    ("model", "inputs", "asked", "status", "told"),
    [
        ("another", [tensor("text", [POEM])], {}, "404", MODEL),
        (MODEL, [tensor("text", [POEM])], {"model_version": "7"}, "404", "main"),
        (MODEL, [tensor("text", ["没有"])], {}, "422", "has no [MASK]"),
        (MODEL, [tensor("words", [POEM])], {}, "422", "text BYTES"),
        (MODEL, [tensor("text", [7], datatype="INT32")], {}, "422", "text BYTES"),
        (MODEL, [tensor("text", [POEM]), tensor("top_k", [0], datatype="INT32")], {}, "422", "top_k"),
        (MODEL, [tensor("text", [POEM]), tensor("top_k", [1, 2], datatype="INT32")], {}, "422", "top_k"),
        (MODEL, [tensor("text", [POEM]), tensor("targets", ["天气"])], {}, "422", "not single ordinary tokens"),
        (MODEL, [tensor("text", [POEM])], {"parameters": {"topk": 3}}, "422", "unknown field"),
        (MODEL, [tensor("text", [POEM])], {"outputs": [InferRequestedOutput("logits")]}, "422", "the outputs are"),
        (MODEL, [tensor("text", [])], {}, "422", "at least one"),
    ],
)
def test_errors_can_be_read(
    client: Any, model: str, inputs: list[Any], asked: dict[str, Any], status: str, told: str
) -> None:
    with pytest.raises(InferenceServerException) as raised:
        client.infer(model, inputs, **asked)
    assert told in raised.value.message()
    assert raised.value.status() == status


def body(**changes: Any) -> dict[str, Any]:
    given = {"name": "text", "shape": [2], "datatype": "BYTES", "data": [POEM, TWO]}
    return {"inputs": [given | changes]}


def test_plain_json_without_a_client(stack: Stack) -> None:
    flat = stack.post(INFER, body()).json()
    assert "id" not in flat
    assert stack.post(INFER, body(shape=[2, 1], data=[[POEM], [TWO]])).json() == flat
    assert stack.http.post(INFER, content=json.dumps(body()).encode()).json() == flat, "no content type is asked for"


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [10**30, 10**30]},
        {"shape": [], "data": [POEM, TWO]},
        {"data": [POEM, 3]},
        {"data": None},
        {"data": None, "parameters": {"binary_data_size": 10}},
        {"data": None, "parameters": {"binary_data_size": -1}},
        {"datatype": "FP64"},
        {"name": "x" * 1000},
    ],
)
def test_tensors_that_are_none(stack: Stack, changes: dict[str, Any]) -> None:
    refused = stack.post(INFER, body(**changes))
    assert refused.status_code in (400, 422)
    assert refused.json()["error_type"] in ("malformed_body", "invalid_parameter")


@pytest.mark.parametrize(
    "asked",
    [
        {"inputs": body()["inputs"] * 2},
        {"inputs": [*body()["inputs"], {"name": "top_k", "shape": [1], "datatype": "INT32", "data": [1 << 31]}]},
        {"inputs": [*body()["inputs"], {"name": "top_k", "shape": [1], "datatype": "INT32", "data": [True]}]},
        {"inputs": [*body()["inputs"], {"name": "top_k", "shape": [1], "datatype": "secret", "data": ["3"]}]},
        body() | {"outputs": [{"name": "score", "parameters": {"binary_data": "yes"}}]},
    ],
    ids=["twice the same input", "no INT32", "no number", "no datatype", "no boolean"],
)
def test_what_is_ambiguous_or_of_another_type_is_refused(stack: Stack, asked: dict[str, Any]) -> None:
    refused = stack.post(INFER, asked)
    assert refused.status_code == 422, refused.text
    assert refused.json()["error_type"] == "invalid_parameter"
    assert "secret" not in refused.text


@pytest.mark.parametrize(
    ("length", "tail"),
    [
        ("0", b""),
        ("99999", b""),
        ("-1", b""),
        ("x", b""),
        (None, b"tail"),
        ("right", b"\x08\x00\x00\x00abc"),
        ("right", b"\x03\x00\x00\x00\xff\xff\xff"),
        ("right", b"\x01\x00"),
    ],
)
def test_binary_data_that_are_none(stack: Stack, length: str | None, tail: bytes) -> None:
    told = json.dumps(body(data=None, shape=[1], parameters={"binary_data_size": len(tail)})).encode()
    headers = {} if length is None else {"inference-header-content-length": length.replace("right", str(len(told)))}
    refused = stack.http.post(INFER, content=told + tail, headers=headers)
    assert refused.status_code in (400, 422), refused.text
    assert refused.json()["error_type"] in ("malformed_body", "invalid_parameter")


def test_a_body_that_unpacks_without_end_is_refused(stack: Stack) -> None:
    for encoding, packed in (("gzip", gzip.compress(bytes(1 << 28), 6)), ("deflate", zlib.compress(bytes(1 << 28)))):
        refused = stack.http.post(INFER, content=packed, headers={"content-encoding": encoding})
        assert refused.status_code == 413, refused.text
        assert refused.json()["details"]["limit"] == 1 << 20


@pytest.mark.parametrize(
    ("encoding", "content", "status"),
    [("gzip", b"{}", 400), ("deflate", b"\x1f\x8b", 400), ("gzip", gzip.compress(b"{}")[:-4], 400), ("br", b"{}", 415)],
)
def test_bodies_packed_wrongly(stack: Stack, encoding: str, content: bytes, status: int) -> None:
    assert stack.http.post(INFER, content=content, headers={"content-encoding": encoding}).status_code == status


def test_kserve_v1(stack: Stack) -> None:
    ours = stack.post("/v1/fill-mask", {"texts": [POEM, TWO], "top_k": 2}).json()["results"]
    asked = {"instances": [POEM, {"text": TWO}], "parameters": {"top_k": 2}}
    assert stack.post(f"/v1/models/{MODEL}:predict", asked).json() == {"predictions": ours}
    assert stack.http.get("/v1/models").json() == {"models": [MODEL]}
    assert stack.http.get(f"/v1/models/{MODEL}").json() == {"name": MODEL, "ready": True}
    assert stack.http.get("/v1/models/another").json()["error_type"] == "unknown_model"
    assert stack.post("/v1/models/another:predict", asked).status_code == 404
    assert stack.post(f"/v1/models/{MODEL}:predict", {"instances": [3]}).status_code == 422
    assert stack.post(f"/v1/models/{MODEL}:predict", {"instances": []}).status_code == 422
