"""NVIDIA's perf_analyzer against the running service: it asks for the model's configuration, sends load and reports.

`pip install perf-analyzer` needs glibc 2.38. Here it is the one that tritonclient 2.50 brought along, which runs on glibc 2.34,
and the two libraries that it is linked with; fetched once a machine, and skipped where one of them cannot be had.
"""

import csv
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock
from stacks import Stack

MODEL = "demo-zh"
PACKAGES = ("tritonclient==2.50.0", "nvidia-cuda-runtime-cu12==12.6.77")
REQUESTS = 200


def fetched() -> Path:
    """The folder with the program and its libraries. Raises CalledProcessError or FileNotFoundError if it cannot be made."""
    folder = Path(tempfile.gettempdir()) / "fillmask-perf-analyzer-2.50.0"
    with FileLock(f"{folder}.lock"):
        if not (folder / "perf_analyzer").exists():
            folder.mkdir(exist_ok=True)
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*download, "--dest", str(folder), *PACKAGES], check=True, capture_output=True, timeout=100)
            subprocess.run(
                ["apt-get", "download", "libb64-0d"], cwd=folder, check=True, capture_output=True, timeout=60
            )
            (debian,) = folder.glob("libb64*.deb")
            subprocess.run(["dpkg-deb", "-x", str(debian), str(folder)], check=True, timeout=10)
            for wheel in folder.glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(folder)
            for library in [*folder.rglob("libb64.so.0d"), *folder.rglob("libcudart.so.12")]:
                shutil.copy(library, folder)
            (program,) = folder.glob("*.data/data/bin/perf_analyzer")
            program.chmod(0o755)
            program.rename(folder / "perf_analyzer")
    return folder


@pytest.fixture(scope="module")
def analyzer() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("perf_analyzer is there for Linux on x86-64 only")
    try:
        return fetched()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"perf_analyzer cannot be fetched: {error}")


def analyze(stack: Stack, analyzer: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    sent = {"data": [{"text": [text], "top_k": [3]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(sent, file)
        file.flush()
        asked = (
            f"-m {MODEL} -u 127.0.0.1:{stack.port} --input-data {file.name} --shape text:1 --request-count {REQUESTS}"
        )
        return subprocess.run(
            [str(analyzer / "perf_analyzer"), *asked.split(), "--concurrency-range", "4", *options],
            env=os.environ | {"LD_LIBRARY_PATH": str(analyzer)},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.mark.parametrize("tensors", ["json", "binary"])
def test_it_measures(stack: Stack, analyzer: Path, tmp_path: Path, tensors: str) -> None:
    report = tmp_path / "report.csv"
    formats = ["--input-tensor-format", tensors, "--output-tensor-format", tensors]
    ran = analyze(stack, analyzer, "床前明月光，疑是地[MASK]霜。", *formats, "-f", str(report))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = csv.DictReader(report.read_text().splitlines())
    assert row["Concurrency"] == "4"
    assert float(row["Inferences/Second"]) > 0


def test_it_tells_why_a_request_is_refused(stack: Stack, analyzer: Path) -> None:
    ran = analyze(stack, analyzer, "床前明月光")
    assert ran.returncode != 0
    assert "has no [MASK]" in ran.stdout + ran.stderr
