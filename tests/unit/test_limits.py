"""worker/limits.py: from how long a few batches took to how large batches may be."""

from pathlib import Path

import pytest

from worker.batching import BatchPolicy
from worker.engines.base import BatchLimits, PaddedBatch, TopTokens
from worker.engines.drill import DrillEngine
from worker.limits import Trial, derive, fitted
from worker.padding import ModelLimits

ASKED = BatchPolicy(0, 0)
MOST = BatchLimits(64, 8192)
LIMITS = ModelLimits(vocabulary_size=100, max_tokens=128, pad_token_id=0)


def trials(overhead_ms: float, text_ms: float, upto: int = 64) -> list[Trial]:
    counts = [1 << power for power in range(upto.bit_length())]
    return [Trial(count, (overhead_ms + text_ms * count) / 1000) for count in counts]


def test_as_many_tokens_as_nearly_reach_the_best_pace() -> None:
    policy = derive([Trial(1, 0.010), Trial(2, 0.012), Trial(32, 0.1), Trial(64, 0.199)], ASKED, MOST, 128)
    assert (policy.max_padded_tokens, policy.max_batch_requests) == (32 * 16, 64)


def test_a_pace_that_still_grows_has_no_end_in_sight() -> None:
    policy = derive(trials(overhead_ms=50, text_ms=0.1), ASKED, MOST, 128)
    assert (policy.max_padded_tokens, policy.max_batch_requests) == MOST[::-1]


def test_one_text_always_fits() -> None:
    assert derive(trials(0, 10, upto=4), ASKED, MOST, max_tokens=512).max_padded_tokens == 512


def test_a_busy_moment_does_not_make_batches_tiny() -> None:
    disturbed = [Trial(1, 0.010), Trial(2, 0.5), Trial(4, 0.9)]
    policy = derive(disturbed, ASKED, MOST, 128)
    assert policy.max_padded_tokens >= 16 * 16
    assert policy.max_batch_requests >= 16


@pytest.mark.parametrize("asked", [BatchPolicy(3, 0), BatchPolicy(0, 777), BatchPolicy(3, 777)])
def test_the_users_word_is_final(asked: BatchPolicy) -> None:
    policy = derive(trials(1, 1), asked, MOST, 128)
    assert asked.max_batch_requests in (0, policy.max_batch_requests)
    assert asked.max_padded_tokens in (0, policy.max_padded_tokens)
    assert policy.max_batch_requests * policy.max_padded_tokens > 0


def test_what_a_batch_costs_before_its_first_token() -> None:
    """0.5 ms of it outside the engine."""
    assert derive(trials(overhead_ms=3, text_ms=1.6), ASKED, MOST, 128).overhead_tokens == pytest.approx(35)
    assert derive(trials(overhead_ms=0, text_ms=1.6), ASKED, MOST, 128).overhead_tokens == pytest.approx(5)
    assert derive(trials(overhead_ms=5, text_ms=0), ASKED, MOST, 128).overhead_tokens > 1000


def test_a_device_that_takes_as_long_for_many_as_for_one_gets_many() -> None:
    policy = fitted(DrillEngine(100, batch_ms=5.0, token_us=0.0), ASKED, LIMITS)
    assert (policy.max_batch_requests, policy.max_padded_tokens) == MOST
    assert policy.overhead_tokens > 100


class Watched(DrillEngine):
    """Remembers the largest batch."""

    padded_tokens = 0

    def predict(self, batch: PaddedBatch) -> TopTokens:
        self.padded_tokens = max(self.padded_tokens, batch.padded_tokens)
        return super().predict(batch)


def test_one_that_replaces_another_measures_nothing(tmp_path: Path) -> None:
    found = fitted(DrillEngine(100, batch_ms=1.0, token_us=0.0), ASKED, LIMITS, tmp_path)
    next_one = Watched(100, batch_ms=1.0, token_us=0.0)
    assert fitted(next_one, ASKED, LIMITS, tmp_path) == found
    assert next_one.padded_tokens == 0
    for memory in tmp_path.iterdir():
        memory.write_text("[1")
    fitted(next_one, ASKED, LIMITS, tmp_path)
    assert next_one.padded_tokens > 0, "what cannot be read is measured again"


def test_no_shape_is_tried_that_the_user_has_excluded() -> None:
    engine = Watched(100, batch_ms=1.0, token_us=0.0)
    fitted(engine, BatchPolicy(8, 0), LIMITS)
    assert engine.padded_tokens == 8 * 16
