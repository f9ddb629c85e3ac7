"""Our own dialect: POST /v1/fill-mask. One regular shape for one text or many, one mask or several."""

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.bodies import RawRoute, read_json
from api.filling import FilledText, FillMask
from api.schemas import CandidateBody, ErrorBody, FillMaskRequest, FillMaskResponse, MaskBody, TextBody

ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorBody, "description": "malformed body"},
    413: {"model": ErrorBody, "description": "body too large"},
    415: {"model": ErrorBody, "description": "not application/json"},
    422: {"model": ErrorBody, "description": "refused input: no_mask, too_long, bad_target, ..."},
    500: {"model": ErrorBody, "description": "the model failed on this input"},
    503: {"model": ErrorBody, "description": "overloaded, no worker, or Redis away; see Retry-After"},
    504: {"model": ErrorBody, "description": "not answered before the deadline"},
}


def router(service: FillMask) -> APIRouter:
    routes = APIRouter(tags=["fill mask"], route_class=RawRoute)

    @routes.post(
        "/v1/fill-mask",
        summary="Fill the masks of one or more texts",
        responses={200: {"model": FillMaskResponse}, **ERRORS},
        openapi_extra=json_body(FillMaskRequest),
    )
    async def fill_mask(request: Request) -> Response:
        asked = await read_json(request, FillMaskRequest)
        filled = await service.fill(service.asked(request, asked.texts, asked.top_k, asked.targets))
        body: FillMaskResponse = {
            "model": service.checkpoint.title,
            "revision": service.checkpoint.revision,
            "results": [_text_body(service, text) for text in filled],
        }
        return Response(to_json(body), media_type="application/json")

    return routes


def json_body(model: type) -> dict[str, object]:
    """The OpenAPI entry of a body that the route reads itself."""
    schema = model.model_json_schema()  # type: ignore[attr-defined]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _text_body(service: FillMask, filled: FilledText) -> TextBody:
    encoded = filled.encoded
    masks: list[MaskBody] = []
    for mask, candidates in enumerate(filled.masks):
        start, end = encoded.mask_spans[mask]
        bodies: list[CandidateBody] = [
            {
                "token_id": candidate.token_id,
                "token": candidate.word.token,
                "word": candidate.word.text,
                "score": candidate.score,
                "filled_text": service.tokenizer.filled(encoded, mask, candidate.word),
            }
            for candidate in candidates
        ]
        position = encoded.mask_positions[mask]
        masks.append({"start": start, "end": end, "token_position": position, "candidates": bodies})
    return {"masks": masks, "unknown_tokens": encoded.unknown_tokens}
