"""`make bench`: the engines side by side, in one run on this machine. On a machine with a CUDA device it is the GPU check, too.

    python -m loadtest.bench                 a model of bert-base's shape with random weights
    python -m loadtest.bench --model FOLDER  a checkpoint of yours

Each engine is a process of its own; all are asked in turn, round after round, and medians count. Then each one's answers are
compared: alone against in a batch, and with float32. Last comes the whole service over HTTP with the best engine, as a part of
what that engine does by itself. It prints a table and writes it to loadtest/results/ as Markdown and JSON.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from loadtest import base_shape
from loadtest.bench_answers import compare
from loadtest.bench_report import machine, markdown, save
from loadtest.bench_rivals import COMPILED, CUDA, ON_CPU, ON_CUDA, TORCH, Rival, Running, exported, running
from loadtest.bench_service import served

SHAPES = {"cpu": "1x16 8x16 32x16 64x16 8x64 8x128", "cuda": "1x16 16x16 64x16 256x16 512x16 64x64 128x128 32x512"}
"""Texts in a batch x tokens in each."""

SENTENCE_TOKENS = 16


def kind_of_machine() -> str:
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint with weights; else one of bert-base's shape is made")
    parser.add_argument("--folder", type=Path, help="where models are made and kept; else they are thrown away")
    parser.add_argument("--on", choices=("cpu", "cuda"), default=kind_of_machine())
    parser.add_argument("--engines", help="some of the names in the table, separated by commas")
    parser.add_argument("--shapes", help="such as '1x16 32x16': texts in a batch x tokens in each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each engine at each shape in each round")
    parser.add_argument("--service-seconds", type=float, default=10.0, help="of each load over HTTP; 0: none")
    parser.add_argument("--connections", type=int, help="closed loop over HTTP; else 64, with CUDA 1024")
    parser.add_argument("--api", type=int, help="front-ends; else 1, with CUDA 6")
    parser.add_argument("--workers", type=int, help="workers; else 1, with CUDA 3")
    parser.add_argument("--compiled", action="store_true", help="torch.compile, too; compiling takes minutes")
    parser.add_argument("--port", type=int, default=8390, help="a free port")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results"))
    asked = parser.parse_args()
    for name, on_cpu, on_cuda in (("connections", 64, 1024), ("api", 1, 6), ("workers", 1, 3)):
        if getattr(asked, name) is None:
            setattr(asked, name, on_cpu if asked.on == "cpu" else on_cuda)
    return asked


def rivals(asked: argparse.Namespace) -> list[Rival]:
    """Those that are asked for, else all. Ends the program at a name that nobody has."""
    every = [*(ON_CPU if asked.on == "cpu" else ON_CUDA), *([COMPILED[asked.on]] if asked.compiled else [])]
    known = [rival.name for rival in every]
    wanted = [name.strip() for name in asked.engines.split(",")] if asked.engines else known
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--engines: no {', '.join(unknown)} here; there are: {', '.join(known)}")
    return [rival for rival in every if rival.name in wanted]


def measure(there: Sequence[Running], shapes: Sequence[tuple[int, int]], asked: argparse.Namespace) -> dict[str, Any]:
    """Texts a second, by engine and shape: medians of the rounds."""
    found: dict[str, dict[str, list[float]]] = {one.name: {} for one in there}
    for turn in range(asked.rounds):
        print(f"round {turn + 1} of {asked.rounds}", file=sys.stderr)
        for count, length in shapes:
            for one in there:
                took = one.ask(do="time", count=count, length=length, seconds=asked.seconds)
                found[one.name].setdefault(f"{count}x{length}", []).append(took["texts"] / took["seconds"])
    return {name: {shape: median(rates) for shape, rates in of_shapes.items()} for name, of_shapes in found.items()}


def best(rates: dict[str, Any], names: Sequence[str]) -> tuple[str, int]:
    """The fastest of our engines at sentences, and the batch with which it is."""
    at = [
        (rate, name, int(shape.split("x")[0]))
        for name in names
        for shape, rate in rates[name].items()
        if shape.endswith(f"x{SENTENCE_TOKENS}")
    ]
    _, name, count = max(at)
    return name, count


@contextmanager
def models(asked: argparse.Namespace) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="fillmask-bench-") as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        model = asked.model or str(base_shape.build(folder / "bert-base-shape"))
        graphs = model if asked.on == "cuda" else exported(model, folder / "exported", _wants_int8(asked))
        yield {"model": model, "exported": graphs}


def bench(asked: argparse.Namespace, places: dict[str, str]) -> dict[str, Any]:
    shapes = [(int(count), int(length)) for count, length in (s.split("x") for s in _shapes(asked).split())]
    taking_part = rivals(asked)
    with running(taking_part, places) as there:
        rates = measure(there, shapes, asked)
        told = {one.name: one.told | one.ask(do="memory") for one in there}
        answers = compare(there, TORCH.name if asked.on == "cpu" else "cuda float32")
    figures: dict[str, Any] = {"machine": machine(), "model": asked.model or "bert-base shape, random weights"}
    figures |= {"shapes": _shapes(asked).split(), "rounds": asked.rounds, "texts_s": rates, "loaded": told}
    figures["answers"] = answers
    ours = [rival for rival in taking_part if "bench" in rival.arguments and rival.name in rates]
    if asked.service_seconds and ours and any(length == SENTENCE_TOKENS for _, length in shapes):
        name, count = (CUDA.name, 512) if CUDA.name in rates else best(rates, [rival.name for rival in ours])
        rival = next(rival for rival in ours if rival.name == name)
        figures["service"] = served(rival, count, places, asked)
    return figures


def _wants_int8(asked: argparse.Namespace) -> bool:
    return any("int8" in rival.name for rival in rivals(asked))


def _shapes(asked: argparse.Namespace) -> str:
    shapes: str = asked.shapes or SHAPES[asked.on]
    return shapes


def main() -> int:
    asked = options()
    with models(asked) as places:
        figures = bench(asked, places)
    text = markdown(figures)
    print(text)
    print(f"written to {save(figures, text, asked.results, asked.on)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
