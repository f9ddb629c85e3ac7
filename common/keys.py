"""Every Redis key, what it holds and who deletes it. It touches no Redis: a name is a function of its arguments.

All keys of one model and shard carry the same hash tag, so that on a Redis Cluster they lie on one node and one script
may touch them together. `model` is the fingerprint of common/checkpoint.py: a request can never reach another model,
and two revisions run side by side while one replaces the other.
"""

from dataclasses import dataclass

GROUP = "workers"
"""The consumer group of every requests stream. It is created at id 0, never at `$`: a request must not be skipped."""

REPLIES_TTL_MS = 60_000
"""A front-end that vanished leaves its replies behind; a minute after the last push they go by themselves."""

HEARTBEAT_TTL_MS = 3_000
"""Three missed heartbeats (one a second) and a worker counts as gone."""

DEAD_LETTERS_MAX = 1_000


@dataclass(frozen=True)
class Keys:
    """The names of one model's shard.

    requests    stream: requests that wait or are in flight. XDEL when answered, so XLEN is exactly the backlog. Its cap
                is kept by the put script: MAXLEN would silently drop undelivered requests.
    epoch       string: a random word, new whenever the stream had to be made anew. A front-end that sees it change knows
                that what it had put is gone. Never deleted on its own.
    dead        stream, about 1000 entries: id, length, deliveries and error of requests that were given up.
    replies     list, one a front-end: encoded replies; REPLIES_TTL_MS after the last push.
    rate        string, one a caller with a rate limit: how full its bucket was, and when (api/rate_limits.py). It goes by
                itself when the bucket is empty.
    heartbeat   string, one a worker: a JSON object (state, engine, capacity); HEARTBEAT_TTL_MS.
    """

    model: str
    shard: int = 0

    @property
    def prefix(self) -> str:
        return f"fillmask:{{{self.model}:{self.shard}}}"

    @property
    def requests(self) -> str:
        return f"{self.prefix}:requests"

    @property
    def epoch(self) -> str:
        return f"{self.prefix}:epoch"

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dead"

    def rate(self, caller: str) -> str:
        return f"{self.prefix}:rate:{caller}"

    def replies(self, front_end: str) -> str:
        return f"{self.prefix}:replies:{front_end}"

    def heartbeat(self, worker: str) -> str:
        return f"{self.prefix}:worker:{worker}"
