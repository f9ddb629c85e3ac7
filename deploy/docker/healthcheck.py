"""`python -m deploy.docker.healthcheck front-end|worker`: exit 0 if the process in this container is well, else 1.

For a HEALTHCHECK and for probes that must look into an answer. It needs nothing but Python, and asks this machine only.
"""

import os
import sys
from urllib.request import ProxyHandler, build_opener

_ANSWER_S = 2.0

READY_LINE = b"\nfillmask_worker_ready 1.0\n"
"""What a worker's metrics say once its model is loaded, warmed up and checked."""


def well(part: str) -> bool:
    """A front-end is well when it answers, even without Redis: starting it again would not bring Redis back."""
    if part == "front-end":
        _get(os.environ.get("FILLMASK_HOST", ""), os.environ.get("FILLMASK_PORT") or "8000", "/healthz")
        return True
    metrics = _get(os.environ.get("FILLMASK_METRICS_HOST", ""), os.environ["FILLMASK_METRICS_PORT"], "/metrics")
    return READY_LINE in metrics


def _get(listens_on: str, port: str, path: str) -> bytes:
    here = "[::1]" if ":" in listens_on else "127.0.0.1"
    opener = build_opener(ProxyHandler({}))  # HTTP_PROXY is not for this machine
    with opener.open(f"http://{here}:{port}{path}", timeout=_ANSWER_S) as answer:
        body: bytes = answer.read()
        return body


def main(arguments: list[str]) -> int:
    part = arguments[0] if arguments else ""
    if part not in ("front-end", "worker"):
        print("usage: python -m deploy.docker.healthcheck front-end|worker", file=sys.stderr)
        return 2
    try:
        return 0 if well(part) else 1
    except (OSError, KeyError, ValueError) as error:
        print(f"{part}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
