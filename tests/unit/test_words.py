"""api/words.py: the rule behind targets of several tokens and masks decoded together, without any model."""

import itertools
import math
import random

from api.words import (
    Placed,
    Question,
    Written,
    beam_questions,
    beam_steps,
    extended,
    log_likelihood,
    runs,
    scoring_plan,
)

MASK, VOCABULARY = 99, range(6)


def model(question: Question) -> dict[int, float]:
    """Some distribution that depends on everything it is told."""
    chance = random.Random(repr(question))
    weights = {token_id: chance.random() + 0.01 for token_id in VOCABULARY}
    return {token_id: weight / sum(weights.values()) for token_id, weight in weights.items()}


def scored(target: Placed) -> float:
    plan = scoring_plan([target], MASK, most=100)
    return log_likelihood(plan.steps[0], [model(question) for question in plan.questions])


def placed(*word: int) -> Placed:
    return Placed([50, *word, 51], list(range(1, 1 + len(word))))


def test_neighbours_are_masks_without_a_token_between() -> None:
    assert runs([3]) == [range(1)]
    assert runs([3, 4, 7, 9, 10, 11]) == [range(2), range(2, 3), range(3, 6)]


def test_each_token_is_asked_for_with_those_to_come_masked() -> None:
    plan = scoring_plan([placed(1, 2), placed(3, 2)], MASK, most=100)
    assert plan.questions == [
        Question((50, MASK, MASK, 51), 1),
        Question((50, 1, MASK, 51), 2),
        Question((50, 3, MASK, 51), 2),
    ], "the first question is the same for both targets, and asked once"
    assert plan.steps == [[(0, 1), (1, 2)], [(0, 3), (2, 2)]]


def test_a_plan_that_is_too_long_is_not_made() -> None:
    plan = scoring_plan([placed(*range(5))] + [placed(number) for number in range(100, 200)], MASK, most=4)
    assert len(plan.questions) == 5


def test_the_scores_of_all_words_of_a_length_add_up_to_one() -> None:
    total = sum(math.exp(scored(placed(*word))) for word in itertools.product(VOCABULARY, repeat=3))
    assert math.isclose(total, 1.0)


def test_one_token_scores_its_plain_probability() -> None:
    assert math.isclose(math.exp(scored(placed(4))), model(Question((50, MASK, 51), 1))[4])


def test_a_probability_of_zero_still_gives_a_number() -> None:
    assert math.isfinite(log_likelihood([(0, 1)], [{1: 0.0}]))


def decoded(masks: int, width: int) -> list[Written]:
    token_ids, beam, asked = [50, *[MASK] * masks, 51], [Written((), 0.0)], 0
    for _ in range(masks):
        questions = beam_questions(token_ids, 1, beam)
        asked += len(questions)
        beam = extended(beam, [model(question) for question in questions], width, frozenset())
    assert asked <= beam_steps(range(masks), width)
    return beam


def test_a_wide_beam_finds_the_best_words_and_scores_them_as_targets() -> None:
    best = sorted(itertools.product(VOCABULARY, repeat=3), key=lambda word: -scored(placed(*word)))
    beam = decoded(3, width=len(VOCABULARY) ** 3)
    assert [written.token_ids for written in beam] == best
    for written in beam[:10]:
        assert math.isclose(written.log_likelihood, scored(placed(*written.token_ids)))


def test_a_narrow_beam_keeps_the_likeliest_beginnings() -> None:
    beam = decoded(3, width=2)
    assert len(beam) == 2
    assert beam[0].log_likelihood >= beam[1].log_likelihood


def test_barred_tokens_are_in_no_word() -> None:
    beam = extended([Written((), 0.0)], [{0: 0.6, 1: 0.3, 2: 0.1}], 5, frozenset((0, 2)))
    assert [written.token_ids for written in beam] == [(1,)]
