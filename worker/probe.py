"""Is the masked-LM head trained? Some well-known checkpoints carry a random one, and no list of tensors shows it.

The model fills gaps that any model of their language can fill. A worker has no tokenizer: a sentence is used if each
of its words is one entry of the vocabulary, found by looking it up. It judges heads, not quality.
"""

import logging
from typing import NamedTuple

from common.checkpoint import Checkpoint, read_vocabulary
from common.errors import StartupError
from common.messages import PredictRequest, pack_integers
from worker.engines.base import Engine
from worker.padding import ModelLimits, collate

log = logging.getLogger("fillmask.worker")

_CHINESE = (
    "他昨天去图*书馆看书。",
    "北京是中国的*首都。",
    "今天天*气很好。",
    "我们在学*校学习。",
    "谢*谢你的帮助。",
    "我喜欢听音*乐。",
)
_ENGLISH = (
    "thank *you very much",
    "the united *states of america",
    "once upon a *time there was a king",
    "ladies and *gentlemen",
    "happy *birthday to you",
    "new *york city",
)
"""The word after the star is masked; each has an answer that is hard to miss, and that is not merely a frequent word."""

_FEWEST_PROBES = 5
_NEAR = 10
"""The right word among so many best counts as found. A random head finds one in a thousand."""


class Probe(NamedTuple):
    token_ids: list[int]
    position: int
    answer: int


def check_head(engine: Engine, checkpoint: Checkpoint) -> None:
    """Raises StartupError if the loaded model misses all, or all but one, of the answers."""
    probes = _probes(checkpoint)
    if len(probes) < _FEWEST_PROBES:
        log.info("the vocabulary of %s lacks the words of the probes: its head is not checked", checkpoint.name)
        return
    found = sum(_finds(engine, checkpoint, probe) for probe in probes)
    if found < 2:
        raise StartupError(
            f"the masked-LM head of {checkpoint.name} looks untrained: it fills {found} of {len(probes)} easy gaps; "
            "--allow-untrained-head serves it anyway"
        )


def _finds(engine: Engine, checkpoint: Checkpoint, probe: Probe) -> bool:
    ids, masks = pack_integers(probe.token_ids), pack_integers([probe.position])
    batch = collate([PredictRequest(b"", "", 0, ids, masks, _NEAR)], ModelLimits.of(checkpoint))
    return probe.answer in engine.predict(batch).token_ids[0]


def _probes(checkpoint: Checkpoint) -> list[Probe]:
    vocabulary = read_vocabulary(checkpoint.folder)
    sentences = [[*sentence] for sentence in _CHINESE] + [sentence.split() for sentence in _ENGLISH]
    return [probe for words in sentences if (probe := _probe(words, vocabulary, checkpoint))]


def _probe(words: list[str], vocabulary: dict[str, int], checkpoint: Checkpoint) -> Probe | None:
    """None if a word is no entry of its own. In Chinese the star is a character; in English it clings to its word."""
    star = next(index for index, word in enumerate(words) if word.startswith("*"))
    plain = [word.lstrip("*") for word in words if word != "*"]
    ids = [_entry(word, vocabulary) for word in plain]
    known = [token_id for token_id in ids if token_id is not None]
    if len(known) < len(ids):
        return None
    answer, known[star] = known[star], checkpoint.mask_token_id
    start = [] if checkpoint.start_token_id is None else [checkpoint.start_token_id]
    end = [] if checkpoint.end_token_id is None else [checkpoint.end_token_id]
    return Probe([*start, *known, *end], len(start) + star, answer)


def _entry(word: str, vocabulary: dict[str, int]) -> int | None:
    """The word as WordPiece, BPE or SentencePiece would begin it."""
    forms = (word, f"Ġ{word}", f"▁{word}") if not word.isascii() else (f"Ġ{word}", f"▁{word}", word)
    return next((vocabulary[form] for form in forms if form in vocabulary), None)
