"""Do the engines of `make bench` say the same, alone and in a batch, and as float32 says? Random texts, always the same ones."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from loadtest.bench_rivals import Running, Told

TEXTS, TOKENS, TOGETHER = 200, 32, 8


def compare(there: Sequence[Running], exact: str) -> dict[str, dict[str, float]]:
    """By engine: how it differs from itself when `TOGETHER` texts of any length go together, and from the exact one."""
    ours = [one for one in there if one.told["engine"] not in ("pipeline", "torch")]
    alone = {one.name: one.ask(do="answer", count=TEXTS, length=TOKENS, batch=1) for one in ours}
    found = {}
    for one in ours:
        together = one.ask(do="answer", count=TEXTS, length=TOKENS, batch=TOGETHER)
        found[one.name] = _differences("in a batch", alone[one.name], together)
        if exact in alone and one.name != exact:
            found[one.name] |= _differences("from float32", alone[exact], alone[one.name])
    return found


def _differences(name: str, expected: Told, found: Told) -> dict[str, float]:
    """Of the probability of the first choice, and in how many texts the first choice is the same."""
    both = zip(_firsts(expected), _firsts(found), strict=True)
    pairs = [(one, other) for one, other in both]
    apart = [abs(one[1] - other[1]) for one, other in pairs]
    return {
        f"{name}: same first choice": sum(one[0] == other[0] for one, other in pairs) / len(pairs),
        f"{name}: median difference": median(apart),
        f"{name}: worst difference": max(apart),
    }


def _firsts(told: Told) -> list[tuple[Any, float]]:
    return [(ids[0], scores[0]) for ids, scores in zip(told["token_ids"], told["probabilities"], strict=True)]
