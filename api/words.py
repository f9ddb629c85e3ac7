"""Pure: words of several tokens. Which questions to ask the model, and what its answers make; it asks nobody itself.

One rule gives both a target's score and the decoding of neighbouring masks. The word is written token by token, from left to
right, with masks in place of the tokens still to come; its log-likelihood is the sum of the logarithms of each token's
probability at its turn. That is the pseudo-log-likelihood of Salazar et al. 2020 as corrected by Kauf and Ivanova 2023
(https://aclanthology.org/2023.acl-short.80): masking one token alone would tell the model the rest of the word, and rare words of
several tokens would score near 1. With a single token it is the probability that everybody else reports. Every token more makes
a word less probable, so only words of like length compare well.
"""

import math
from collections.abc import Sequence, Set
from heapq import nlargest
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

LEAST_PROBABILITY = 1e-38
"""Stands for a probability that float32 rounds to zero: its logarithm must be a number."""


class Question(NamedTuple):
    """What is the token at `position`? Masks elsewhere stay masks."""

    token_ids: tuple[int, ...]
    position: int


class Placed(NamedTuple):
    """A text with a target in it: `positions` are the target's tokens."""

    token_ids: list[int]
    positions: list[int]


class Written(NamedTuple):
    """A word, or the beginning of one, for a run of neighbouring masks."""

    token_ids: tuple[int, ...]
    log_likelihood: float


class ScoringPlan(NamedTuple):
    """`steps[i]` are target i's: (index of the question, token that is its answer)."""

    questions: list[Question]
    steps: list[list[tuple[int, int]]]


def scoring_plan(targets: Sequence[Placed], mask_token_id: int, most: int) -> ScoringPlan:
    """Questions that several targets share, such as the first of all that have as many tokens, are asked once.

    It ends early when there are more than `most` questions: that many will not be asked.
    """
    numbers: dict[Question, int] = {}
    steps = []
    for target in targets:
        if len(numbers) > most:
            break
        of_target = []
        for turn, position in enumerate(target.positions):
            token_ids = list(target.token_ids)
            for later in target.positions[turn:]:
                token_ids[later] = mask_token_id
            number = numbers.setdefault(Question(tuple(token_ids), position), len(numbers))
            of_target.append((number, target.token_ids[position]))
        steps.append(of_target)
    return ScoringPlan(list(numbers), steps)


def log_likelihood(steps: Sequence[tuple[int, int]], answers: Sequence[dict[int, float]]) -> float:
    """`answers[i]` maps tokens to their probabilities at question i."""
    return math.fsum(_log(answers[number][token_id]) for number, token_id in steps)


def runs(mask_positions: Sequence[int]) -> list[range]:
    """Neighbouring masks, as ranges of indices: positions 3, 4, 7 give range(0, 2) and range(2, 3)."""
    breaks = [index for index, (left, right) in enumerate(pairwise(mask_positions), 1) if right - left > 1]
    return [range(first, end) for first, end in pairwise([0, *breaks, len(mask_positions)])]


def beam_questions(token_ids: Sequence[int], first: int, beam: Sequence[Written]) -> list[Question]:
    """One a beginning: what comes next in the run that starts at position `first`?"""
    questions = []
    for written in beam:
        filled = list(token_ids)
        filled[first : first + len(written.token_ids)] = written.token_ids
        questions.append(Question(tuple(filled), first + len(written.token_ids)))
    return questions


def extended(
    beam: Sequence[Written], answers: Sequence[dict[int, float]], width: int, barred: Set[int]
) -> list[Written]:
    """The `width` most probable beginnings that are one token longer, most probable first; no token of `barred`."""
    longer = (
        (written.log_likelihood + _log(probability), number, token_id)
        for number, (written, answer) in enumerate(zip(beam, answers, strict=True))
        for token_id, probability in answer.items()
        if token_id not in barred
    )
    best = nlargest(width, longer, key=itemgetter(0))
    return [Written((*beam[number].token_ids, token_id), likelihood) for likelihood, number, token_id in best]


def beam_steps(run: range, width: int) -> int:
    """How many questions decoding a run asks in all."""
    return 1 + (len(run) - 1) * width


def _log(probability: float) -> float:
    return math.log(max(probability, LEAST_PROBABILITY))
