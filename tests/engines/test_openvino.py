"""OpenVinoEngine where it is OpenVINO's own doing: what its threads do to the worker next door."""

import os
import threading

import pytest
from batches import batch_of

from common.checkpoint import Checkpoint
from worker.engines.openvino import OpenVinoEngine


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there is nothing to choose")
@pytest.mark.parametrize("threads", [1, 2])
def test_no_thread_is_bound_to_a_core(bert: Checkpoint, threads: int) -> None:
    """Every worker would take the same cores: two with a thread each ran at half the pace, and the other core idled."""
    engine = OpenVinoEngine(bert, threads, cache_dir=bert.folder / "cache")
    engine.load()
    batch = batch_of([[bert.mask_token_id] * 16] * 8, bert, top_k=1)
    done, seen = threading.Event(), set[frozenset[int]]()

    def watch() -> None:
        while not done.is_set():
            seen.update(_places())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(200):
        engine.predict(batch)
    done.set()
    watcher.join()
    engine.close()
    assert seen == {frozenset(os.sched_getaffinity(0))}


def _places() -> set[frozenset[int]]:
    """The cores that each thread of this process may run on."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found.add(frozenset(os.sched_getaffinity(int(task))))
        except ProcessLookupError:
            continue  # ended since
    return found
