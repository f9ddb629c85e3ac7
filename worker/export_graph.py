"""A torch module -> an ONNX file without traces of this machine, and a way to run that file. What it holds is its caller's."""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import StartupError
from worker.cores import usable_cores

if TYPE_CHECKING:
    import torch

EMBEDDED_BYTES = 100_000_000
"""Larger weights lie beside the graph in model.onnx.data. Engines map that file into memory, so that workers share it, where a
graph with its weights inside is read as a whole: bert-base costs half the memory of its own. A protobuf ends at 2 GB anyway."""

Run = Callable[[Mapping[str, NDArray[np.int64]]], dict[str, NDArray[Any]]]
"""Inputs by name -> outputs by name; what the graph does not take is left out."""


@dataclass(frozen=True)
class Signature:
    """What a graph's inputs and outputs are called, an example of its arguments, and which of their sizes vary."""

    arguments: tuple[Any, ...]
    dynamic_shapes: tuple[Any, ...]
    inputs: Sequence[str]
    outputs: Sequence[str]


def write_graph(module: "torch.nn.Module", signature: Signature, path: Path) -> None:
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # of packages that it would also know
    with torch.no_grad(), warnings.catch_warnings():
        # torch's words about its own internals; whether the graph is right, export_check.py tells
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            signature.arguments,
            input_names=signature.inputs,
            output_names=signature.outputs,
            dynamic_shapes=signature.dynamic_shapes,
            dynamo=True,
            verbose=False,
        )
        if program is None:
            raise StartupError("torch exported nothing")
        for node in program.model.graph:
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        large = sum(weight.nbytes for weight in module.parameters()) > EMBEDDED_BYTES
        program.save(path, external_data=large)


def open_graph(path: Path) -> Run:
    """On all cores that there are: nothing else runs while a model is exported."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {given.name for given in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]

    def run(feed: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        found = session.run(names, {name: array for name, array in feed.items() if name in wanted})
        return dict(zip(names, found, strict=True))

    return run
