"""Writes expected.tsv: asks a running stack with the demo model for every gap of every sentence, and keeps a clear one.

    python -m loadtest.expect            write it anew, after a change of the model or of sentences.txt
    python -m loadtest.expect --check    exit code 1 if a recorded answer is not the model's any more

A gap counts as clear when the first candidate leads the second by LEAST_LEAD: engines differ by less than that.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path

from loadtest.stack import DEMO, Stack, get
from loadtest.texts import EXPECTED, Gap, Known, ideographs, known, masked, written

SENTENCES = Path(__file__).with_name("sentences.txt")
LEAST_LEAD = 0.2
LONG_TEXTS = 64
MOST_TEXTS = 128
"""In one request."""


def answers_for(port: int, texts: Sequence[str]) -> Iterator[tuple[str, float]]:
    """For each text the first candidate, and by how much it leads the second."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for first in range(0, len(texts), MOST_TEXTS):
        body = json.dumps({"texts": texts[first : first + MOST_TEXTS], "top_k": 2})
        connection.request("POST", "/v1/fill-mask", body, {"content-type": "application/json"})
        for result in json.loads(connection.getresponse().read())["results"]:
            best, second = result["masks"][0]["candidates"]
            yield best["token"], best["score"] - second["score"]
    connection.close()


def clear_gap(port: int, text: str, chance: random.Random) -> Gap:
    """One of the text's clear gaps by chance, if there are some then one whose answer is what stood there; the clearest if none
    is clear. Never [UNK] or another special token."""
    positions = ideographs(text)
    asked = [masked(text, position) for position in positions]
    found = [
        (word == text[position], lead, Gap(gap, word))
        for position, gap, (word, lead) in zip(positions, asked, answers_for(port, asked), strict=True)
        if not word.startswith("[")
    ]
    clear = [(right, gap) for right, lead, gap in found if lead >= LEAST_LEAD]
    if not clear:
        return max(found, key=lambda one: one[1])[2]
    best = max(right for right, _ in clear)
    return chance.choice([gap for right, gap in clear if right == best])


def long_texts(sentences: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Three to eight sentences in a row: about 40 to 100 characters."""
    for first in chance.sample(range(len(sentences) - 8), LONG_TEXTS):
        yield "".join(sentences[first : first + chance.randint(3, 8)])


def ask_all(port: int) -> Known:
    chance = random.Random(2026)
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    return Known(
        str(get(port, "/info")["fingerprint"]),
        tuple(clear_gap(port, text, chance) for text in sentences),
        tuple(clear_gap(port, text, chance) for text in long_texts(sentences, chance)),
    )


def not_so_any_more(port: int, recorded: Known) -> list[str]:
    gaps = (*recorded.short, *recorded.long)
    found = answers_for(port, [gap.text for gap in gaps])
    wrong = [
        f"{gap.text}: {gap.word}, now {word}" for gap, (word, _) in zip(gaps, found, strict=True) if word != gap.word
    ]
    told = str(get(port, "/info")["fingerprint"])
    return wrong if told == recorded.fingerprint else [f"recorded for {recorded.fingerprint}, served is {told}", *wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--port", type=int, default=8590, help="a free port")
    asked = parser.parse_args()
    with Stack(asked.port, "--model", str(DEMO), "--engine", asked.engine) as stack:
        if asked.check:
            wrong = not_so_any_more(stack.port, known())
            print("\n".join(wrong) or "every recorded answer is the model's")
            return 1 if wrong else 0
        EXPECTED.write_text(written(ask_all(stack.port), DEMO.name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
