"""api/tensors.py: whatever is written can be read, and whatever else is sent is refused."""

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tensors import (
    InputTensor,
    OutputTensor,
    accepted_encoding,
    compressed,
    decompressed,
    read_inputs,
    split,
    write_outputs,
)
from common.errors import BodyTooLarge, FillmaskError, MalformedBody, UnsupportedMediaType

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), max_size=6)
integers = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6)


@given(texts, integers, st.sets(st.sampled_from(["texts", "numbers"])))
def test_what_is_written_can_be_read(words: list[str], numbers: list[int], binary: set[str]) -> None:
    outputs = [
        OutputTensor("texts", "BYTES", [len(words)], words),
        OutputTensor("numbers", "INT32", [len(numbers), 1], numbers),
    ]
    body, length = write_outputs({"id": "7"}, outputs, binary)
    assert (length is not None) == bool(binary)
    told, tail = split(body, None if length is None else str(length))
    header = json.loads(told)
    assert header["id"] == "7"
    inputs = [InputTensor.model_validate(output) for output in header["outputs"]]
    assert read_inputs(inputs, tail) == {"texts": words, "numbers": numbers}


@given(st.binary(max_size=40), st.sampled_from(["BYTES", "INT32", "FP32", "BOOL", ""]))
def test_any_bytes_are_read_or_refused(tail: bytes, datatype: str) -> None:
    tensor = InputTensor(name="x", shape=[1], datatype=datatype, parameters={"binary_data_size": len(tail)})
    try:
        values = read_inputs([tensor], tail)["x"]
    except FillmaskError:
        return
    assert len(values) == 1


@given(st.recursive(st.integers() | st.text() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_any_nesting_is_read_or_refused(nested: object) -> None:
    data = nested if isinstance(nested, list) else [nested]
    try:
        read_inputs([InputTensor(name="x", shape=[2, 2], datatype="INT64", data=data)], b"")
    except FillmaskError:
        return
    assert len(data) in (2, 4)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@given(body=st.binary(max_size=200))
def test_compression_has_its_inverse(encoding: str, body: bytes) -> None:
    assert decompressed(compressed(body, encoding), encoding, 200) == body
    other = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    assert decompressed(other, encoding, 200) == body


@given(st.binary(min_size=1, max_size=50), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_unpacked_or_refused(body: bytes, encoding: str) -> None:
    try:
        decompressed(body, encoding, 1000)
    except MalformedBody:
        return
    assert compressed(decompressed(body, encoding, 1000), encoding)


def test_unpacking_ends_at_the_limit() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(BodyTooLarge):
        decompressed(bomb, "gzip", 1000)
    with pytest.raises(UnsupportedMediaType):
        decompressed(b"", "br", 1000)


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", ""),
        ("gzip, deflate, br", "gzip"),
        ("br, deflate;q=0.5", "deflate"),
        ("gzip;q=0, identity", ""),
        ("GZIP ; q=1", "gzip"),
        ("zstd", ""),
    ],
)
def test_the_compression_asked_for(header: str, encoding: str) -> None:
    assert accepted_encoding(header) == encoding
