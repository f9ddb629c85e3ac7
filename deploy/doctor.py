"""`fillmask doctor`: looks for what would keep the service from running well, and says it in one line each. Changes nothing.

Each check returns a Finding and never raises: one trouble must not hide the next.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from common.checkpoint import Checkpoint, open_checkpoint
from common.command_line import parse
from common.errors import StartupError
from deploy.redis_server import check_reachable, find_server
from worker.cores import usable_cores
from worker.settings import EngineName, WorkerSettings

_NEEDED = (
    "fastapi",
    "httptools",
    "huggingface-hub",
    "msgpack",
    "numpy",
    "onnxruntime",
    "prometheus-client",
    "pydantic",
    "pydantic-settings",
    "redis",
    "tokenizers",
    "uvicorn",
)
_FASTER = ("hiredis", "uvloop")
_OPTIONS = frozenset(("model", "revision", "redis_url", "engine", "threads", "cache_dir"))


class Finding(NamedTuple):
    name: str
    status: Literal["ok", "warn", "fail"]
    text: str


_ASK_TORCH = "import torch; print(torch.version.cuda or '', torch.cuda.device_count(), sep=',')"
_ASK_TORCH_S = 60.0


class Gpu(NamedTuple):
    """What there is of NVIDIA's. `build` is torch's CUDA version, empty for a CPU build, None if torch cannot be used."""

    device_files: bool
    build: str | None
    devices: int


def check_python(found: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    told = ".".join(map(str, found))
    return (
        Finding("python", "ok", told) if found >= (3, 11) else Finding("python", "fail", f"{told}; needed is >= 3.11")
    )


def check_packages(installed: Callable[[str], str] = version) -> Finding:
    """`installed` gives a package's version or raises PackageNotFoundError."""
    missing, slower = ([name for name in names if not _is_there(name, installed)] for names in (_NEEDED, _FASTER))
    if missing:
        return Finding("packages", "fail", f"missing: {', '.join(missing)}; pip install fillmask brings them")
    if slower:
        return Finding("packages", "warn", f"{', '.join(slower)} not installed: front-ends are slower without")
    return Finding("packages", "ok", f"all {len(_NEEDED) + len(_FASTER)} that are needed are installed")


def check_redis(settings: WorkerSettings) -> Finding:
    """The server that is named, or else the one that `fillmask up` would start."""
    try:
        if "redis_url" not in settings.model_fields_set:
            return Finding("redis", "ok", f"REDIS_URL is not set; `fillmask up` would start {find_server()}")
        warnings = check_reachable(settings.redis_url)
    except StartupError as error:
        return Finding("redis", "fail", error.message)
    return (
        Finding("redis", "warn", warnings[0]) if warnings else Finding("redis", "ok", "it answers, and is new enough")
    )


def check_model(settings: WorkerSettings) -> tuple[Finding, Checkpoint | None]:
    try:
        checkpoint = open_checkpoint(settings.model, settings.revision)
    except StartupError as error:
        return Finding("model", "fail", error.message), None
    facts = f"{checkpoint.architecture}, mask token {checkpoint.mask_token}, at most {checkpoint.max_tokens} tokens"
    return Finding("model", "ok", f"{checkpoint.name}: {facts}"), checkpoint


def check_engine(settings: WorkerSettings, checkpoint: Checkpoint | None, has_cuda: bool = False) -> Finding:
    """Which engine would run the model, and what that would miss at its start: in its own words, for its own code is asked."""
    if checkpoint is None:
        return Finding("engine", "warn", f"{settings.engine}: without a model there is nothing that it could run")
    from worker.engines.choice import check_engine as look  # numpy, which --help does not need

    try:
        engine, why = look(settings, checkpoint, has_cuda)
    except StartupError as error:
        return Finding("engine", "fail", f"{settings.engine}: {error.message}")
    return Finding("engine", "ok", f"auto means {engine}: {why}" if settings.engine == "auto" else engine)


def check_cores(threads: int, host: int, allowed: int, usable: int) -> Finding:
    """`host` cores, `allowed` by the affinity mask, `usable` under the cgroup quota as well."""
    told = f"{usable} usable of the host's {host}" + (f" (affinity mask: {allowed})" if allowed < host else "")
    if usable < allowed:
        told += ", by the cgroup quota"
    if threads > usable:
        return Finding("cores", "warn", f"{told}; {threads} threads would take turns on them")
    return Finding("cores", "ok", f"{told}; one worker would run {threads or usable} threads")


def check_cuda(gpu: Gpu, engines: tuple[str, ...] = get_args(EngineName)) -> Finding:
    """Whether a GPU that is there is going to be used. That it is not, nothing else would ever say."""
    if not gpu.device_files and not gpu.devices:
        return Finding("cuda", "ok", "no NVIDIA device: workers run on the CPU")
    if "cuda" not in engines:
        return Finding("cuda", "warn", "there is an NVIDIA device, but no engine of this release uses it")
    if gpu.build is None:
        return Finding(
            "cuda", "warn", "there is an NVIDIA device, but torch is missing or broken: it would not be used"
        )
    if not gpu.build:
        return Finding("cuda", "warn", "torch is a build for the CPU: the GPU would silently not be used")
    if not gpu.devices:
        return Finding("cuda", "warn", f"torch (CUDA {gpu.build}) sees no device: driver too old, or hidden from here?")
    return Finding("cuda", "ok", f"torch (CUDA {gpu.build}) sees {gpu.devices} device(s)")


def look_for_gpu() -> Gpu:
    """Asks torch in a process of its own, which may take seconds: a broken driver can crash or hang whoever asks."""
    device_files = any(Path("/dev").glob("nvidia[0-9]*"))
    if not find_spec("torch"):
        return Gpu(device_files, None, 0)
    try:
        command = [sys.executable, "-c", _ASK_TORCH]
        told = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TORCH_S, check=True)  # noqa: S603
        build, devices = told.stdout.strip().split("\n")[-1].split(",")
    except (OSError, subprocess.SubprocessError, ValueError):
        return Gpu(device_files, None, 0)
    return Gpu(device_files, build, int(devices))


def examine(settings: WorkerSettings) -> list[Finding]:
    model, checkpoint = check_model(settings)
    host = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else host
    gpu = look_for_gpu()
    return [
        check_python(),
        check_packages(),
        check_redis(settings),
        model,
        check_engine(settings, checkpoint, has_cuda=gpu.devices > 0),
        check_cores(settings.threads, host, allowed, usable_cores()),
        check_cuda(gpu),
    ]


def main(arguments: list[str]) -> int:
    without = WorkerSettings.model_fields.keys() - _OPTIONS
    findings = examine(parse(WorkerSettings, arguments, "fillmask doctor", without))
    for finding in findings:
        print(f"{finding.status:<5} {finding.name:<9} {finding.text}")
    return 1 if any(finding.status == "fail" for finding in findings) else 0


def _is_there(name: str, installed: Callable[[str], str]) -> bool:
    try:
        installed(name)
    except PackageNotFoundError:
        return False
    return True
