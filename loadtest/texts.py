"""Texts whose answer is known: expected.tsv, as loadtest/expect.py wrote it, and requests made of it.

Each line is a text with one [MASK] and the word that the demo model puts first, clearly ahead of the second. The first line names
the model by its fingerprint: another model gives other words, and then there is nothing to check.
"""

import random
from pathlib import Path
from typing import NamedTuple

MASK = "[MASK]"
EXPECTED = Path(__file__).with_name("expected.tsv")
LONG_CHARS = 24
"""sentences.txt has none so long; texts of several sentences all are longer."""


class Gap(NamedTuple):
    text: str
    word: str


class Known(NamedTuple):
    """What there is to check against: the model's fingerprint, and its gaps with one sentence and with several."""

    fingerprint: str
    short: tuple[Gap, ...]
    long: tuple[Gap, ...]


def known(file: Path = EXPECTED) -> Known:
    head, *lines = file.read_text(encoding="utf-8").splitlines()
    gaps = [Gap(*line.split("\t")) for line in lines]
    return Known(
        head.split()[-1],
        tuple(gap for gap in gaps if len(gap.text) < LONG_CHARS + len(MASK)),
        tuple(gap for gap in gaps if len(gap.text) >= LONG_CHARS + len(MASK)),
    )


def written(known_gaps: Known, title: str) -> str:
    """The inverse of `known`: the file's text."""
    lines = ["\t".join(gap) for gap in (*known_gaps.short, *known_gaps.long)]
    return "\n".join((f"# {title} {known_gaps.fingerprint}", *lines, ""))


def masked(text: str, position: int) -> str:
    return f"{text[:position]}{MASK}{text[position + 1 :]}"


def ideographs(text: str) -> list[int]:
    """Positions of the characters that can be asked for: no punctuation, no Latin."""
    return [position for position, character in enumerate(text) if "\u4e00" <= character <= "\u9fff"]


class Request(NamedTuple):
    gaps: tuple[Gap, ...]
    top_k: int


def single(gaps: Known, chance: random.Random) -> Request:
    return Request((chance.choice(gaps.short),), 5)


def mixed(gaps: Known, chance: random.Random) -> Request:
    """Half of the requests are one sentence; the others are lists and longer texts, and few or many candidates are asked for."""
    count = chance.choice((1, 1, 1, 1, 2, 4, 8, 16))
    of_any_length = (*gaps.short, *gaps.long * 4)
    return Request(tuple(chance.choices(of_any_length, k=count)), chance.choice((1, 5, 5, 20)))


def of_length(gaps: Known, least_chars: int, most_chars: int, chance: random.Random) -> str:
    """Any length between is as likely; the words around the one mask are as they come, so there is no right answer."""
    characters = "".join(chance.choice(gaps.short).text.replace(MASK, "的") for _ in range(1 + most_chars // 7))
    text = characters[: chance.randint(least_chars, most_chars)]
    return masked(text, chance.choice(ideographs(text)))
