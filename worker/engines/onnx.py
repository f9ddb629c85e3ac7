"""ONNX Runtime on the CPU, in float32. It brings its own graph or exports one; it knows neither requests nor text."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint, fetch
from common.errors import StartupError
from worker.engines.base import PaddedBatch, TopTokens
from worker.engines.ranking import rank
from worker.graph_cache import cached_onnx

log = logging.getLogger("fillmask.worker")

_GRAPHS = ("model.onnx", "onnx/model.onnx")
_GRAPH_FILES = (*_GRAPHS, "model.onnx_data*", "model.onnx.data", "onnx/model.onnx_data*", "onnx/model.onnx.data")
"""A graph and, beside it, the weights that a protobuf of 2 GB cannot hold."""

_DTYPES: dict[str, type[np.int64 | np.int32]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

_COUNTED_POSITIONS = ("Bert", "DistilBert", "Electra", "Albert")
"""Architectures whose positions are 0, 1, 2, ...; others start elsewhere, and a guess would be silently wrong."""

_SLOWER_FUSIONS = ["SkipLayerNormFusion"]
"""Costs 7-11 % on the CPU (ONNX Runtime 1.32, bert-base shape, batches of 32 x 16 and 8 x 128): Add and LayerNormalization
run on all threads and are faster apart."""


class OnnxEngine:
    """One graph, one session. Takes our own exports and the usual ones with logits at every position."""

    name = "onnx"

    def __init__(self, checkpoint: Checkpoint, threads: int, cache_dir: Path) -> None:
        self._checkpoint = checkpoint
        self._threads = threads
        self._cache_dir = cache_dir
        self._session: Any = None
        self._dtypes: dict[str, type[np.int64 | np.int32]] = {}

    def load(self) -> None:
        """Takes the graph that the model brings, else the one exported from its weights. Raises StartupError."""
        brought = self._brought_graph()
        if brought is None:
            self._use(cached_onnx(self._checkpoint, self._cache_dir))
            return
        try:
            self._use(brought)
        except StartupError as refused:  # some models on the hub bring a graph without a head beside good weights
            log.warning("%s; trying its weights instead", refused.message)
            try:
                exported = cached_onnx(self._checkpoint, self._cache_dir)
            except StartupError as error:
                raise StartupError(f"{refused.message}; and {error.message}") from None
            self._use(exported)

    def _use(self, graph: Path) -> None:
        self._session = self._open(graph)
        self._dtypes = self._inputs_of(graph)
        self._check_vocabulary(graph)
        log.info("loaded %s, to run on %d threads", graph, self._threads)

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        for count, longest in shapes:
            self.predict(self._blank(count, longest))

    def predict(self, batch: PaddedBatch) -> TopTokens:
        return rank(self._logits(batch), batch)

    def close(self) -> None:
        self._session = None

    def _brought_graph(self) -> Path | None:
        folder = fetch(self._checkpoint.name, self._checkpoint.revision, _GRAPH_FILES)
        return next((folder / graph for graph in _GRAPHS if (folder / graph).is_file()), None)

    def _open(self, graph: Path) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        # Idle threads would spin: for lone requests that took 2.4 times the CPU time and won nothing (bert-base, 2 cores).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # A pattern of memory is kept for each shape seen, and no two batches have the same: 291 MB instead of 521 MB after two
        # dozen shapes up to 64 x 128 (demo model), at the same speed.
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        # The memory arena stays on: over 400 random shapes it grew by 1 % in the second half (232 to 234 MB), and without it
        # runs were 5 % slower for 9 % less memory.
        try:
            return onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER_FUSIONS
            )
        except Exception as error:  # onnxruntime's own types share no base but Exception
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StartupError(f"{graph} is no graph that ONNX Runtime can load: {reason[:300]}") from None

    def _inputs_of(self, graph: Path) -> dict[str, type[np.int64 | np.int32]]:
        """The inputs that the graph asks for, and as what. Raises StartupError for one that nobody here can make up."""
        known = {"input_ids", "attention_mask", "token_type_ids", "mask_rows", "mask_columns"}
        if self._checkpoint.architecture.startswith(_COUNTED_POSITIONS):
            known.add("position_ids")
        dtypes = {}
        for wanted in self._session.get_inputs():
            if wanted.name not in known or wanted.type not in _DTYPES:
                raise StartupError(f"{graph} wants an input {wanted.name} of {wanted.type}, which a fill-mask has not")
            dtypes[wanted.name] = _DTYPES[wanted.type]
        if "logits" not in {output.name for output in self._session.get_outputs()}:
            raise StartupError(f"{graph} has no output logits, so it was exported without a masked-LM head")
        return dtypes

    def _check_vocabulary(self, graph: Path) -> None:
        found = self._logits(self._blank(2, 3)).shape
        if found != (2, self._checkpoint.vocabulary_size):
            raise StartupError(
                f"{graph} gives logits of shape {found} for two masks; {self._checkpoint.name} has "
                f"{self._checkpoint.vocabulary_size} tokens"
            )

    def _logits(self, batch: PaddedBatch) -> NDArray[np.float32]:
        """float32[masks, vocabulary]"""
        made: dict[str, NDArray[np.int64]] = {
            "input_ids": batch.token_ids,
            "attention_mask": batch.attention_mask,
            "mask_rows": batch.mask_rows,
            "mask_columns": batch.mask_columns,
        }
        if "token_type_ids" in self._dtypes:
            made["token_type_ids"] = np.zeros_like(batch.token_ids)
        if "position_ids" in self._dtypes:
            made["position_ids"] = np.broadcast_to(np.arange(batch.token_ids.shape[1]), batch.token_ids.shape)
        feed = {name: made[name].astype(dtype, copy=False) for name, dtype in self._dtypes.items()}
        logits: NDArray[np.float32] = self._session.run(["logits"], feed)[0]
        return logits if "mask_rows" in self._dtypes else logits[batch.mask_rows, batch.mask_columns]

    def _blank(self, count: int, longest: int) -> PaddedBatch:
        """A batch of that shape with one mask a row."""
        ids = np.full((count, longest), self._checkpoint.mask_token_id, np.int64)
        nothing = np.empty(0, np.int64)
        return PaddedBatch(
            token_ids=ids,
            attention_mask=np.ones_like(ids),
            mask_rows=np.arange(count),
            mask_columns=np.full(count, longest - 1),
            top_k=min(5, self._checkpoint.vocabulary_size),
            target_masks=nothing,
            target_ids=nothing,
        )
