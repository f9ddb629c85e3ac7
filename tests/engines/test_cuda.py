"""worker/engines/cuda.py without a GPU: the same code in buckets, in half precision, out of memory; and no CPU unasked."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batches import assert_same, batch_of, masks_of, random_row

from common.checkpoint import Checkpoint, open_checkpoint
from common.errors import StartupError
from common.messages import PredictRequest, pack_integers
from common.settings import DEMO_MODEL
from common.transport import Delivery
from worker.engines.base import BatchLimits, PaddedBatch, TopTokens
from worker.engines.cuda import TorchEngine, TorchOptions
from worker.health import Health
from worker.inference import Inference
from worker.isolation import Computed
from worker.last_layer import LAYERS
from worker.padding import ModelLimits

IN_BUCKETS = BatchLimits(8, 256)


def loaded(checkpoint: Checkpoint, options: TorchOptions) -> TorchEngine:
    engine = TorchEngine(checkpoint, options)
    engine.load()
    engine.warm_up([])
    return engine


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_asked_for_cuda_and_none_there(bert: Checkpoint) -> None:
    engine = TorchEngine(bert, TorchOptions("cuda", "float16", largest=IN_BUCKETS))
    with pytest.raises(StartupError, match="no CUDA device"):
        engine.load()


def test_the_last_layer_at_the_masks_only_is_the_whole_last_layer(checkpoint: Checkpoint) -> None:
    """Logits, of a padded batch, against the model as it came."""
    engine = loaded(checkpoint, TorchOptions("cpu", largest=IN_BUCKETS))
    head = engine._model
    config: Any = head.model.config
    generator = np.random.default_rng(6)
    rows = [random_row(checkpoint, length, generator) for length in (3, 12, 30)]
    batch = batch_of(rows, checkpoint)
    ids, real, places, columns = (
        torch.from_numpy(array)
        for array in (batch.token_ids, batch.attention_mask, batch.mask_rows, batch.mask_columns)
    )
    with torch.inference_mode():
        inputs = {"input_ids": ids, "attention_mask": real}
        narrow = head.at_one_mask_a_row(inputs, columns)
        several = head.at_masks(inputs, places.repeat(2), torch.cat([columns, torch.zeros_like(columns)]))
        whole = head.model(**inputs).logits
    one_each = whole[places, columns]
    np.testing.assert_allclose(narrow.numpy(), one_each.numpy(), atol=1e-4)
    np.testing.assert_allclose(several.numpy(), torch.cat([one_each, whole[places, 0]]).numpy(), atol=1e-4)
    assert (head._last_layer is not None) == (config.model_type in LAYERS)
    engine.close()


def test_a_bucket_leaves_nothing_behind_for_the_next_batch(bert: Checkpoint) -> None:
    """A short batch after a long one in the same bucket, and both as they are without buckets."""
    engine, plain = loaded(bert, TorchOptions("cpu", largest=IN_BUCKETS)), loaded(bert, TorchOptions("cpu"))
    generator = np.random.default_rng(7)
    for lengths in ([16] * 8, [9, 10], [16] * 5, [1]):
        batch = batch_of([random_row(bert, length, generator) for length in lengths], bert, targets=[(0, 30)])
        assert engine._shapes is not None
        assert engine._shapes.holding(batch) is not None
        found, expected = engine.predict(batch), plain.predict(batch)
        assert_same(found, expected)
        np.testing.assert_allclose(found.target_probabilities, expected.target_probabilities, atol=1e-5)


def test_what_fits_no_bucket_is_answered_all_the_same(bert: Checkpoint) -> None:
    engine, plain = loaded(bert, TorchOptions("cpu", largest=IN_BUCKETS)), loaded(bert, TorchOptions("cpu"))
    generator = np.random.default_rng(8)
    for rows in ([[bert.mask_token_id] * 20], [random_row(bert, 200, generator) for _ in range(9)]):
        batch = batch_of(rows, bert)
        assert engine._shapes is not None
        assert engine._shapes.holding(batch) is None
        assert_same(engine.predict(batch), plain.predict(batch))


def sentences(checkpoint: Checkpoint, count: int) -> list[list[int]]:
    """The demo model's own language: the vocabulary has each of these characters."""
    vocabulary = {word: index for index, word in enumerate((checkpoint.folder / "vocab.txt").read_text().splitlines())}
    lines = (DEMO_MODEL.parent.parent / "loadtest" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    generator = np.random.default_rng(20)
    rows = []
    for line in lines[:count]:
        row = [vocabulary["[CLS]"], *(vocabulary.get(c, vocabulary["[UNK]"]) for c in line), vocabulary["[SEP]"]]
        row[int(generator.integers(1, len(row) - 1))] = checkpoint.mask_token_id
        rows.append(row)
    return rows


def test_m20_half_precision_says_what_full_precision_says() -> None:
    demo = open_checkpoint(str(DEMO_MODEL))
    rows = sentences(demo, 200)
    half = loaded(demo, TorchOptions("cpu", "float16", threads=2))
    full = loaded(demo, TorchOptions("cpu", threads=2))
    parts = [batch_of(rows[start : start + 40], demo) for start in range(0, 200, 40)]
    found, expected = (_joined([engine.predict(part) for part in parts]) for engine in (half, full))
    assert found.probabilities.dtype == np.float32
    assert ((found.probabilities > 0) & (found.probabilities <= 1)).all(), "no score of the best five is 0"
    assert (np.diff(found.probabilities, axis=1) <= 0).all()
    same_first = (found.token_ids[:, 0] == expected.token_ids[:, 0]).mean()
    worst = np.abs(found.probabilities[:, 0] - expected.probabilities[:, 0]).max()
    assert same_first >= 0.995, same_first
    assert worst <= 0.01, worst


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("largest", [BatchLimits(2, 1024), None], ids=["in buckets", "as they come"])
def test_m21_heavy_padding_makes_no_nan(bert: Checkpoint, dtype: str, largest: BatchLimits | None) -> None:
    engine = loaded(bert, TorchOptions("cpu", dtype, largest=largest))
    generator = np.random.default_rng(21)
    rows = [random_row(bert, length, generator) for length in (3, 500)]
    together = engine.predict(batch_of(rows, bert))
    assert np.isfinite(together.probabilities).all()
    tolerance = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[dtype]
    for index, row in enumerate(rows):
        alone = engine.predict(batch_of([row], bert))
        own = masks_of(together, slice(index, index + 1))
        assert own.token_ids[0, 0] == alone.token_ids[0, 0]
        np.testing.assert_allclose(own.probabilities[0, 0], alone.probabilities[0, 0], atol=tolerance)


@contextmanager
def little_memory(more_bytes: int) -> Iterator[None]:
    """The process may not grow by more than this."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_b07_out_of_memory_is_tried_again_in_smaller_parts(bert: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits at 64 x 512 masks are one piece of 70 MB, which the heap cannot have lying about."""
    engine = loaded(bert, TorchOptions("cpu"))
    inference = Inference(engine, Health("worker", engine.name), ModelLimits.of(bert))
    masks = pack_integers(range(512))
    request = PredictRequest(b"", "", 0, pack_integers([bert.mask_token_id] * 512), masks, top_k=2)
    deliveries = [Delivery(b"%d" % index, request, 0.0, 0.0) for index in range(64)]
    prepared = inference.prepare(deliveries, holds_slot=False)
    # oneDNN, short of memory, keeps what it failed to make, and every test after this one would meet it again
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    with little_memory(more_bytes=48 << 20):
        with pytest.raises(RuntimeError, match="memory"):
            engine.predict(_padded(prepared.padded))
        outcomes = list(inference.end(inference.begin(prepared, None), None))
    assert len(outcomes) > 1
    for outcome in outcomes:
        assert isinstance(outcome, Computed)
        assert np.isfinite(outcome.top.probabilities).all()
    answered = [delivery for outcome in outcomes for delivery in outcome.deliveries]
    assert answered == deliveries
    (afterwards,) = inference.end(inference.begin(prepared, None), None)
    assert isinstance(afterwards, Computed)
    assert afterwards.deliveries == deliveries


def _padded(batch: PaddedBatch | None) -> PaddedBatch:
    assert batch is not None
    return batch


def _joined(parts: list[TopTokens]) -> TopTokens:
    return TopTokens(*(np.concatenate(column) for column in zip(*parts, strict=True)))
