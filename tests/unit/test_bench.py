"""Which engines `make bench` measures, by the names that the rest of the project gives them."""

from argparse import Namespace

import pytest

from loadtest.bench import rivals


def test_engines_by_their_plain_names() -> None:
    asked = Namespace(on="cpu", compiled=False, engines="openvino-int8, onnx")
    assert [rival.name for rival in rivals(asked)] == ["onnx", "openvino-int8"]


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no opnevino here; there are: .*, openvino, openvino-int8"):
        rivals(Namespace(on="cpu", compiled=False, engines="onnx,opnevino"))
