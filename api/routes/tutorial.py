"""The tutorials' two routes, as their front-ends know them: POST /predict and POST /fill, unchanged in shape."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from api.bodies import RawRoute, read_json
from api.errors import error_response
from api.filling import FillMask
from api.routes.described import ERRORS, json_body
from api.schemas import RequestBody
from api.spent import answer
from common.errors import NoMask

CANDIDATES = 5


class PredictBody(RequestBody):
    text: str = Field(examples=["春眠不觉晓，处处闻啼[MASK]。"])


class FillBody(RequestBody):
    texts: list[str] = Field(min_length=1, examples=[["床前明月光，疑是地[MASK]霜。"]])


def router(service: FillMask) -> APIRouter:
    routes = APIRouter(tags=["tutorials"], route_class=RawRoute)

    @routes.post(
        "/predict",
        summary="One text, its first mask: five words with their confidence",
        responses=ERRORS,
        openapi_extra=json_body(PredictBody),
    )
    async def predict(request: Request) -> Response:
        asked = await read_json(request, PredictBody)
        try:
            filled = await service.fill(service.asked(request, [asked.text], CANDIDATES, None))
        except NoMask as error:  # their front-ends show this sentence as it is
            sentence = f"请在文本中包含{service.checkpoint.mask_token}标记"
            return error_response(400, error.error_type, sentence, {"hint": error.message})
        words = [
            {"word": candidate.word.text, "confidence": round(candidate.score, 4)}
            for candidate in filled.texts[0].masks[0]
        ]
        return answer({"results": words}, service.headers(filled.spent))

    @routes.post(
        "/fill",
        summary="Several texts: for each mask, in order, five [word, score] pairs",
        responses=ERRORS,
        openapi_extra=json_body(FillBody),
    )
    async def fill(request: Request) -> Response:
        asked = await read_json(request, FillBody)
        filled = await service.fill(service.asked(request, asked.texts, CANDIDATES, None))
        pairs = [
            [(candidate.word.text, round(candidate.score, 4)) for candidate in candidates]
            for text in filled.texts
            for candidates in text.masks
        ]
        return answer({"results": pairs}, service.headers(filled.spent))

    return routes
