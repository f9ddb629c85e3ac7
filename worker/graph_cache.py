"""The exported graph of a model's very weights: exported once, in a child process, and found again by every later worker.

The child holds torch and transformers while it exports; the worker never imports them. What a graph is: worker/export.py.
"""

import hashlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.cores import usable_cores
from worker.export import GRAPH_VERSION, REFUSED
from worker.masked_head import fetch_weights

log = logging.getLogger("fillmask.worker")


def cached_onnx(checkpoint: Checkpoint, cache_dir: Path) -> Path:
    """The exported graph of these very weights; exports them first if no worker has yet. Takes 5-60 s then.

    Raises StartupError: no weights, no masked-LM head, no `export` extra, no room on the disk.
    """
    weights = fetch_weights(checkpoint)
    folder = cache_dir.expanduser() / f"{checkpoint.fingerprint}-{_weights_digest(weights)}"
    graph = folder / "model.onnx"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):  # the kernel drops it if its holder is killed
            if not graph.is_file():
                _export_in_child(weights[0].parent, folder)
    except OSError as error:
        raise StartupError(f"{folder} cannot be written: {error.strerror}") from None
    return graph


def _export_in_child(folder: Path, destination: Path) -> None:
    started = time.monotonic()
    log.info("exporting %s to ONNX, once; it is kept in %s", folder, destination)
    house = str(Path(__file__).resolve().parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (house, os.environ.get("PYTHONPATH")))),
        "PYTHONUTF8": "1",  # LANG=C would spoil a path outside ASCII
        "HF_HUB_OFFLINE": "1",  # all files are here already
        "OMP_NUM_THREADS": str(usable_cores()),
    }
    child = subprocess.run(  # noqa: S603  our own module; the arguments are paths and pass no shell
        [sys.executable, "-P", "-m", "worker.export", str(folder), str(destination)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if child.returncode == REFUSED:
        raise StartupError(child.stdout.strip().splitlines()[-1])
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise StartupError(f"the export to ONNX ended with code {child.returncode}: {last[:500]}")
    log.info("exported in %.0f s", time.monotonic() - started)


def _weights_digest(weights: list[Path]) -> str:
    """From the contents, not the times: a copied model finds its graph again, a retrained one never finds the old."""
    digest = hashlib.sha256(f"graph {GRAPH_VERSION}".encode())
    for file in weights:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
