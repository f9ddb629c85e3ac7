"""Our own dialect: POST /v1/fill-mask. One regular shape for one text or many, one mask or several."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from api.bodies import RawRoute, read_json
from api.filling import FilledText, FillMask, FillRequest
from api.routes.described import ERRORS, json_body
from api.schemas import (
    CandidateBody,
    FillMaskRequest,
    FillMaskResponse,
    GapBody,
    MaskBody,
    TextBody,
    WarningBody,
    WordBody,
)
from api.spent import answer
from api.whole_words import FilledGaps, WordGap, decode_jointly, score_targets
from common.errors import InvalidParameter


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
        top_k = asked.top_k if "top_k" in asked.model_fields_set else None
        question = service.asked(request, asked.texts, top_k, asked.targets)
        whole = _whole_words(asked)
        if whole:
            gaps = await whole(service, question)
            results, spent = [_gaps_body(of_text) for of_text in gaps.texts], gaps.spent
        else:
            filled = await service.fill(question)
            results, spent = [text_body(service, text) for text in filled.texts], filled.spent
        body: FillMaskResponse = {
            "model": service.checkpoint.title,
            "revision": service.checkpoint.revision,
            "warnings": _warnings(results) if spent.unknown_tokens else [],
            "results": results,
        }
        return answer(body, service.headers(spent))

    return routes


def _whole_words(asked: FillMaskRequest) -> Callable[[FillMask, FillRequest], Coroutine[Any, Any, FilledGaps]] | None:
    """Who answers, if not the one call that most requests need. Raises InvalidParameter for options that contradict."""
    if asked.joint:
        if asked.targets:
            raise InvalidParameter("joint: masks that are decoded together take no targets", field="joint")
        return decode_jointly
    if asked.score_targets == "single_token":
        return None
    if not asked.targets:
        raise InvalidParameter("score_targets: there are no targets to score", field="score_targets")
    return score_targets


def text_body(service: FillMask, filled: FilledText) -> TextBody:
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


def _warnings(results: Sequence[TextBody]) -> list[WarningBody]:
    told = "{} tokens of the text are not in the model's vocabulary; it does not see what they say"
    return [
        {"warning_type": "unknown_tokens", "message": told.format(text["unknown_tokens"]), "index": index}
        for index, text in enumerate(results)
        if text["unknown_tokens"]
    ]


def _gaps_body(gaps: Sequence[WordGap]) -> TextBody:
    masks: list[GapBody] = []
    for gap in gaps:
        spans = gap.encoded.mask_spans
        bodies: list[WordBody] = [
            {
                "token_ids": list(word.token_ids),
                "word": word.word,
                "score": word.score,
                "log_likelihood": word.log_likelihood,
                "filled_text": word.filled_text,
            }
            for word in gap.words
        ]
        start, end = spans[gap.masks[0]][0], spans[gap.masks[-1]][1]
        position = gap.encoded.mask_positions[gap.masks[0]]
        masks.append({"start": start, "end": end, "token_position": position, "candidates": bodies})
    return {"masks": masks, "unknown_tokens": gaps[0].encoded.unknown_tokens}
