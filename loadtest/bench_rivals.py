"""Who takes part in `make bench`, each as a process of its own that answers JSON lines; and the models that they run.

All are loaded before the first is timed, and whoever is not asked sleeps: so each round asks all of them within a minute.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

Told = dict[str, Any]


class Rival(NamedTuple):
    """`arguments` of Python, with {model} for a checkpoint with weights and {exported} for one with graphs."""

    name: str
    arguments: tuple[str, ...]


def _ours(engine: str, *options: str, model: str = "{exported}") -> tuple[str, ...]:
    return ("-m", "deploy.cli", "bench", "--engine", engine, "--model", model, *options)


NAIVE = Rival("pipeline (one by one)", ("-m", "loadtest.bench_naive", "{model}", "--one-by-one"))
TORCH = Rival("torch", _ours("torch", model="{model}"))
ON_CPU = (
    NAIVE,
    Rival("torch (all logits)", ("-m", "loadtest.bench_naive", "{model}")),
    TORCH,
    Rival("onnx", _ours("onnx")),
    Rival("onnx-int8", _ours("onnx-int8")),
    Rival("openvino", _ours("openvino")),
    Rival("openvino-int8", _ours("openvino-int8")),
)
CUDA = Rival("cuda float16", _ours("cuda", model="{model}"))
ON_CUDA = (
    NAIVE,
    CUDA,
    Rival("cuda float16 (no graphs)", _ours("cuda", "--no-cuda-graphs", model="{model}")),
    Rival("cuda bfloat16", _ours("cuda", "--cuda-dtype", "bfloat16", model="{model}")),
    Rival("cuda float32", _ours("cuda", "--cuda-dtype", "float32", model="{model}")),
)
COMPILED = {
    "cpu": Rival("torch (compiled)", _ours("torch", "--torch-compile", model="{model}")),
    "cuda": Rival("cuda float16 (compiled)", _ours("cuda", "--torch-compile", model="{model}")),
}


class Running:
    """A rival's process. `told` is what it said of itself when it was loaded."""

    def __init__(self, rival: Rival, process: "subprocess.Popen[str]") -> None:
        self.name = rival.name
        self._process = process
        self.told: Told = self._hear()

    def ask(self, **wanted: Any) -> Told:
        assert self._process.stdin is not None  # noqa: S101 asked for below
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> Told:
        assert self._process.stdout is not None  # noqa: S101 asked for below
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"{self.name} ended")
        told: Told = json.loads(line)
        return told


@contextmanager
def running(rivals: Sequence[Rival], models: dict[str, str]) -> Iterator[list[Running]]:
    """Those that come up; the others say on standard error why not."""
    with ExitStack() as stack:
        there = []
        for rival in rivals:
            try:
                there.append(Running(rival, stack.enter_context(_process(rival, models))))
            except EOFError:
                print(f"{rival.name}: left out", file=sys.stderr)
        yield there


@contextmanager
def _process(rival: Rival, models: dict[str, str]) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, *(word.format(**models) for word in rival.arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 our own
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def exported(model: str, folder: Path, int8: bool) -> str:
    """The model with its graphs, in int8 too where that can be made, whatever it is worth: random weights agree with nothing."""
    if (folder / "config.json").is_file():
        return str(folder)
    options = ["--least-agreement", "0"]
    if int8:
        options += ["--dynamic-int8", *(["--int8"] if find_spec("nncf") and find_spec("openvino") else [])]
    command = [sys.executable, "-m", "deploy.cli", "export", str(folder), "--model", model, *options]
    subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603 our own command
    return str(folder)
