"""The Hugging Face dialect, as their inference clients speak it: POST / and POST /models/{model}, and GET /health.

The shape is transformers' own: a list for one text with one mask, one list a mask for a text with several, and for a list of
texts one of these a text. It differs where theirs surprises: a list of one text is answered with a list of one, and a target
that is not one token is refused instead of cut to its first piece.
"""

from typing import Any, TypeAlias

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from api.bodies import RawRoute, read_json
from api.filling import FilledText, FillMask
from api.ops import readiness
from api.routes.described import ERRORS, UNKNOWN_MODEL, json_body, path_parameters
from api.schemas import RequestBody, TopK
from api.spent import answer


class Parameters(RequestBody):
    top_k: TopK | None = None
    targets: str | list[str] | None = Field(
        default=None, min_length=1, description="score these words only; each must be one token of the model"
    )


class InputsBody(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"inputs": "床前明月光，疑是地[MASK]霜。", "parameters": {"top_k": 3}}]}
    )

    inputs: str | list[str] = Field(min_length=1, description="one text or several, each with at least one mask token")
    parameters: Parameters | None = None
    options: dict[str, Any] | None = Field(
        None, description="the hosted service's (use_cache, ...); without effect here"
    )


class FilledToken(TypedDict):
    score: float
    token: int
    token_str: str
    sequence: str


OfText: TypeAlias = list[FilledToken] | list[list[FilledToken]]

SHAPE: dict[str, Any] = {"model": OfText | list[OfText]}


def router(service: FillMask) -> APIRouter:
    routes = APIRouter(tags=["Hugging Face"], route_class=RawRoute)

    async def fill(request: Request) -> Response:
        asked = await read_json(request, InputsBody)
        parameters = asked.parameters or Parameters()
        targets = [parameters.targets] if isinstance(parameters.targets, str) else parameters.targets
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        filled = await service.fill(service.asked(request, texts, parameters.top_k, targets))
        of_texts = [_of_text(service, text) for text in filled.texts]
        body = of_texts[0] if isinstance(asked.inputs, str) else of_texts
        return answer(body, service.headers(filled.spent))

    @routes.post(
        "/",
        summary="Fill-mask as huggingface_hub and @huggingface/inference ask for it",
        responses={200: SHAPE, **ERRORS},
        openapi_extra=json_body(InputsBody),
    )
    async def fill_here(request: Request) -> Response:
        return await fill(request)

    @routes.post(
        "/models/{model:path}",
        summary="The same, for clients that name the model",
        responses={200: SHAPE, **ERRORS, **UNKNOWN_MODEL},
        openapi_extra=json_body(InputsBody) | path_parameters("model"),
    )
    async def fill_model(request: Request) -> Response:
        service.check_model(request.path_params["model"])
        return await fill(request)

    @routes.get("/health", summary="What /readyz says, where their clients look for it")
    async def health(_request: Request) -> Response:
        return readiness(service)

    return routes


def _of_text(service: FillMask, filled: FilledText) -> OfText:
    masks: list[list[FilledToken]] = [
        [
            {
                "score": candidate.score,
                "token": candidate.token_id,
                "token_str": candidate.word.token,
                "sequence": service.tokenizer.filled(filled.encoded, mask, candidate.word),
            }
            for candidate in candidates
        ]
        for mask, candidates in enumerate(filled.masks)
    ]
    return masks[0] if len(masks) == 1 else masks
