"""api/rate_limits.py: who is one caller. What is granted is told by Redis: tests/live/test_rate_limits.py."""

import pytest

from api.rate_limits import caller_of


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("203.0.113.7", "address:203.0.113.7"),
        ("::ffff:203.0.113.7", "address:203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "address:2001:db8:1:2::/64"),
        ("fe80::1%eth0", "address:fe80::/64"),
        ("", "address:unknown"),
        ("not an address", "address:unknown"),
    ],
)
def test_one_caller(host: str, expected: str) -> None:
    assert caller_of({"state": {}, "client": (host, 1)}) == expected


def test_a_key_names_its_owner_wherever_it_comes_from() -> None:
    assert caller_of({"state": {"caller": "alice"}, "client": ("203.0.113.7", 1)}) == "key:alice"
    assert caller_of({"state": {}, "client": None}) == "address:unknown"
