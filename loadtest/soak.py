"""`make soak MINUTES=n`: texts of random length for a while, and whether anything grows that should not.

Prints, half by half, the resident memory of each process, and at the end what is left in Redis. Exit code 1 if a process grew
by more than 5 % in the second half, if requests were lost or wrong, or if keys without a time to live are left.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator

from loadtest.closed_loop import Load, closed_loop
from loadtest.stack import Stack, wait_for

PATH = "/v1/fill-mask"
CONNECTIONS = 32
MOST_GROWTH = 1.05
LASTING = (b":requests", b":epoch", b":dead")


def bodies(count: int) -> Iterator[bytes]:
    """`count` requests of 3 to 250 characters, one or several texts, few or many candidates."""
    chance = random.Random(2026)
    for _ in range(count):
        texts = [
            "天" * chance.randint(1, 120) + "[MASK]" + "地" * chance.randint(1, 120)
            for _ in range(chance.randint(1, 4))
        ]
        yield json.dumps({"texts": texts, "top_k": chance.choice((1, 5, 20))}).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--requests", type=int, default=200_000, help="stop earlier when so many are done")
    parser.add_argument("--port", type=int, default=8390, help="a free port")
    parser.add_argument("--engine", default="auto")
    asked = parser.parse_args()
    with Stack(asked.port, "--engine", asked.engine, "--log-level", "error") as stack:
        load = Load(asked.port, PATH, bodies(asked.requests // 3), CONNECTIONS, asked.minutes * 60 / 3)
        trouble = []
        sizes = []
        for third in range(3):  # the first warms up: pools, arenas and caches fill
            outcome = asyncio.run(closed_loop(load, lambda _, status, __: status == 200))
            load = Load(asked.port, PATH, bodies(asked.requests // 3), CONNECTIONS, asked.minutes * 60 / 3)
            sizes.append(_sizes(stack))
            print(f"third {third + 1}: {outcome.answered} requests, {outcome.wrong} wrong, {outcome.lost} lost")
            if outcome.wrong or outcome.lost:
                trouble.append("requests failed")
        for part, size in sizes[2].items():
            growth = size / sizes[1][part]
            mib = "".join(f"{sizes_then[part] >> 20:7}" for sizes_then in sizes)
            print(f"{part:14}{mib} MiB   x {growth:.3f} in the last third")
            if growth > MOST_GROWTH:
                trouble.append(f"{part} grew")
        trouble += _left_behind(stack)
    print("; ".join(trouble) or "nothing grew, nothing was left behind")
    return 1 if trouble else 0


def _sizes(stack: Stack) -> dict[str, int]:
    """Resident bytes of each process."""
    return {
        f"{part} {number}": process.memory_info().rss
        for part, processes in stack.parts().items()
        for number, process in enumerate(processes, 1)
    }


def _left_behind(stack: Stack) -> list[str]:
    """What is in Redis and should not be, once all is answered."""
    with stack.redis() as client:
        names: list[bytes] = client.keys("*")
        (requests,) = [name for name in names if name.endswith(b":requests")]
        wait_for(lambda: client.xlen(requests) == 0)
        lasting = [name for name in names if client.ttl(name) == -1 and not name.endswith(LASTING)]
        return [f"{len(lasting)} keys would stay for ever"] if lasting else []


if __name__ == "__main__":
    sys.exit(main())
