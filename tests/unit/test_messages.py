"""common/messages.py: what goes in comes out, and nothing else is ever guessed at."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UnknownWireVersion
from common.messages import (
    PredictFailure,
    PredictRequest,
    PredictResult,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    pack_integers,
    sender_of,
    unpack_integers,
)

REQUEST = PredictRequest(b"0123456789abcdef", "front", 1500, pack_integers([101, 103, 102]), pack_integers([1]), 5)


def test_a_request_survives_the_wire() -> None:
    assert decode_request(encode_request(REQUEST)) == REQUEST
    assert REQUEST.length_tokens == 3


@pytest.mark.parametrize(
    "reply",
    [
        PredictResult(b"id", 2, pack_integers([1, 2]), b"\0" * 8, 1.5, 2.5, 7),
        PredictFailure(b"id", "engine_error", "the engine failed"),
    ],
)
def test_a_reply_survives_the_wire(reply: PredictResult | PredictFailure) -> None:
    assert decode_reply(encode_reply(reply)) == reply


def test_another_version_is_refused_but_its_sender_can_be_told() -> None:
    newer = msgpack.packb((2, b"id", "front", {"a": "new shape"}))
    with pytest.raises(UnknownWireVersion, match="2"):
        decode_request(newer)
    assert sender_of(newer) == (b"id", "front")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(noise: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(UnknownWireVersion):
            decode(noise)
    assert sender_of(noise) is None or isinstance(sender_of(noise), tuple)


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_integers_are_packed_little_endian(values: list[int]) -> None:
    packed = pack_integers(values)
    assert unpack_integers(packed).tolist() == values
    assert packed == b"".join(value.to_bytes(4, "little", signed=True) for value in values)
