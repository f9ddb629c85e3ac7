"""What engines share whose model is a graph file: which file it is, what it is fed, and what its logits mean.

A subclass opens a file with its library and runs it; nothing here imports one.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint, fetch
from common.errors import StartupError
from worker.engines.base import AtOnce, PaddedBatch, TopTokens, blank_batch
from worker.engines.mapped import give_back
from worker.engines.ranking import rank
from worker.graph_cache import cached_onnx, check_obtainable, is_cached
from worker.masked_head import is_on_hub

log = logging.getLogger("fillmask.worker")

_GRAPHS = ("model.onnx", "onnx/model.onnx")
_GRAPH_FILES = (*_GRAPHS, "model.onnx_data*", "model.onnx.data", "onnx/model.onnx_data*", "onnx/model.onnx.data")
"""A graph and, beside it, the weights that a protobuf of 2 GB cannot hold."""

_COUNTED_POSITIONS = ("Bert", "DistilBert", "Electra", "Albert")
"""Architectures whose positions are 0, 1, 2, ...; others start elsewhere, and a guess would be silently wrong."""

Integers = type[np.int64 | np.int32]
Feed = dict[str, NDArray[np.int64 | np.int32]]


class GraphEngine(AtOnce, ABC):
    """Takes our own exports (logits at the masks only) and the usual ones with logits at every position."""

    name: str
    integers: ClassVar[dict[str, Integers]]
    """The library's names of the types that ids may have."""

    def __init__(self, checkpoint: Checkpoint, threads: int, cache_dir: Path) -> None:
        self._checkpoint = checkpoint
        self._threads = threads
        self._cache_dir = cache_dir
        self._inputs: dict[str, Integers] = {}

    @abstractmethod
    def close(self) -> None:
        """Frees the model."""

    @abstractmethod
    def _library(self) -> Any:
        """Imports what runs the graph. Raises StartupError if it is not installed."""

    @abstractmethod
    def _open(self, graph: Path) -> Mapping[str, str]:
        """Loads the file; returns its inputs' types by name, in the library's words. Raises StartupError."""

    @abstractmethod
    def _run(self, feed: Feed) -> NDArray[np.float32]:
        """The output `logits`."""

    def check(self) -> None:
        """Raises StartupError if load() would find no library or no graph. What the hub has is not fetched to find out."""
        self._library()
        if not is_on_hub(self._checkpoint):
            self._check_graph()

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

    def warm_up(self, shapes: list[tuple[int, int]]) -> None:
        for count, longest in shapes:
            self.predict(blank_batch(self._checkpoint.mask_token_id, count, longest))

    def predict(self, batch: PaddedBatch) -> TopTokens:
        return rank(self._logits(batch), batch)

    def has_graph(self) -> bool:
        """Whether it could be loaded without an export, which takes up to a minute."""
        return self._brought_graph() is not None or is_cached(self._checkpoint, self._cache_dir)

    def _check_graph(self) -> None:
        if self._brought_graph() is None:
            check_obtainable(self._checkpoint, self._cache_dir)

    def _brought_graph(self) -> Path | None:
        folder = fetch(self._checkpoint.name, self._checkpoint.revision, _GRAPH_FILES)
        return next((folder / graph for graph in _GRAPHS if (folder / graph).is_file()), None)

    def _use(self, graph: Path) -> None:
        self._inputs = self._known(self._open(graph), graph)
        self._check_vocabulary(graph)
        give_back(graph.parent)
        log.info("loaded %s with %s, to run on %d threads", graph, self.name, self._threads)

    def _known(self, inputs: Mapping[str, str], graph: Path) -> dict[str, Integers]:
        """Raises StartupError for an input that nobody here can make up."""
        known = {"input_ids", "attention_mask", "token_type_ids", "mask_rows", "mask_columns"}
        if self._checkpoint.architecture.startswith(_COUNTED_POSITIONS):
            known.add("position_ids")
        types = {}
        for name, kind in inputs.items():
            if name not in known or kind not in self.integers:
                raise StartupError(f"{graph} wants an input {name} of {kind}, which a fill-mask has not")
            types[name] = self.integers[kind]
        return types

    def _check_vocabulary(self, graph: Path) -> None:
        found = self._logits(blank_batch(self._checkpoint.mask_token_id, 2, 3)).shape
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
        if "token_type_ids" in self._inputs:
            made["token_type_ids"] = np.zeros_like(batch.token_ids)
        if "position_ids" in self._inputs:
            made["position_ids"] = np.broadcast_to(np.arange(batch.token_ids.shape[1]), batch.token_ids.shape)
        logits = self._run({name: made[name].astype(kind, copy=False) for name, kind in self._inputs.items()})
        return logits if "mask_rows" in self._inputs else logits[batch.mask_rows, batch.mask_columns]


def first_line(error: Exception) -> str:
    """What a foreign library says, cut to what fits a log line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
