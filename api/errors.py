"""One table: error type -> HTTP status, and the one error body. Nothing here looks at a request's text."""

import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.refusals import BadApiKey, NoApiKey, RateLimited, UnknownModel
from api.security_headers import SECURITY_HEADERS
from common import errors

STATUS: dict[type[errors.FillmaskError], int] = {
    errors.MalformedBody: 400,
    NoApiKey: 401,
    BadApiKey: 401,
    UnknownModel: 404,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.RequestRefused: 422,
    RateLimited: 429,
    errors.Unavailable: 503,
    errors.CallerGone: 499,
    errors.DeadlineExceeded: 504,
    errors.FillmaskError: 500,
}
"""The most derived class that stands here decides; tests/unit/test_errors.py checks that the table is total."""

_HTTP_TYPES = {404: "not_found", 405: "method_not_allowed"}


def status_of(error: errors.FillmaskError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def error_types(root: type[errors.FillmaskError] = errors.FillmaskError) -> list[str]:
    """The codes of all errors that there are."""
    return [root.error_type, *[code for child in root.__subclasses__() for code in error_types(child)]]


def error_response(
    status: int, error_type: str, message: str, details: errors.Details | None = None, retry_after_s: float = 0.0
) -> Response:
    """`{"error": sentence, "error_type": code, "details": {...}}`, the shape of every error of this service."""
    body: dict[str, object] = {"error": message, "error_type": error_type}
    if details:
        body["details"] = details
    headers = {"retry-after": str(math.ceil(retry_after_s))} if retry_after_s else None
    return Response(to_json(body), status, headers, media_type="application/json")


def respond_to(error: errors.FillmaskError) -> Response:
    retry_after_s = error.retry_after_s if isinstance(error, errors.Unavailable) else 0.0
    return error_response(status_of(error), error.error_type, error.message, error.details, retry_after_s)


async def on_fillmask_error(request: Request, error: Exception) -> Response:
    """Handler for everything that this project raises on purpose."""
    assert isinstance(error, errors.FillmaskError)  # noqa: S101 registered for this class alone
    request.state.error_type = error.error_type
    return respond_to(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handler for the framework's own refusals, such as an unknown path."""
    assert isinstance(error, HTTPException)  # noqa: S101 registered for this class alone
    error_type = _HTTP_TYPES.get(error.status_code, "http_error")
    response = error_response(error.status_code, error_type, f"{request.method} is not served here: {error.detail}")
    response.headers.update(error.headers or {})
    return response


async def on_client_gone(request: Request, _error: Exception) -> Response:
    """Handler for a connection that ended within its request's body; nobody reads this answer, but it is counted."""
    return await on_fillmask_error(request, errors.CallerGone("the caller hung up"))


async def on_any_error(_request: Request, _error: Exception) -> Response:
    """Handler for a bug of ours: says nothing of its inside; the traceback goes to the log. No middleware sees this answer."""
    response = error_response(500, "internal", "an internal error; it was logged with this request's id")
    response.headers.update(SECURITY_HEADERS)
    return response


ANSWERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    errors.FillmaskError: on_fillmask_error,
    ClientDisconnect: on_client_gone,
    HTTPException: on_http_error,
    Exception: on_any_error,
}
