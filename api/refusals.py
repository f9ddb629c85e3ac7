"""Refusals that only a front-end makes: another model than the served one, and its limits, each with its own code and numbers.

They continue the tree of common/errors.py, where the ones that `fillmask predict` makes too are drawn.
"""

from common.errors import InvalidParameter, RequestRefused


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
