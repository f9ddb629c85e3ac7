"""KServe's v1 protocol: /v1/models, /v1/models/{model}, /v1/models/{model}:predict; a prediction is one of our own results."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field

from api.bodies import RawRoute, read_json
from api.filling import FillMask
from api.routes.described import ERRORS, UNKNOWN_MODEL, json_body, path_parameters
from api.routes.fill_mask import text_body
from api.schemas import RequestBody, TextBody, TopK
from api.spent import answer


class Instance(RequestBody):
    text: str


class InstancesBody(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"instances": ["床前明月光，疑是地[MASK]霜。"], "parameters": {"top_k": 3}}]}
    )

    class Parameters(RequestBody):
        top_k: TopK | None = None
        targets: list[str] | None = Field(default=None, min_length=1)

    instances: list[str | Instance] = Field(min_length=1, description="texts, bare or as {'text': ...}")
    parameters: Parameters | None = None


SHAPE: dict[str, Any] = {"model": dict[str, list[TextBody]]}


def router(service: FillMask) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["KServe v1"], route_class=RawRoute)
    title = service.checkpoint.title

    @routes.get("", summary="The served model's name")
    async def models(_request: Request) -> Response:
        return answer({"models": [title]})

    @routes.post(
        "/{model:path}:predict",
        summary="Fill the masks of one or more texts",
        responses={200: SHAPE, **ERRORS, **UNKNOWN_MODEL},
        openapi_extra=json_body(InstancesBody) | path_parameters("model"),
    )
    async def predict(request: Request) -> Response:
        service.check_model(**request.path_params)
        asked = await read_json(request, InstancesBody)
        parameters = asked.parameters or InstancesBody.Parameters()
        texts = [instance.text if isinstance(instance, Instance) else instance for instance in asked.instances]
        filled = await service.fill(service.asked(request, texts, parameters.top_k, parameters.targets))
        body = {"predictions": [text_body(service, text) for text in filled.texts]}
        return answer(body, service.headers(filled.spent))

    @routes.get(
        "/{model:path}", summary="Is the model ready?", responses=UNKNOWN_MODEL, openapi_extra=path_parameters("model")
    )
    async def model_ready(request: Request) -> Response:
        service.check_model(**request.path_params)
        ready = not service.dispatcher.load.reason()
        return answer({"name": title, "ready": ready}, status=200 if ready else 503)

    return routes
