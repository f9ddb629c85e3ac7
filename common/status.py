"""What a worker says of itself once a second, for front-ends and whoever looks. It decides nothing."""

import json
from dataclasses import asdict, dataclass, fields

LOADING, READY, DRAINING = "loading", "ready", "draining"
"""The states of a worker, in the order of its life."""


@dataclass(frozen=True)
class WorkerStatus:
    """A worker's heartbeat: its state, the pace of its last fifty batches, and how the last second went.

    capacity_requests_s   requests that the device could do a second; 0 until it has done a batch
    batch_requests        requests a batch
    padding_ratio         padded tokens to real ones; 1 is no padding
    tokens_s, busy        real tokens a second, and the part of the time that the device was computing
    """

    worker: str
    state: str
    engine: str
    capacity_requests_s: float = 0.0
    batch_requests: float = 0.0
    padding_ratio: float = 0.0
    tokens_s: float = 0.0
    busy: float = 0.0

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, encoded: bytes | str) -> "WorkerStatus":
        """Takes what it knows: a worker of the next release may say more."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(encoded).items() if name in known})
