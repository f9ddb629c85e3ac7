"""Text to training batches for the demo model: sources and their shares, packing, masking.

Nothing here depends on torch. A batch is a pure function of (seed, step, progress), so that a resumed run sees the
batches that an unbroken one would have seen.
"""

import heapq
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(5)
HAN = re.compile(r"[㐀-鿿]")
FINAL = "。！？；"
COUPLET = re.compile(r"[^。！？；，]{5,7}，[^。！？；，]{5,7}(?=[。！？；，]|$)")

# A line of these sources whose checksum says so is kept for the dev score and never trained on.
DEV_SOURCES = ("a_tatoeba", "a_hsk_sentences", "a_xcopa", "a_common_voice", "a_howtocook")
DEV_EVERY = 100

# Frames that show an idiom with punctuation and inside a sentence: a model that saw them only bare fails on "X。".
IDIOM_FRAMES = ("{}", "{}", "{}。", "{}。", "{}，", "“{}”", "这真是{}。", "什么叫{}？", "他{}。", "{}，{}。")

# name: (share of the tokens at first, share in the finishing phase, how often consecutive lines are joined).
# The finish leans on short clean sentences, idioms and famous lines; prose before it teaches words and grammar.
SHARES: dict[str, tuple[float, float, float]] = {
    "a_tatoeba": (16, 26, 0.04),
    "a_hsk_sentences": (2.5, 5, 0.04),
    "a_xcopa": (1.5, 2.5, 0.0),
    "a_asp_stories": (0.7, 0.7, 0.5),
    "a_wiktionary_examples": (3, 4, 0.0),
    "a_common_voice": (3.5, 4, 0.0),
    "a_kdconv": (4, 4, 0.3),
    "a_crosswoz": (2, 1, 0.3),
    "a_howtocook": (3, 3, 0.3),
    "a_oasst": (3.5, 2, 0.5),
    "a_sayit_talks": (14, 3, 0.4),
    "b_wiki_qa": (12, 7, 0.5),
    "b_ud_wiki": (1.2, 1, 0.1),
    "b_leipzig_news": (5, 3, 0.1),
    "b_ntrex_news": (1.2, 1, 0.3),
    "b_flores101": (1.2, 1, 0.3),
    "c_laws": (1, 0.5, 0.4),
    "c_opensource_guide": (0.5, 0.3, 0.5),
    "c_react_docs": (0.8, 0.3, 0.5),
    "c_gnome_help": (0.3, 0.2, 0.5),
    "c_libreoffice_help": (0.5, 0.2, 0.5),
    "d_luxun": (2, 0.5, 0.5),
    "e_poem_quotes": (2, 2.5, 0.0),
    "e_poems_famous": (1.5, 0.5, 0.2),
    "e_poems_quoted": (1, 0.5, 0.2),
    "e_classics_mengxue": (1, 0.5, 0.2),
    "f_xiehouyu": (1, 0.5, 0.0),
    "g_templates_cc0": (2.5, 2, 0.0),
    "idioms": (6, 55, 0.0),
    "words": (4.5, 3, 0.0),
    "couplets": (1.6, 10, 0.0),
}
FINISH_FROM = 0.62  # of the run
MASK_RATE = (0.25, 0.14)  # first and last: many targets a token while learning words, nearly one a sentence at last
WHOLE_WORDS = 0.2  # of the segments
DROP_FINAL = 0.08  # of the segments lose their last punctuation mark: people type without it, too
LONG_EVERY = 8  # every so many steps rows are twice as long, so that all positions are trained

Text = tuple[NDArray[np.uint16], NDArray[np.bool_]]  # ids, and whether a word starts there


@dataclass(frozen=True)
class Source:
    """Encoded lines. `starts` marks the first character of every dictionary word; `bounds` are the lines' ends."""

    ids: NDArray[np.uint16]
    starts: NDArray[np.bool_]
    bounds: NDArray[np.int64]
    cumulative: NDArray[np.float64]  # of the lines' chances to be drawn
    join: float

    def segment(self, rng: np.random.Generator, room: int) -> Text:
        """A line, or some consecutive lines, of at most `room` characters."""
        first = int(np.searchsorted(self.cumulative, rng.random()))
        low, high = self.bounds[first], self.bounds[first + 1]
        wanted = int(rng.integers(16, room + 1)) if rng.random() < self.join else 0
        for end in self.bounds[first + 2 : first + 40]:
            if end - low > wanted:
                break
            high = end
        high = min(high, low + room)
        return self.ids[low:high], self.starts[low:high]


@dataclass(frozen=True)
class Batch:
    """Arrays of shape [rows, length]; `segment` numbers the packed texts (-1 is padding), which do not see each
    other; `positions` restart in each. `targets` holds the ids at `where`, flat indices of the masked places."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    segment: NDArray[np.int64]
    where: NDArray[np.int64]
    targets: NDArray[np.int64]


def read_lines(folder: Path, name: str) -> list[str]:
    return [line for line in (folder / f"{name}.txt").read_text(encoding="utf-8").split("\n") if line]


def is_dev(line: str) -> bool:
    return zlib.crc32(line.encode()) % DEV_EVERY == 0


def make_vocabulary(folder: Path, least: int = 5) -> list[str]:
    """Specials, printable ASCII, and every character seen `least` times, in an idiom, or in GB 2312's first level."""
    counts = Counter("".join((path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.txt"))))
    kept = {char for char, count in counts.items() if count >= (least if HAN.match(char) else 20)}
    kept |= set("".join(read_lines(folder, "f_idioms_top8000")))
    kept |= {bytes((high, low)).decode("gb2312", "ignore") for high in range(0xB0, 0xD8) for low in range(0xA1, 0xFF)}
    kept |= {chr(code) for code in range(0x21, 0x7F)} | set("，。、；：？！“”‘’（）《》〈〉【】…—·～￥")
    return [*SPECIALS, *sorted(char for char in kept if len(char) == 1 and not char.isspace())]


class Corpus:
    """All sources of a folder of text files, drawn from by share."""

    def __init__(self, folder: Path, vocabulary: list[str], seed: int) -> None:
        self._seed = seed
        self._table = np.full(0x110000, UNK, dtype=np.uint16)
        for index, token in enumerate(vocabulary[len(SPECIALS) :], len(SPECIALS)):
            self._table[ord(token)] = index
        self._han = np.array([bool(HAN.match(token)) for token in vocabulary])
        self._words = {word for word in read_lines(folder, "f_words") if len(word) > 1}
        self._words |= set(read_lines(folder, "f_idioms_top8000"))
        self._final = {int(self._table[ord(char)]) for char in FINAL}
        self.dev = [
            line for name in DEV_SOURCES for line in read_lines(folder, name) if is_dev(line) and HAN.search(line)
        ]
        self._sources = [self._encode(*self._lines(folder, name), join) for name, (_, _, join) in SHARES.items()]
        rng = np.random.default_rng(seed)
        self._lengths = np.array(
            [np.mean([len(source.segment(rng, 126)[0]) + 2 for _ in range(300)]) for source in self._sources]
        )

    def _lines(self, folder: Path, name: str) -> tuple[list[str], NDArray[np.float64]]:
        """A source's lines and their weights: ranked lists lean towards their head, since fame follows rank."""
        rng = np.random.default_rng(self._seed)
        if name == "idioms":
            idioms, others = read_lines(folder, "f_idioms_top8000"), read_lines(folder, "a_tatoeba")
            others = [other[:-1] for other in others if len(other) < 16 and not is_dev(other)]
            beside = iter(rng.integers(len(others), size=len(IDIOM_FRAMES) * len(idioms)))
            lines = [frame.format(idiom, others[next(beside)]) for frame in IDIOM_FRAMES for idiom in idioms]
            return lines, np.tile(by_rank(len(idioms), 500), len(IDIOM_FRAMES))
        if name == "words":
            words = np.array(read_lines(folder, "f_words"))
            chosen = rng.choice(words, (60_000, 8), p=by_rank(len(words), 2000))
            return ["，".join(row) + "。" for row in chosen], np.ones(len(chosen))
        if name == "couplets":
            couplets = famous_couplets(folder)
            return list(couplets), np.array(list(couplets.values()))
        lines = [line for line in read_lines(folder, name) if name not in DEV_SOURCES or not is_dev(line)]
        return lines, by_rank(len(lines), 300) if name == "e_poem_quotes" else np.ones(len(lines))

    def _encode(self, lines: list[str], weights: NDArray[np.float64], join: float) -> Source:
        texts = ["".join(line.split()) for line in lines]
        flat = "".join(texts)
        codes = np.frombuffer(flat.encode("utf-32-le"), dtype=np.uint32)
        bounds = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
        starts = np.zeros(len(codes), dtype=np.bool_)
        starts[list(self._word_starts(flat))] = True
        starts[bounds[:-1]] = True
        return Source(self._table[codes], starts, bounds, np.cumsum(weights / weights.sum()), join)

    def _word_starts(self, text: str) -> Iterator[int]:
        """Greedy longest match against the word list; good enough to choose what to hide together."""
        at = 0
        while at < len(text):
            yield at
            at += next((size for size in (4, 3, 2) if text[at : at + size] in self._words), 1)

    def batch(self, step: int, progress: float, tokens: int, length: int) -> Batch:
        """Batch number `step` of `tokens` places, `progress` (0 to 1) into the run."""
        rng = np.random.default_rng((self._seed, step))
        length *= 2 if step % LONG_EVERY == 0 else 1
        rows = tokens // length
        segments = self._draw(rng, progress, tokens, length)
        ids = np.full((rows, length), PAD, dtype=np.int64)
        segment, positions = np.full_like(ids, -1), np.zeros_like(ids)
        starts = np.ones_like(ids, dtype=np.bool_)
        for number, (row, at, (text, words)) in enumerate(pack(segments, rows, length)):
            end = at + len(text) + 2
            ids[row, at], ids[row, at + 1 : end - 1], ids[row, end - 1] = CLS, text, SEP
            starts[row, at + 1 : end - 1] = words
            segment[row, at:end] = number
            positions[row, at:end] = np.arange(end - at)
        rate = MASK_RATE[0] + (MASK_RATE[1] - MASK_RATE[0]) * progress
        hidden = self._hide(rng, rate, ids.ravel(), segment.ravel(), starts.ravel())
        where = np.flatnonzero(hidden)
        targets = ids.ravel()[where]
        ids.ravel()[where] = MASK
        return Batch(ids, positions, segment, where, targets)

    def _draw(self, rng: np.random.Generator, progress: float, tokens: int, length: int) -> list[Text]:
        """Segments that together nearly fill `tokens`. Shares are of tokens, so draws are divided by the lengths."""
        phase = int(progress >= FINISH_FROM)
        chances = np.array([share[phase] for share in SHARES.values()]) / self._lengths
        chances /= chances.sum()
        segments: list[Text] = []
        drawn = 0
        while drawn < tokens:
            for choice in rng.choice(len(chances), 64, p=chances):
                text, starts = self._sources[choice].segment(rng, length - 2)
                if len(text) > 3 and int(text[-1]) in self._final and rng.random() < DROP_FINAL:
                    text, starts = text[:-1], starts[:-1]
                segments.append((text, starts))
                drawn += len(text) + 2
        return segments

    def _hide(
        self,
        rng: np.random.Generator,
        rate: float,
        ids: NDArray[np.int64],
        segment: NDArray[np.int64],
        starts: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Chooses at least one place in every segment, about `rate` of it; in some segments whole words.

        Marks and Latin letters are drawn a third as often as Han characters: they teach little."""
        segment = segment + 1  # padding becomes 0
        allowed = (ids >= len(SPECIALS)) & (segment > 0)
        order = rng.random(len(ids)) * np.where(self._han[ids], 1, 3) + np.where(allowed, 0, 9)
        by_segment = np.lexsort((order, segment))
        sizes = np.bincount(segment)
        rank = np.empty(len(ids), dtype=np.int64)
        rank[by_segment] = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        room = np.bincount(segment, allowed)
        quota = np.maximum(1, np.floor(room * rate + rng.random(len(room))))
        hidden = allowed & (rank < quota[segment])
        word = np.cumsum(starts)
        spread = np.bincount(word, hidden)[word] > 0
        whole = (rng.random(len(room)) < WHOLE_WORDS)[segment]
        return np.where(whole, allowed & spread, hidden)


def pack(segments: list[Text], rows: int, length: int) -> Iterator[tuple[int, int, Text]]:
    """Longest first, each into the emptiest row; what does not fit is dropped. Yields (row, offset, segment)."""
    free = [(-length, row) for row in range(rows)]
    for text, starts in sorted(segments, key=lambda pair: -len(pair[0])):
        room, row = free[0]
        if len(text) + 2 <= -room:
            yield row, length + room, (text, starts)
            heapq.heapreplace(free, (room + len(text) + 2, row))


def by_rank(count: int, softness: int) -> NDArray[np.float64]:
    """Chances that fall with the square root of the rank, flat over the first `softness`; they sum to 1."""
    weights = 1 / np.sqrt(np.arange(count) + softness)
    return np.asarray(weights / weights.sum())


def famous_couplets(folder: Path) -> dict[str, float]:
    """The best-known verses and their weights. Fame is a high rank among the quotations, or to stand in several
    anthologies; the few hundred best-known weigh more, since a line is learnt by heart only when seen often."""
    names = ("e_poem_quotes", "e_poems_famous", "e_poems_quoted", "e_classics_mengxue")
    lines = {name: read_lines(folder, name) for name in names}
    counts = Counter(found for name in names for line in lines[name] for found in set(COUPLET.findall(line)))
    weights = {couplet + "。": 1.0 if count == 3 else 4.0 for couplet, count in counts.items() if count >= 3}
    ranked = {line: 4.0 if rank < 300 else 1.0 for rank, line in enumerate(lines["e_poem_quotes"][:600])}
    return {line: max(weights.get(line, 0.0), ranked.get(line, 0.0)) for line in sorted(weights | ranked)}
