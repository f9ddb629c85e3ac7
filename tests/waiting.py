"""Waiting for a condition instead of sleeping for a guess."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], within_s: float = 10.0, what: str = "the condition") -> None:
    """Returns as soon as the condition holds; fails the test if it does not hold in time."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what} did not come true within {within_s} s")
        time.sleep(0.005)
