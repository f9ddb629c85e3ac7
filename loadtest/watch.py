"""The service's side of a load test: what its /metrics tell, and what its processes use if they run on this machine.

Figures of a span of time are differences between two looks at counters that only grow.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from loadtest.stack import Parts, Stack, cpu_s


class Look(NamedTuple):
    """Sums over all processes. `cpu_s` and `resident_bytes` by part; empty if the service runs elsewhere."""

    samples: Mapping[str, float]
    cpu_s: Mapping[str, float]
    resident_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Service:
    """Where it is: the front-ends' address, the workers' metrics if they are served, its processes if they run here."""

    host: str
    worker_metrics: Sequence[str] = ()
    parts: Parts = field(default_factory=dict)

    @classmethod
    def of(cls, stack: Stack, first_metrics_port: int) -> "Service":
        """A stack that was started with --metrics-port."""
        parts = stack.parts()
        ports = range(first_metrics_port, first_metrics_port + len(parts["worker"]))
        return cls(f"http://127.0.0.1:{stack.port}", [f"http://127.0.0.1:{port}" for port in ports], parts)

    def look(self) -> Look:
        samples: defaultdict[str, float] = defaultdict(float)
        for address in (self.host, *self.worker_metrics):
            with urlopen(f"{address}/metrics", timeout=10) as answer:  # noqa: S310 addresses that the user named
                for family in text_string_to_metric_families(answer.read().decode()):
                    for sample in family.samples:
                        samples[sample.name] += sample.value
        memory = {part: sum(process.memory_info().rss for process in found) for part, found in self.parts.items()}
        return Look(samples, cpu_s(self.parts), memory)


def told(before: Look, after: Look, seconds: float, answered: int) -> dict[str, Any]:
    """Batch size, padding, busy fraction, memory, CPU a request between two looks; only what could be seen."""

    def grew(name: str) -> float:
        return after.samples.get(name, 0.0) - before.samples.get(name, 0.0)

    figures: dict[str, Any] = {}
    batches = grew("fillmask_batch_requests_count")
    if batches:
        figures["texts a batch"] = round(grew("fillmask_batch_requests_sum") / batches, 1)
        figures["padded to real tokens"] = round(grew("fillmask_padding_ratio_sum") / batches, 2)
        figures["device busy, % of one"] = round(100 * grew("fillmask_busy_seconds_total") / seconds, 1)
    for part, size in after.resident_bytes.items():
        figures[f"{part} memory, MiB"] = size >> 20
    if answered:
        for part, used_s in after.cpu_s.items():
            figures[f"{part} CPU, ms an answer"] = round(1000 * (used_s - before.cpu_s[part]) / answered, 3)
    return figures
