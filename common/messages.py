"""The only wire format: what a front-end puts on the queue and what a worker sends back, as msgpack arrays.

Each message starts with the wire version, the request id and the front-end's name, in every version to come: a worker can
then refuse a message it does not understand, and the front-end that sent it hears so.

Token ids and positions travel as packed little-endian int32, probabilities as float32: a worker turns a whole batch
of them into arrays with one numpy call, and a message costs a few microseconds. No text, no pickle.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from common.errors import UnknownWireVersion

WIRE_VERSION = 1

Int32 = np.dtype("<i4")
Float32 = np.dtype("<f4")


def pack_integers(values: Sequence[int]) -> bytes:
    return np.asarray(values, dtype=Int32).tobytes()


def unpack_integers(packed: bytes) -> NDArray[np.int32]:
    return np.frombuffer(packed, dtype=Int32)


def unpack_floats(packed: bytes) -> NDArray[np.float32]:
    return np.frombuffer(packed, dtype=Float32)


class PredictRequest(NamedTuple):
    """One text, as numbers. A list of texts is as many requests: the worker batches them with everybody else's."""

    request_id: bytes
    """16 random bytes; the reply carries them back."""
    front_end: str
    """Whose reply list gets the answer."""
    remaining_ms: int
    """Milliseconds to the deadline when this was put: a duration, since clocks of two machines differ."""
    token_ids: bytes
    """int32[tokens], special tokens included."""
    mask_positions: bytes
    """int32[masks], ascending indices into token_ids."""
    top_k: int
    """How many tokens are wanted a mask; 0 when only targets are."""
    target_ids: bytes = b""
    """int32[targets]: tokens whose probabilities are wanted at every mask."""
    http_request_id: str = ""
    """The x-request-id of the HTTP request that this is part of: what log lines call it on both sides."""
    trace_context: str = ""
    """W3C traceparent of that HTTP request's span; nothing if it is not traced."""

    @property
    def length_tokens(self) -> int:
        return len(self.token_ids) // Int32.itemsize


class PredictResult(NamedTuple):
    """What the model says of one request. `candidates` is top_k, or the number of targets when there are any."""

    request_id: bytes
    candidates: int
    token_ids: bytes
    """int32[masks, candidates], most probable first."""
    probabilities: bytes
    """float32[masks, candidates], over the whole vocabulary, not rescaled to the candidates."""
    queue_ms: float
    """From the put to the start of the batch."""
    inference_ms: float
    batch_requests: int


class PredictFailure(NamedTuple):
    """The worker gives up on one request. `reason` is a code, `message` one sentence without the user's text."""

    request_id: bytes
    reason: str
    message: str


Reply: TypeAlias = PredictResult | PredictFailure

_RESULT, _FAILURE = 0, 1


def encode_request(request: PredictRequest) -> bytes:
    encoded: bytes = msgpack.packb((WIRE_VERSION, *request))
    return encoded


def decode_request(encoded: bytes) -> PredictRequest:
    """Raises UnknownWireVersion for another release's message, and for bytes that are no message at all."""
    try:
        version, *fields = msgpack.unpackb(encoded)
        if version == WIRE_VERSION:
            return PredictRequest(*fields)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise UnknownWireVersion(f"not a fillmask message: {type(error).__name__}") from None
    raise UnknownWireVersion(f"wire version {version!r}; this release speaks {WIRE_VERSION}")


def sender_of(encoded: bytes) -> tuple[bytes, str] | None:
    """(request id, front-end) of a message in any version, so that its refusal can be sent; None if there is no telling."""
    try:
        _, request_id, front_end, *_ = msgpack.unpackb(encoded)
    except (TypeError, ValueError, msgpack.UnpackException):
        return None
    return (request_id, front_end) if isinstance(request_id, bytes) and isinstance(front_end, str) else None


def encode_reply(reply: Reply) -> bytes:
    kind = _RESULT if isinstance(reply, PredictResult) else _FAILURE
    encoded: bytes = msgpack.packb((WIRE_VERSION, kind, *reply))
    return encoded


def decode_reply(encoded: bytes) -> Reply:
    """Raises UnknownWireVersion as decode_request does."""
    try:
        version, kind, *fields = msgpack.unpackb(encoded)
        if version == WIRE_VERSION:
            return PredictResult(*fields) if kind == _RESULT else PredictFailure(*fields)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise UnknownWireVersion(f"not a fillmask reply: {type(error).__name__}") from None
    raise UnknownWireVersion(f"wire version {version!r}; this release speaks {WIRE_VERSION}")
