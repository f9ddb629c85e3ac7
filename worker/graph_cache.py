"""The exported graph of a model's very weights: exported once, in a child process, and found again by every later worker.

The child holds torch and transformers while it exports; the worker never imports them. What a graph is: worker/export.py.
"""

import hashlib
import logging
import shutil
import time
from pathlib import Path

from filelock import FileLock

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.child import run_module
from worker.export import GRAPH_VERSION, REFUSED, check_libraries
from worker.export_graph import EMBEDDED_BYTES
from worker.masked_head import fetch_weights

log = logging.getLogger("fillmask.worker")


def cached_onnx(checkpoint: Checkpoint, cache_dir: Path) -> Path:
    """The exported graph of these very weights; exports them first if no worker has yet. Takes 5-60 s then.

    Raises StartupError: no weights, no masked-LM head, no `export` extra, no room on the disk.
    """
    weights = fetch_weights(checkpoint)
    graph = _place(checkpoint, cache_dir, weights)
    folder = graph.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):  # the kernel drops it if its holder is killed
            if not graph.is_file():
                _export_in_child(weights[0].parent, folder)
    except OSError as error:
        raise StartupError(f"{folder} cannot be written: {error.strerror}") from None
    return graph


def is_cached(checkpoint: Checkpoint, cache_dir: Path) -> bool:
    """Whether cached_onnx would find it at once. False, too, where there are no weights."""
    try:
        return _place(checkpoint, cache_dir, fetch_weights(checkpoint)).is_file()
    except StartupError:
        return False


def check_obtainable(checkpoint: Checkpoint, cache_dir: Path) -> None:
    """Raises StartupError where cached_onnx would, as far as that shows without exporting."""
    fetch_weights(checkpoint)
    try:
        check_libraries()
    except StartupError:
        if not is_cached(checkpoint, cache_dir):
            raise


def _place(checkpoint: Checkpoint, cache_dir: Path, weights: list[Path]) -> Path:
    return cache_dir.expanduser() / f"{checkpoint.fingerprint}-{_weights_digest(weights)}" / "model.onnx"


def _export_in_child(folder: Path, destination: Path) -> None:
    started_s = time.monotonic()
    log.info("exporting %s to ONNX, once; it is kept in %s", folder, destination)
    for abandoned in destination.glob(".export-*"):  # its child was killed: the lock says that no other is at work
        shutil.rmtree(abandoned, ignore_errors=True)
    child = run_module("worker.export", str(folder), str(destination))
    if child.returncode == REFUSED:
        raise StartupError(child.stdout.strip().splitlines()[-1])
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise StartupError(f"the export to ONNX ended with code {child.returncode}: {last[:500]}")
    log.info("exported in %.0f s", time.monotonic() - started_s)


def _weights_digest(weights: list[Path]) -> str:
    """From the contents, not the times: a copied model finds its graph again, a retrained one never finds the old.

    What decides how a graph is written is in it, too: no graph of another layout is taken for today's.
    """
    digest = hashlib.sha256(f"graph {GRAPH_VERSION}, {EMBEDDED_BYTES} bytes embedded".encode())
    for file in weights:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
