"""Asks the model what api/words.py wants to know: targets of several tokens, and neighbouring masks decoded together.

One HTTP request may ask it `max_texts` questions in all, however many steps they take, and all steps share its deadline.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from api.calls import Wanted
from api.filling import FillMask, FillRequest
from api.refusals import TooManySteps
from api.spent import Spent
from api.tokenization import EncodedText
from api.words import (
    Question,
    Written,
    beam_questions,
    beam_steps,
    extended,
    log_likelihood,
    runs,
    scoring_plan,
)
from common.errors import DeadlineExceeded, InvalidParameter
from common.messages import unpack_floats, unpack_integers

_LEAST_WIDTH = 8
"""Beginnings that are kept at each step, if top_k is less: enough that a word with an unlikely first token is found."""

_SPECIALS = 8
"""So many more candidates are asked for, since special tokens may be among them and are no words."""


class WholeWord(NamedTuple):
    word: str
    token_ids: Sequence[int]
    log_likelihood: float
    filled_text: str

    @property
    def score(self) -> float:
        return math.exp(self.log_likelihood)


@dataclass(frozen=True, slots=True)
class WordGap:
    """A single mask that takes whole targets, or a run of neighbouring masks: `masks` are indices of the text's masks."""

    encoded: EncodedText
    masks: range
    words: list[WholeWord]


@dataclass(frozen=True, slots=True)
class FilledGaps:
    """`texts[i]` are text i's gaps, in order."""

    texts: list[list[WordGap]]
    spent: Spent


@dataclass(slots=True)
class _Run:
    encoded: EncodedText
    masks: range
    beam: list[Written]

    @property
    def first(self) -> int:
        return self.encoded.mask_positions[self.masks[0]]


class _Questioning:
    """The steps of one HTTP request: they share its deadline, and what they spend is added up."""

    def __init__(self, service: FillMask, asked: FillRequest) -> None:
        self._service = service
        self._asked = asked
        self._ends_at = time.monotonic() + asked.timeout_s
        self.spent = asked.spent

    def check(self, questions: int) -> None:
        most = self._service.settings.max_texts
        if questions > most:
            told = f"the model would have to be asked {questions} times, above the limit of {most}"
            raise TooManySteps(told, steps=questions, limit=most)

    async def ask(self, questions: Sequence[Question], top_k: int, target_ids: list[int]) -> list[dict[int, float]]:
        """Token -> probability, most probable first, for each question."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(f"not answered within {self._asked.timeout_s * 1000:.0f} ms")
        texts = [EncodedText("", list(token_ids), [position], [], 0) for token_ids, position in questions]
        wanted = Wanted(top_k, target_ids, left_s, self._asked.caller)
        results = await self._service.dispatcher.predict(texts, wanted)
        self.spent.predicted(results)
        return [
            dict(
                zip(
                    unpack_integers(result.token_ids).tolist(),
                    unpack_floats(result.probabilities).tolist(),
                    strict=True,
                )
            )
            for result in results
        ]


async def score_targets(service: FillMask, asked: FillRequest) -> FilledGaps:
    """Each target's own log-likelihood in place of the one mask of each text, whatever its number of tokens."""
    service.check_limits(asked)
    targets = list(asked.targets or ())
    questioning = _Questioning(service, asked)
    questioning.check(len(asked.texts) * len(targets))
    encoded = await service.encode(asked.texts, questioning.spent)
    for index, text in enumerate(encoded):
        if len(text.mask_positions) != 1:
            raise InvalidParameter("whole targets are scored in texts with exactly one mask", index=index)
    candidates = service.check_answer_size(encoded, min(asked.top_k, len(targets)))
    placed = [target for text in encoded for target in await service.tokenizer.place(text, targets)]
    plan = scoring_plan(placed, service.checkpoint.mask_token_id, service.settings.max_texts)
    questioning.check(len(plan.questions))
    await asked.caller.charge(len(plan.questions))
    token_ids = sorted({token_id for steps in plan.steps for _, token_id in steps})
    answers = await questioning.ask(plan.questions, len(token_ids), token_ids)
    await service.turn(candidates)
    scores = iter([log_likelihood(steps, answers) for steps in plan.steps])
    tokens = iter([[token_id for _, token_id in steps] for steps in plan.steps])
    gaps = []
    for text in encoded:
        start, end = text.mask_spans[0]
        of_target = {  # a target that is named twice is one candidate
            target: WholeWord(target, next(tokens), next(scores), f"{text.text[:start]}{target}{text.text[end:]}")
            for target in targets
        }
        words = sorted(of_target.values(), key=lambda word: -word.log_likelihood)
        gaps.append([WordGap(text, range(1), words[: asked.top_k])])
    return FilledGaps(gaps, questioning.spent)


async def decode_jointly(service: FillMask, asked: FillRequest) -> FilledGaps:
    """Words for each run of neighbouring masks, written left to right by a beam; masks elsewhere stay masks meanwhile."""
    service.check_limits(asked)
    questioning = _Questioning(service, asked)
    encoded = await service.encode(asked.texts, questioning.spent)
    candidates = service.check_answer_size(encoded, asked.top_k)
    open_runs = [_Run(text, masks, [Written((), 0.0)]) for text in encoded for masks in runs(text.mask_positions)]
    width = max(asked.top_k, _LEAST_WIDTH)
    questions_asked = sum(beam_steps(run.masks, width) for run in open_runs)
    questioning.check(questions_asked)
    await asked.caller.charge(questions_asked)
    top_k = min(width + _SPECIALS, service.checkpoint.vocabulary_size)
    for turn in range(max(len(run.masks) for run in open_runs)):
        waiting = [run for run in open_runs if len(run.masks) > turn]
        questions = [beam_questions(run.encoded.token_ids, run.first, run.beam) for run in waiting]
        answers = iter(await questioning.ask([one for of_run in questions for one in of_run], top_k, []))
        for run in waiting:
            answered = [next(answers) for _ in run.beam]
            run.beam = extended(run.beam, answered, width, service.checkpoint.special_token_ids)
    await service.turn(candidates)
    gaps = [[_gap(service, run, asked.top_k) for run in open_runs if run.encoded is text] for text in encoded]
    return FilledGaps(gaps, questioning.spent)


def _gap(service: FillMask, run: _Run, top_k: int) -> WordGap:
    tokenizer = service.tokenizer
    words = []
    for written in run.beam[:top_k]:
        parts = [tokenizer.word(token_id) for token_id in written.token_ids]
        word, filled_text = tokenizer.filled_run(run.encoded, run.masks, parts)
        words.append(WholeWord(word, written.token_ids, written.log_likelihood, filled_text))
    return WordGap(run.encoded, run.masks, words)
