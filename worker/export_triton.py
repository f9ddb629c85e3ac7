"""Checkpoint -> a model of a Triton repository: NAME/config.pbtxt and NAME/1/model.onnx, compared with torch before it is kept.

Triton joins requests along their first dimension. So here each row has one mask, and everything of a request lies in its row;
our own graph (worker/export.py) has a list of masks that no dimension is shared with. A text with two masks is sent as two rows.
Requests are joined only if their texts are equally long: clients pad, say to the next multiple of 32. Segments are all zero.

    input_ids, attention_mask  int64[batch, length]; padding has mask 0
    mask_position              int64[batch, 1]: where the mask to fill is
    token_ids, probabilities   int64, float32[batch, 20]: the best, over the whole vocabulary
    logits                     float32[batch, vocabulary], for those who score targets; sent only to who names it
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.agreement import Feed, Logits
from worker.export import ExportReport, export_libraries
from worker.export_check import compare
from worker.export_graph import Run, Signature, open_graph, write_graph
from worker.masked_head import MaskedHead
from worker.partial import partial_folder

if TYPE_CHECKING:
    import torch

MAX_BATCH = 64
_TOP = 20
_QUEUE_DELAY_US = 2000
"""How long Triton lets a request wait for company; its own default, 0, rarely finds any on a CPU."""

_CONFIG = """\
# Written by `fillmask export --triton`. A row is one text with one mask to fill: pad texts of about the same length to
# the same length, for only such are joined. Name only the outputs that you need.
name: "{name}"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: {max_batch}
input [
  {{ name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }},
  {{ name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] }},
  {{ name: "mask_position" data_type: TYPE_INT64 dims: [ 1 ] }}
]
output [
  {{ name: "token_ids" data_type: TYPE_INT64 dims: [ {top} ] }},
  {{ name: "probabilities" data_type: TYPE_FP32 dims: [ {top} ] }},
  {{ name: "logits" data_type: TYPE_FP32 dims: [ {vocabulary} ] }}
]
dynamic_batching {{
  preferred_batch_size: [ {preferred} ]
  max_queue_delay_microseconds: {delay_us}
}}
"""


def export_triton(checkpoint: Checkpoint, repository: Path) -> Path:
    """Writes the model's folder into the repository, whole or not at all, and returns it. Raises StartupError."""
    export_libraries()
    started_s = time.monotonic()
    model = MaskedHead.load(checkpoint)
    top = min(_TOP, checkpoint.vocabulary_size)
    destination = repository / checkpoint.title.replace("/", "--")
    with partial_folder(destination) as folder:
        graph = folder / "1" / "model.onnx"
        graph.parent.mkdir()
        _write(model, top, graph)
        run = open_graph(graph)
        deviations = compare(lambda feed: _at_masks(run, feed), model.reference, checkpoint)
        report = ExportReport.of(checkpoint, deviations, started_s)
        (folder / "export.json").write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
        (folder / "config.pbtxt").write_text(config(checkpoint, destination.name), encoding="utf-8")
    return destination


def config(checkpoint: Checkpoint, name: str) -> str:
    """config.pbtxt, in protobuf's text format."""
    return _CONFIG.format(
        name=name,
        max_batch=MAX_BATCH,
        top=min(_TOP, checkpoint.vocabulary_size),
        vocabulary=checkpoint.vocabulary_size,
        preferred=", ".join(str(size) for size in (8, 16, 32, MAX_BATCH)),
        delay_us=_QUEUE_DELAY_US,
    )


def _write(model: MaskedHead, top: int, path: Path) -> None:
    import torch

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.model

        def forward(
            self, ids: torch.Tensor, inside: torch.Tensor, position: torch.Tensor
        ) -> tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]:
            inputs = {"input_ids": ids, "attention_mask": inside}
            if model.takes_segments:
                inputs["token_type_ids"] = torch.zeros_like(ids)
            logits = model.at_masks(inputs, torch.arange(len(ids)), position.squeeze(1))
            best, token_ids = logits.softmax(-1).topk(top)
            return token_ids, best, logits

    ids, dynamic = torch.full((3, 11), 5), torch.export.Dim.DYNAMIC
    signature = Signature(
        arguments=(ids, torch.ones_like(ids), torch.tensor([[1], [2], [5]])),
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic, 1: dynamic}, {0: dynamic}),
        inputs=("input_ids", "attention_mask", "mask_position"),
        outputs=("token_ids", "probabilities", "logits"),
    )
    write_graph(Graph(), signature, path)


def _at_masks(run: Run, feed: Feed) -> Logits:
    """The logits at each mask of a feed of our own kind. Raises StartupError if the best tokens are not those of the logits."""
    rows = feed["mask_rows"]
    asked = {"input_ids": feed["input_ids"][rows], "attention_mask": feed["attention_mask"][rows]}
    found = run(asked | {"mask_position": feed["mask_columns"][:, None]})
    logits: Logits = found["logits"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = np.take_along_axis(exponentials, found["token_ids"], axis=1) / exponentials.sum(axis=1)[:, None]
    best = -np.sort(-logits, axis=1)[:, : found["token_ids"].shape[1]]
    same = np.array_equal(np.take_along_axis(logits, found["token_ids"], axis=1), best)
    if not same or not np.allclose(found["probabilities"], probabilities, atol=1e-5):
        raise StartupError("the exported graph's best tokens are not those of its logits")
    return logits
