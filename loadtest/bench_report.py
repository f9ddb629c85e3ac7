"""The figures of `make bench` as Markdown, for a terminal and a file, and as JSON; and the machine they belong to."""

import json
import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

LIBRARIES = ("torch", "transformers", "onnxruntime", "openvino", "nncf", "numpy")

RATIOS = (
    ("openvino-int8", "pipeline (one by one)"),
    ("openvino-int8", "onnx-int8"),
    ("openvino-int8", "openvino"),
    ("onnx", "torch (all logits)"),
    ("torch", "torch (all logits)"),
    ("torch (compiled)", "torch"),
    ("cuda float16", "cuda float16 (no graphs)"),
    ("cuda float16", "cuda float32"),
    ("cuda float16 (compiled)", "cuda float16"),
)


def machine() -> dict[str, str]:
    told = {
        "processor": _processor(),
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d"),
    }
    for library in LIBRARIES:
        try:
            told[library] = version(library)
        except PackageNotFoundError:
            continue
    return told | _gpu()


def _processor() -> str:
    """With what decides about int8 and half precision on a CPU."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    name = next((line.partition(":")[2].strip() for line in facts if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in facts if line.startswith(("flags", "Features"))), [])
    known = [
        flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "i8mm", "sve") if flag in flags
    ]
    return f"{name} ({', '.join(known)})" if known else name


def _gpu() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    return {"GPU": torch.cuda.get_device_name(), "CUDA": str(torch.version.cuda)}


def markdown(figures: dict[str, Any]) -> str:
    parts = [_head(figures), _pace(figures), _ratios(figures["texts_s"]), _loaded(figures["loaded"])]
    parts += [_answers(figures["answers"]), _service(figures.get("service", {}))]
    return "\n".join(line for part in parts for line in part)


def save(figures: dict[str, Any], text: str, folder: Path, on: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bench-{on}.md"
    path.write_text(text + "\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _head(figures: dict[str, Any]) -> Iterator[str]:
    yield f"## Engines side by side: {figures['model']}"
    yield ""
    yield "; ".join(f"{name} {value}" for name, value in figures["machine"].items())
    yield ""
    yield f"Medians of {figures['rounds']} rounds, all engines in turn. The ratios count; the rest is this machine's."
    yield ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _pace(figures: dict[str, Any]) -> Iterator[str]:
    """Texts a second, and how many times the first row."""
    rates, shapes = figures["texts_s"], figures["shapes"]
    first: dict[str, float] = next(iter(rates.values()), {})
    yield _row(["texts/s (x the first row)", *shapes])
    yield _row(["---"] * (len(shapes) + 1))
    for name, of_shapes in rates.items():
        yield _row([name, *(f"{of_shapes[shape]:.0f} ({of_shapes[shape] / first[shape]:.1f})" for shape in shapes)])
    yield ""
    yield "Columns: texts in a batch x tokens in each."
    yield ""


def _ratios(rates: dict[str, dict[str, float]]) -> Iterator[str]:
    for one, other in RATIOS:
        if one in rates and other in rates:
            found = (f"{shape} {rates[one][shape] / rates[other][shape]:.2f}" for shape in rates[one])
            yield f"- {one} / {other}: {', '.join(found)}"
    yield ""


def _loaded(told: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield _row(["", "load s", "warm-up s", "resident MB", "peak MB"])
    yield _row(["---"] * 5)
    for name, one in told.items():
        sizes = (f"{one[key] / 1e6:.0f}" for key in ("rss_bytes", "peak_bytes"))
        yield _row([name, f"{one['load_s']:.1f}", f"{one['warm_up_s']:.1f}", *sizes])
    yield ""


def _answers(answers: dict[str, dict[str, float]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for one in answers.values() for name in one))
    yield _row(["first choice and its probability", *names])
    yield _row(["---"] * (len(names) + 1))
    for engine, one in answers.items():
        yield _row([engine, *(_difference(name, one.get(name)) for name in names)])
    yield ""


def _difference(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if "same" in name else f"{value:.1e}"


def _service(service: dict[str, Any]) -> Iterator[str]:
    if not service:
        return
    yield f"The whole service over HTTP, {service['engine']}, closed loop of {service['connections']}:"
    yield ""
    for name, value in service.items():
        if isinstance(value, dict):
            yield f"- {name}: {', '.join(f'{what} {_short(figure)}' for what, figure in value.items())}"
        elif name not in ("engine", "connections"):
            yield f"- {name}: {_short(value)}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:.0f}"
