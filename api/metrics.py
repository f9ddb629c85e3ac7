"""Every metric of a front-end: name, sentence, unit. It decides nothing; the code that decides, counts.

Several front-ends of one host share PROMETHEUS_MULTIPROC_DIR, and each /metrics then tells the sum of all.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from api.recent import Recent

LATENCY_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

REQUESTS = Counter("fillmask_http_requests", "HTTP requests by route and status", ["route", "status"])
LATENCY = Histogram("fillmask_http_request_seconds", "HTTP request duration", ["route"], buckets=LATENCY_BUCKETS_S)
TEXTS = Counter("fillmask_texts", "texts accepted into the queue")
TOKENS = Counter("fillmask_tokens", "tokens of accepted texts, special ones included")
REFUSED = Counter("fillmask_refused", "requests refused or failed, by error type", ["error_type"])
LATE_REPLIES = Counter("fillmask_late_replies", "replies that nobody waits for any more")
WITHDRAWN = Counter(
    "fillmask_withdrawn", "texts taken back from the queue: past their deadline, or their caller hung up"
)
PUT_AGAIN = Counter("fillmask_put_again", "texts put a second time because Redis or a connection was lost")
IN_FLIGHT = Gauge("fillmask_in_flight", "texts that wait for their reply", multiprocess_mode="livesum")
BACKLOG = Gauge("fillmask_backlog", "texts in the queue when last told", multiprocess_mode="livemax")

RECENT = Recent()
"""The last minute of this process, for GET /status: not Prometheus' business, but counted where its counters are."""


def expect(error_types: Iterable[str]) -> None:
    """Each starts at 0: of a series that begins with its first refusal, Prometheus would never see that one."""
    for error_type in error_types:
        REFUSED.labels(error_type)


def exposition(several_processes: bool) -> bytes:
    """The metrics in Prometheus' text format, summed over the host's front-ends if there are several."""
    if not several_processes:
        return generate_latest()
    _forget_the_dead(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return generate_latest(registry)


def _forget_the_dead(folder: Path) -> None:
    """What a process that is gone held last would be added for ever; what it counted stays."""
    for number in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*_*.db")}:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            mark_process_dead(number, str(folder))
        except PermissionError:
            continue  # another user's: it lives
