"""Waiting for conditions, never for time."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], within_s: float = 10.0, what: str = "the condition") -> Value:
    """Returns the first true value of `condition`; fails the test after `within_s`."""
    give_up_at = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up_at, f"{what} did not come true within {within_s} s"
        time.sleep(0.02)
