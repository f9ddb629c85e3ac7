"""Refusals that only a front-end makes: of callers, of another model, and by its limits, each with its own code and numbers.

They continue the tree of common/errors.py, where the ones that `fillmask predict` makes too are drawn.
"""

from common.errors import InvalidParameter, RequestRefused, Unavailable


class NoApiKey(RequestRefused):
    error_type = "no_api_key"


class BadApiKey(RequestRefused):
    """A key that was never given to anybody, or was taken back."""

    error_type = "bad_api_key"


class RateLimited(Unavailable):
    """The caller has asked for more than its share, and is told when it may ask again."""

    error_type = "rate_limited"


class UnknownModel(RequestRefused):
    """The path names another model, or another version of it, than the one that is served here."""

    error_type = "unknown_model"


class TooManyTexts(InvalidParameter):
    error_type = "too_many_texts"


class TopKTooLarge(InvalidParameter):
    error_type = "top_k_too_large"


class TooManyTargets(InvalidParameter):
    error_type = "too_many_targets"


class AnswerTooLarge(InvalidParameter):
    """More candidates in one answer than the limit: masks of all texts x top_k."""

    error_type = "answer_too_large"


class TooManySteps(InvalidParameter):
    """Scoring these targets, or decoding these masks together, would ask the model more at once than one request may."""

    error_type = "too_many_steps"
