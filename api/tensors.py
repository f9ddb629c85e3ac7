"""Pure: the Open Inference Protocol's tensors, as JSON or as bytes behind the JSON, and HTTP's compression of both.

It knows the format (https://github.com/kserve/open-inference-protocol, with Triton's binary data extension) and nothing
of fill-mask.
"""

import struct
import zlib
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field
from pydantic_core import to_json

from api.schemas import RequestBody
from common.errors import BodyTooLarge, InvalidParameter, MalformedBody, UnsupportedMediaType

NUMPY_TYPES = {"INT32": "<i4", "INT64": "<i8", "UINT32": "<u4", "UINT64": "<u8", "FP32": "<f4"}

_LENGTH = struct.Struct("<I")
_WINDOW_BITS = {"gzip": 31, "deflate": 15}  # deflate is zlib's format in HTTP: RFC 9110, 8.4.1.2


class InputTensor(RequestBody):
    name: str = Field(max_length=64)
    shape: list[int] = Field(max_length=8)
    datatype: str = Field(max_length=16)
    parameters: dict[str, Any] = Field(default={})
    data: list[Any] | None = Field(default=None, description="row-major, flat or nested; none if the data are binary")


class RequestedOutput(RequestBody):
    name: str = Field(max_length=64)
    parameters: dict[str, Any] = Field(default={})


class OutputTensor(NamedTuple):
    """`values` are flat, in row-major order."""

    name: str
    datatype: str
    shape: list[int]
    values: Sequence[Any]


def split(body: bytes, header_length: str | None) -> tuple[bytes, bytes]:
    """(JSON, binary data) of a request; `header_length` is its Inference-Header-Content-Length."""
    if header_length is None:
        return body, b""
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 10):
        raise MalformedBody("Inference-Header-Content-Length is not a number of bytes")
    length = int(header_length)
    if length > len(body):
        raise MalformedBody("Inference-Header-Content-Length is more than the body has")
    return body[:length], body[length:]


def read_inputs(inputs: Sequence[InputTensor], binary: bytes) -> dict[str, list[str] | list[int]]:
    """The elements of each input by name: strings of BYTES, integers of all integer types."""
    values: dict[str, list[str] | list[int]] = {}
    for tensor in inputs:
        if tensor.name in values:
            raise InvalidParameter(f"input {len(values)} has the name of an earlier one")
        if tensor.data is None:
            size = tensor.parameters.get("binary_data_size")
            if not isinstance(size, int) or not 0 <= size <= len(binary):
                raise MalformedBody(f"input {len(values)} has neither data nor a binary_data_size that the body holds")
            read: list[Any] = _of_bytes(tensor.datatype, binary[:size])
            binary = binary[size:]
        else:
            read = _of_json(tensor)
        if min(tensor.shape, default=1) < 0 or len(read) != int(np.prod(tensor.shape, dtype=object)):
            raise InvalidParameter(f"input {len(values)} has {len(read)} elements, which is not what its shape says")
        values[tensor.name] = read
    if binary:
        raise MalformedBody(f"{len(binary)} bytes of binary data belong to no input")
    return values


def write_outputs(
    header: dict[str, Any], outputs: Sequence[OutputTensor], binary: Set[str]
) -> tuple[bytes, int | None]:
    """(body, length of its JSON if binary data follow); `binary` names the outputs that are sent as bytes."""
    described: list[dict[str, Any]] = []
    tail = b""
    for name, datatype, shape, values in outputs:
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if name in binary:
            packed = _to_bytes(datatype, values)
            tail += packed
            entry["parameters"] = {"binary_data_size": len(packed)}
        else:
            entry["data"] = values
        described.append(entry)
    told = to_json(header | {"outputs": described})
    return told + tail, len(told) if binary else None


def decompressed(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """Raises BodyTooLarge before more than `most_bytes` are unpacked: a few kilobytes may stand for gigabytes."""
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOW_BITS:
        raise UnsupportedMediaType("Content-Encoding may be gzip or deflate")
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        unpacked = stream.decompress(body, most_bytes + 1)
    except zlib.error:
        raise MalformedBody(f"the body is not {encoding} data, as its Content-Encoding says") from None
    if len(unpacked) > most_bytes:
        raise BodyTooLarge(f"the body unpacks to more than the limit of {most_bytes} bytes", limit=most_bytes)
    if not stream.eof or stream.unused_data:
        raise MalformedBody(f"the body is not one whole {encoding} stream")
    return unpacked


def accepted_encoding(header: str) -> str:
    """The compression that an Accept-Encoding asks for; empty for none."""
    for entry in header.lower().split(","):
        name, _, quality = entry.replace(" ", "").partition(";q=")
        if name in _WINDOW_BITS and quality not in ("0", "0.0", "0.00", "0.000"):
            return name
    return ""


def compressed(body: bytes, encoding: str) -> bytes:
    stream = zlib.compressobj(level=1, wbits=_WINDOW_BITS[encoding])
    return stream.compress(body) + stream.flush()


def _of_json(tensor: InputTensor) -> list[Any]:
    flat: list[Any] = list(tensor.data or ())
    for _ in tensor.shape[1:]:
        if flat and all(isinstance(row, list) for row in flat):
            flat = [value for row in flat for value in row]
    if tensor.datatype == "BYTES":
        fits = all(isinstance(value, str) for value in flat)
    else:
        bounds = np.iinfo(_integer_type(tensor.datatype))
        fits = all(type(value) is int and bounds.min <= value <= bounds.max for value in flat)  # a bool is no int here
    if not fits:
        raise InvalidParameter(f"the data of an input of type {tensor.datatype} are not all of that type")
    return flat


def _integer_type(datatype: str) -> np.dtype[Any]:
    name = NUMPY_TYPES.get(datatype, "")
    if not name.startswith(("<i", "<u")):
        raise InvalidParameter("an input has a datatype that is not taken here")
    return np.dtype(name)


def _of_bytes(datatype: str, packed: bytes) -> list[Any]:
    if datatype == "BYTES":
        return _strings(packed)
    dtype = _integer_type(datatype)
    if len(packed) % dtype.itemsize:
        raise InvalidParameter("the binary data of an input are not of its datatype")
    integers: list[int] = np.frombuffer(packed, dtype).tolist()
    return integers


def _strings(packed: bytes) -> list[str]:
    """Each element is its length, four bytes, and so many bytes."""
    strings = []
    place = 0
    while place < len(packed):
        start = place + _LENGTH.size
        length = int.from_bytes(packed[place:start], "little")
        place = start + length
        if start > len(packed) or place > len(packed):
            raise MalformedBody("the binary data of an input end within an element")
        try:
            strings.append(packed[start:place].decode())
        except UnicodeDecodeError:
            raise MalformedBody("the binary data of an input are not text in UTF-8") from None
    return strings


def _to_bytes(datatype: str, values: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.asarray(values, NUMPY_TYPES[datatype]).tobytes()
    encoded = [value.encode() for value in values]
    return b"".join([_LENGTH.pack(len(value)) + value for value in encoded])
