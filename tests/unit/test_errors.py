"""api/errors.py: every error has one public code and one status."""

from collections.abc import Iterator

import pytest
from starlette.requests import Request

from api.errors import on_any_error, respond_to, status_of
from api.refusals import RateLimited
from api.security_headers import SECURITY_HEADERS
from common import errors


def tree(root: type[errors.FillmaskError]) -> Iterator[type[errors.FillmaskError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


ALL = list(tree(errors.FillmaskError))


def make(kind: type[errors.FillmaskError]) -> errors.FillmaskError:
    return kind("what happened", "poison") if issubclass(kind, errors.PredictionFailed) else kind("what happened")


@pytest.mark.parametrize("kind", ALL)
def test_the_table_is_total(kind: type[errors.FillmaskError]) -> None:
    status = status_of(make(kind))
    callers_doing = issubclass(kind, errors.RequestRefused | errors.CallerGone | RateLimited)
    assert 400 <= status < 500 if callers_doing else status >= 500


def test_codes_are_unique() -> None:
    codes = [
        kind.error_type for kind in ALL if "error_type" in vars(kind)
    ]  # others are kinds of what they inherit it from
    assert len(codes) == len(set(codes))


def test_come_back_later_says_when() -> None:
    response = respond_to(errors.Overloaded("full", 2.3))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"


async def test_a_bug_of_ours_says_nothing_of_its_inside() -> None:
    response = await on_any_error(Request({"type": "http"}), ValueError("secret"))
    assert response.status_code == 500
    assert b"secret" not in bytes(response.body)
    assert SECURITY_HEADERS.items() <= dict(response.headers).items(), "no middleware adds them here"
