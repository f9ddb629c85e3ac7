"""The last minute of this front-end, for those who look at the page: requests, failures, durations. It forgets the rest.

Each second has a histogram of its own, whose buckets grow by a tenth: percentiles are true to that, a request costs two
additions, and no list of durations grows with the load. Prometheus (api/metrics.py) has the long view.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

WINDOW_S = 60

_LEAST_S = 0.0001
_GROWTH = math.log(1.1)


@dataclass(slots=True)
class Second:
    """`buckets[n]` counts the requests that took up to 0.1 ms times 1.1 to the power of n."""

    began_s: int
    failed: int = 0
    buckets: Counter[int] = field(default_factory=Counter)


class Recent:
    """Fed by the middleware with each fill request, told by GET /status."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = int(clock())
        self._seconds: deque[Second] = deque(maxlen=WINDOW_S + 1)  # the one that is not over is not told

    def add(self, duration_s: float, failed: bool) -> None:
        now_s = int(self._clock())
        if not self._seconds or self._seconds[-1].began_s != now_s:
            self._seconds.append(Second(now_s))
        second = self._seconds[-1]
        second.failed += failed
        second.buckets[max(0, math.ceil(math.log(max(duration_s, _LEAST_S) / _LEAST_S) / _GROWTH))] += 1

    def tell(self) -> dict[str, object]:
        """Of whole seconds alone, oldest first: at most WINDOW_S, fewer if the process is younger."""
        now_s = int(self._clock())
        window = range(max(self._began_s, now_s - WINDOW_S), now_s)
        known = {second.began_s: second for second in self._seconds if second.began_s in window}
        seconds = [known.get(began_s, Second(began_s)) for began_s in window]
        together = sum((second.buckets for second in seconds), Counter[int]())
        return {
            "window_s": len(window),
            "requests_s": together.total() / max(1, len(window)),
            "failed": sum(second.failed for second in seconds),
            "p50_ms": _percentile_ms(together, 0.50),
            "p99_ms": _percentile_ms(together, 0.99),
            "requests_by_second": [second.buckets.total() for second in seconds],
            "p50_ms_by_second": [_percentile_ms(second.buckets, 0.50) for second in seconds],
        }


def _percentile_ms(buckets: Counter[int], share: float) -> float | None:
    """The upper end of the bucket in which it lies; None of no requests."""
    wanted = share * buckets.total()
    passed = 0
    for bucket, count in sorted(buckets.items()):
        passed += count
        if passed >= wanted:
            return round(_LEAST_S * math.exp(bucket * _GROWTH) * 1000, 2)
    return None
