"""The exception tree. It says what went wrong; which HTTP status that is, is decided in api/errors.py alone.

    FillmaskError
    ├── RequestRefused            the caller's input; trying again unchanged cannot help
    │   ├── MalformedBody         not UTF-8 JSON, or not an object of the documented shape
    │   ├── UnsupportedMediaType  another content type than the route takes
    │   ├── BodyTooLarge          more bytes than the limit
    │   ├── InvalidParameter      a field is missing, unknown, mistyped or out of range
    │   ├── TextTooLong           more characters than are ever tokenised
    │   ├── TooManyTokens         more tokens than the model has positions
    │   ├── NoMask                nothing to fill
    │   ├── TooManyMasks          more masks than one text may have
    │   └── BadTarget             a target that is not one token of this model
    ├── Unavailable               trying again later can help; carries retry_after_s
    │   ├── Overloaded            the queue is full, or would not be served before the deadline
    │   ├── NoWorker              nobody serves this model now
    │   └── TransportAway         Redis cannot be reached or refuses
    ├── CallerGone                the caller hung up; nobody hears of this error
    ├── DeadlineExceeded          accepted, but not answered in time
    ├── PredictionFailed          accepted, but the worker gave up on it (engine_error, poison, not_finite, ...)
    ├── EngineBroken              the device cannot be used any more; the worker must end
    ├── UnknownWireVersion        a message from a release that this one does not understand
    └── StartupError              wrong settings or a wrong model; one line, then exit

No message holds the user's text: errors are logged and sent, texts are neither.
"""

from typing import ClassVar, TypeAlias

Details: TypeAlias = dict[str, int | float | str | list[int] | list[str]]


class FillmaskError(Exception):
    """Root of all errors that this project raises on purpose. `error_type` is the public code."""

    error_type: ClassVar[str] = "internal"

    def __init__(self, message: str, **details: int | float | str | list[int] | list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.details: Details = details


class RequestRefused(FillmaskError):
    error_type = "refused"


class MalformedBody(RequestRefused):
    error_type = "malformed_body"


class UnsupportedMediaType(RequestRefused):
    error_type = "unsupported_media_type"


class BodyTooLarge(RequestRefused):
    error_type = "body_too_large"


class InvalidParameter(RequestRefused):
    error_type = "invalid_parameter"


class TextTooLong(RequestRefused):
    error_type = "text_too_long"


class TooManyTokens(RequestRefused):
    error_type = "too_long"


class NoMask(RequestRefused):
    error_type = "no_mask"


class TooManyMasks(RequestRefused):
    error_type = "too_many_masks"


class BadTarget(RequestRefused):
    error_type = "bad_target"


class Unavailable(FillmaskError):
    """`retry_after_s` is computed from backlog and capacity where both are known."""

    error_type = "unavailable"

    def __init__(self, message: str, retry_after_s: float = 1.0, **details: int | float | str) -> None:
        super().__init__(message, **details)
        self.retry_after_s = retry_after_s


class Overloaded(Unavailable):
    error_type = "overloaded"


class NoWorker(Unavailable):
    error_type = "no_worker"


class TransportAway(Unavailable):
    error_type = "transport_away"


class CallerGone(FillmaskError):
    error_type = "caller_gone"


class DeadlineExceeded(FillmaskError):
    error_type = "deadline_exceeded"


class PredictionFailed(FillmaskError):
    """`reason` is the worker's code: engine_error, not_finite, poison, unknown_wire_version, unfit."""

    error_type = "prediction_failed"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason=reason)
        self.reason = reason


class EngineBroken(FillmaskError):
    error_type = "engine_broken"


class UnknownWireVersion(FillmaskError):
    error_type = "unknown_wire_version"


class StartupError(FillmaskError):
    error_type = "startup"
