"""Writes a trained checkpoint as a model folder: tokenizer, config, fp16 weights, ONNX; and checks ONNX against torch.

The ONNX signature is the service's own: the vocabulary head is computed only at (mask_rows[i], mask_columns[i]).
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from mix import CLS, SEP, SPECIALS, UNK
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from torch.export import Dim
from transformers import BertForMaskedLM

TOLERANCE = 1e-4
SHAPES = ((1, 3), (2, 17), (8, 64), (5, 9), (3, 256))  # batch, length
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mask_rows", "mask_columns")


class MaskedLogits(torch.nn.Module):
    """The graph that is exported: logits [masks, vocabulary] at the asked places."""

    def __init__(self, model: BertForMaskedLM) -> None:
        super().__init__()
        self.bert, self.cls = model.bert, model.cls

    def forward(self, ids: Tensor, attention: Tensor, types: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        # An additive mask, finite so that a row of padding alone gives no NaN.
        blocked = (1.0 - attention[:, None, None, :].float()) * torch.finfo(torch.float32).min
        hidden = self.bert(ids, attention_mask=blocked, token_type_ids=types).last_hidden_state
        logits: Tensor = self.cls(hidden[rows, columns])
        return logits


def write_tokenizer(vocabulary: list[str], folder: Path, max_length: int) -> None:
    """One token a character: spaces are dropped, case is kept, and so offsets are those of the text."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=SPECIALS[UNK]))
    each = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each])
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.BertProcessing((SPECIALS[SEP], SEP), (SPECIALS[CLS], CLS))
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIALS},
    }
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")


def write_weights(model: BertForMaskedLM, folder: Path) -> BertForMaskedLM:
    """Stores half precision, computes in single: `dtype` in the config makes transformers widen what it reads."""
    model.to(torch.float16).save_pretrained(folder)  # type: ignore[arg-type]
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "float32"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    widened: BertForMaskedLM = BertForMaskedLM.from_pretrained(folder)
    widened.train(False)
    return widened


def write_onnx(model: BertForMaskedLM, path: Path) -> None:
    batch, length, masks = Dim("batch"), Dim("length", max=model.config.max_position_embeddings), Dim("masks")
    grid, places = {0: batch, 1: length}, {0: masks}
    exported = torch.onnx.export(
        MaskedLogits(model),
        example(model.config.vocab_size, 2, 7),
        input_names=INPUTS,
        output_names=["logits"],
        dynamic_shapes=(grid, grid, grid, places, places),
        dynamo=True,
    )
    if exported is None:
        raise SystemExit("torch exported nothing")
    proto = exported.model_proto
    for part in (*proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output, proto.graph):
        part.ClearField("metadata_props")  # the exporter's stack traces, with the paths of the machine it ran on
        part.ClearField("doc_string")
    onnx.save(proto, path)


def example(vocabulary: int, batch: int, length: int) -> tuple[Tensor, ...]:
    """Random rows, all but the first padded at the end, and two places to predict in each."""
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    ids = torch.randint(len(SPECIALS), vocabulary, (batch, length), generator=generator)
    lengths = torch.randint(2, length + 1, (batch,), generator=generator)
    lengths[0] = length
    attention = (torch.arange(length) < lengths[:, None]).long()
    rows = torch.arange(batch).repeat_interleave(2)
    columns = torch.stack([torch.zeros_like(lengths), lengths - 1], 1).flatten()
    return ids * attention, attention, torch.zeros_like(ids), rows, columns


def largest_difference(model: BertForMaskedLM, path: Path) -> float:
    """Between plain transformers and ONNX Runtime, over SHAPES."""
    session, largest = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), 0.0
    for batch, length in SHAPES:
        ids, attention, types, rows, columns = inputs = example(model.config.vocab_size, batch, length)
        with torch.no_grad():
            expected = model(ids, attention_mask=attention, token_type_ids=types).logits[rows, columns]
        feeds = {name: value.numpy() for name, value in zip(INPUTS, inputs, strict=True)}
        (actual,) = session.run(["logits"], feeds)
        largest = max(largest, float(np.abs(actual - expected.numpy()).max()))
    return largest


def export(model: BertForMaskedLM, vocabulary: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(vocabulary, folder, model.config.max_position_embeddings)
    widened = write_weights(model.cpu(), folder)
    write_onnx(widened, folder / "model.onnx")
    difference = largest_difference(widened, folder / "model.onnx")
    print(f"ONNX and transformers differ by {difference:.1e} at most")
    if difference > TOLERANCE:
        raise SystemExit(f"that is more than {TOLERANCE}")
