"""The Open Inference Protocol v2 (KServe, Triton): /v2 and what is below it, with tensors as JSON or binary.

infer takes `text` BYTES [n] and, as inputs or as request parameters, `top_k` and `targets`. It answers with one row a mask, of
all texts in order, M rows and k candidates each: text_index and mask_index INT32 [M]; token BYTES, token_id INT32, score FP32
and filled_text BYTES [M, k]. The parameter `timeout` (microseconds) is the deadline; `priority` and sequence_* have no effect.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field

from api.bodies import RawRoute, parse_json
from api.filling import FilledText, FillMask, FillRequest
from api.ops import readiness
from api.routes.described import ERRORS, UNKNOWN_MODEL, json_body, path_parameters
from api.schemas import RequestBody, TopK
from api.spent import answer
from api.tensors import (
    InputTensor,
    OutputTensor,
    RequestedOutput,
    accepted_encoding,
    compressed,
    decompressed,
    read_inputs,
    split,
    write_outputs,
)
from common.errors import InvalidParameter

EXTENSIONS = ["binary_tensor_data", "model_configuration"]

JSON_LENGTH = "inference-header-content-length"

INPUTS = {"text": ("BYTES", [-1]), "top_k": ("INT32", [1]), "targets": ("BYTES", [-1])}
OPTIONAL = frozenset(("top_k", "targets"))
OUTPUTS = {
    "text_index": ("INT32", [-1]),
    "mask_index": ("INT32", [-1]),
    "token": ("BYTES", [-1, -1]),
    "token_id": ("INT32", [-1, -1]),
    "score": ("FP32", [-1, -1]),
    "filled_text": ("BYTES", [-1, -1]),
}

_EXAMPLE: dict[str, Any] = {
    "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["床前明月光，疑是地[MASK]霜。"]}]
}


class InferParameters(RequestBody):
    top_k: TopK | None = None
    targets: str | list[str] | None = Field(default=None, min_length=1)
    timeout: int = Field(default=0, ge=0, lt=1 << 63, description="the deadline in microseconds; 0: the service's own")
    binary_data_output: bool = Field(default=False, description="all outputs as binary data")
    priority: int = Field(default=0, description="without effect")
    sequence_id: int | str = Field(default=0, description="without effect, as the next two")
    sequence_start: bool = False
    sequence_end: bool = False


class InferBody(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str | None = Field(default=None, max_length=128, description="comes back in the answer")
    parameters: InferParameters = InferParameters()
    inputs: list[InputTensor] = Field(min_length=1)
    outputs: list[RequestedOutput] = Field(default=[], description="all of them, if none is named")


def router(service: FillMask) -> APIRouter:
    # Decorators are applied from below: of two that could match a path, the lower one is asked first.
    routes = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], route_class=RawRoute)
    title, revision = service.checkpoint.title, service.checkpoint.revision
    _add_questions(routes, service)

    @routes.post("/models/{model:path}/infer", **_about_infer("model"))
    @routes.post("/models/{model:path}/versions/{version}/infer", **_about_infer("model", "version"))
    async def infer(request: Request) -> Response:
        service.check_model(**request.path_params)
        asked, binary = await _read(request, service.settings.max_body_bytes)
        names = _output_names(asked)
        filled = await service.fill(_question(service, request, asked, binary))
        header = {"model_name": title, "model_version": revision} | ({"id": asked.id} if asked.id else {})
        outputs = _outputs(service, filled.texts)
        body, json_length = write_outputs(
            header, [outputs[name] for name in names], {name for name, packed in names.items() if packed}
        )
        response = await _response(request, body, json_length)
        response.raw_headers += service.headers(filled.spent)
        return response

    return routes


def _add_questions(routes: APIRouter, service: FillMask) -> None:
    """What can be asked before anything is inferred: is it there, is it ready, what does it take."""
    title, revision = service.checkpoint.title, service.checkpoint.revision

    @routes.get("", summary="Server metadata")
    async def server(request: Request) -> Response:
        return answer({"name": "fillmask", "version": request.app.version, "extensions": EXTENSIONS})

    @routes.get("/health/live", summary="Is this process alive?")
    async def live(_request: Request) -> Response:
        return answer({"live": True})

    @routes.get("/health/ready", summary="What /readyz says")
    async def ready(_request: Request) -> Response:
        return readiness(service)

    @routes.get("/models/{model:path}/ready", **_about("Model readiness", "model"))
    @routes.get("/models/{model:path}/versions/{version}/ready", **_about("Model readiness", "model", "version"))
    async def model_ready(request: Request) -> Response:
        service.check_model(**request.path_params)
        return readiness(service)

    @routes.get("/models/{model:path}/config", **_about("Model configuration, as Triton tells it", "model"))
    @routes.get("/models/{model:path}/versions/{version}/config", **_about("Model configuration", "model", "version"))
    async def configuration(request: Request) -> Response:
        service.check_model(**request.path_params)
        told = {"name": title, "platform": "fillmask", "max_batch_size": 0}  # 0: no dimension is one of a batch
        return answer(told | {"input": _configured(INPUTS), "output": _configured(OUTPUTS)})

    @routes.get("/models/{model:path}", **_about("Model metadata", "model"))
    @routes.get("/models/{model:path}/versions/{version}", **_about("Model metadata", "model", "version"))
    async def metadata(request: Request) -> Response:
        service.check_model(**request.path_params)
        inputs, outputs = _described(INPUTS), _described(OUTPUTS)
        told = {"name": title, "versions": [revision], "platform": "fillmask", "inputs": inputs, "outputs": outputs}
        return answer(told)


def _about(summary: str, *names: str) -> dict[str, Any]:
    return {"summary": summary, "responses": UNKNOWN_MODEL, "openapi_extra": path_parameters(*names)}


def _about_infer(*names: str) -> dict[str, Any]:
    return {
        "summary": "Fill the masks of one or more texts",
        "responses": {**ERRORS, **UNKNOWN_MODEL},
        "openapi_extra": json_body(InferBody) | path_parameters(*names),
    }


def _described(tensors: dict[str, tuple[str, list[int]]]) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": datatype, "shape": shape} for name, (datatype, shape) in tensors.items()]


def _configured(tensors: dict[str, tuple[str, list[int]]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "data_type": f"TYPE_{datatype}".replace("BYTES", "STRING"),
            "dims": shape,
            "optional": name in OPTIONAL,
        }
        for name, (datatype, shape) in tensors.items()
    ]


async def _read(request: Request, most_bytes: int) -> tuple[InferBody, bytes]:
    """What was asked, and the binary data behind it."""
    packing = request.headers.get("content-encoding", "").strip().lower()
    raw = decompressed(await request.body(), packing, most_bytes)
    told, binary = split(raw, request.headers.get(JSON_LENGTH))
    return parse_json(told, InferBody), binary


def _question(service: FillMask, request: Request, asked: InferBody, binary: bytes) -> FillRequest:
    """What the inputs say, else what the parameters say."""
    for tensor in asked.inputs:
        known = INPUTS.get(tensor.name)
        if known is None or (known[0] == "BYTES") != (tensor.datatype == "BYTES"):
            raise InvalidParameter("the inputs are text BYTES, top_k INT32 and targets BYTES", inputs=list(INPUTS))
    values: dict[str, Any] = read_inputs(asked.inputs, binary)
    parameters = asked.parameters
    top_k = values.get("top_k") or [parameters.top_k]
    if len(top_k) != 1 or (top_k[0] is not None and top_k[0] < 1):
        raise InvalidParameter("top_k is one number from 1")
    targets = values.get("targets", parameters.targets)
    targets = [targets] if isinstance(targets, str) else targets
    if not values.get("text"):
        raise InvalidParameter("there must be an input text with at least one element")
    timeout_ms = parameters.timeout / 1000 if parameters.timeout else None
    return service.asked(request, values["text"], top_k[0], targets, timeout_ms)


def _output_names(asked: InferBody) -> dict[str, bool]:
    """The outputs wanted, in order, and whether each is to be binary."""
    everything = asked.parameters.binary_data_output
    if not asked.outputs:
        return dict.fromkeys(OUTPUTS, everything)
    names = {}
    for output in asked.outputs:
        if output.name not in OUTPUTS or output.parameters.keys() - {"binary_data"}:
            raise InvalidParameter(
                f"the outputs are {', '.join(OUTPUTS)}, and their only parameter is binary_data", outputs=list(OUTPUTS)
            )
        packed = output.parameters.get("binary_data", everything)
        if not isinstance(packed, bool):
            raise InvalidParameter("an output's binary_data is true or false")
        names[output.name] = packed
    return names


def _outputs(service: FillMask, texts: Sequence[FilledText]) -> dict[str, OutputTensor]:
    rows = [(index, mask, text) for index, text in enumerate(texts) for mask in range(len(text.masks))]
    cells = [(text.encoded, mask, candidate) for _, mask, text in rows for candidate in text.masks[mask]]
    columns: dict[str, list[Any]] = {
        "text_index": [index for index, _, _ in rows],
        "mask_index": [mask for _, mask, _ in rows],
        "token": [candidate.word.token for _, _, candidate in cells],
        "token_id": [candidate.token_id for _, _, candidate in cells],
        "score": [candidate.score for _, _, candidate in cells],
        "filled_text": [service.tokenizer.filled(encoded, mask, candidate.word) for encoded, mask, candidate in cells],
    }
    shapes = ([len(rows)], [len(rows), len(cells) // len(rows)])
    return {
        name: OutputTensor(name, datatype, shapes[len(shape) - 1], columns[name])
        for name, (datatype, shape) in OUTPUTS.items()
    }


async def _response(request: Request, body: bytes, json_length: int | None) -> Response:
    headers = {"vary": "accept-encoding"}
    if json_length is not None:
        headers[JSON_LENGTH] = str(json_length)
    encoding = accepted_encoding(request.headers.get("accept-encoding", ""))
    if encoding:
        headers["content-encoding"] = encoding
        body = await asyncio.to_thread(compressed, body, encoding)  # a long answer takes some 50 ms
    media_type = "application/json" if json_length is None else "application/octet-stream"
    return Response(body, headers=headers, media_type=media_type)
