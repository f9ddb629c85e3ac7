"""What SECURITY.md says is never done, is not done: no pickle, no code of strangers, no shell. It reads the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for part in ("api", "common", "worker", "deploy") for path in (ROOT / part).rglob("*.py"))

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "torch.jit.load",
    "numpy.load",
    "np.load",
}
FORBIDDEN_ARGUMENTS = {("trust_remote_code", True), ("shell", True), ("allow_pickle", True), ("weights_only", False)}


def faults(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            yield f"from {node.module}"
        elif isinstance(node, ast.Call):
            yield from call_faults(node)


def call_faults(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    if name in FORBIDDEN_CALLS:
        yield name
    if name == "torch.load" and not any(keyword.arg == "weights_only" for keyword in call.keywords):
        yield "torch.load without weights_only"
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Constant) and (keyword.arg, keyword.value.value) in FORBIDDEN_ARGUMENTS:
            yield f"{name}({ast.unparse(keyword)})"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_is_run_that_came_from_outside(path: Path) -> None:
    assert not list(faults(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "yaml.load(text)",
        "subprocess.run(line, shell=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
    ],
)
def test_this_test_would_see_it(code: str) -> None:
    assert list(faults(ast.parse(code)))


def test_links_of_the_page_lead_somewhere() -> None:
    told = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", told):
        assert (ROOT / target).exists(), target
