"""A model by its hub id: through a mirror (HF_ENDPOINT), from the cache without a network, and what is said if it fails.

The mirror is a small HTTP server that speaks what huggingface_hub asks; the client is the real one, in a process of its own
since it reads its environment when imported.
"""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = "model.safetensors"

OPEN = """
import sys
from common.checkpoint import open_checkpoint
from common.errors import StartupError
try:
    found = open_checkpoint(sys.argv[1], sys.argv[2])
    print(found.mask_token, found.max_tokens, found.revision, found.title)
except StartupError as error:
    print(error.message)
"""


class Hub(BaseHTTPRequestHandler):
    """Answers for owner/bert; owner/gated wants a token; nothing else exists."""

    server: "Mirror"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.split("?")[0]
        file = self.server.folder / path.rsplit("/", 1)[-1]
        if "gated" in path:
            self._refuse(403, "GatedRepo")
        elif "owner/bert" not in path:
            self._refuse(404, "RepoNotFound")
        elif "/tree/" in path:
            files = sorted(self.server.folder.iterdir())
            tree = [
                {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _oid(f.read_bytes())} for f in files
            ]
            self._send(json.dumps(tree).encode())
        elif path.startswith("/api/models/") and path.endswith(("/main", COMMIT, "/bert")):
            siblings = [{"rfilename": file.name} for file in sorted(self.server.folder.iterdir())]
            self._send(json.dumps({"id": "owner/bert", "sha": COMMIT, "siblings": siblings}).encode())
        elif file.is_file():
            self._send(file.read_bytes())
        else:
            self._refuse(404, "RevisionNotFound")

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{_oid(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Mirror(ThreadingHTTPServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Hub)
        self.folder = folder
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    folder = tmp_path / "hub"
    folder.mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天", "气"]
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    config = {"architectures": ["BertForMaskedLM"], "vocab_size": 7, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / LARGE).write_bytes(b"the front-end never asks for these")
    with Mirror(folder) as running:
        threading.Thread(target=running.serve_forever).start()
        yield running
        running.shutdown()


def opened(home: Path, name: str, revision: str = "main", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, name, revision],
        cwd=ROOT,
        env={"HF_HOME": str(home), "PATH": "", "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_through_a_mirror_and_then_without_a_network(mirror: Mirror, tmp_path: Path) -> None:
    expected = f"[MASK] 512 {COMMIT} owner/bert"
    assert opened(tmp_path, "owner/bert", HF_ENDPOINT=mirror.url) == expected
    assert not any(LARGE in path for path in mirror.asked), "facts are small files"
    before = len(mirror.asked)
    assert opened(tmp_path, "owner/bert", HF_HUB_OFFLINE="1", HF_ENDPOINT=mirror.url) == expected
    assert len(mirror.asked) == before


def test_what_is_said_when_it_fails(mirror: Mirror, tmp_path: Path) -> None:
    assert "does not exist, or it is private" in opened(tmp_path, "owner/other", HF_ENDPOINT=mirror.url)
    assert "has no revision v9" in opened(tmp_path, "owner/bert", "v9", HF_ENDPOINT=mirror.url)
    assert "is gated" in opened(tmp_path, "owner/gated", HF_ENDPOINT=mirror.url)
    offline = opened(tmp_path, "owner/bert", HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set" in offline
    away = opened(tmp_path, "owner/bert", HF_ENDPOINT="http://127.0.0.1:9")
    assert "cannot be reached" in away
