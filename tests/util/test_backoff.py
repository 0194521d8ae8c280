"""Pauses between retries grow up to a limit, and differ from client to client."""

from random import Random

import pytest

from spark_log.util.backoff import retry_pause_ms


class Middle(Random):
    """Gives the middle of every range."""

    def uniform(self, a, b):
        return (a + b) / 2


@pytest.mark.parametrize(
    ("failures", "expected_ms"), [(1, 100), (2, 200), (4, 800), (5, 1000), (10_000, 1000)]
)
def test_they_double_up_to_the_longest(failures, expected_ms):
    pause_ms = retry_pause_ms(failures, initial_ms=100, max_ms=1000, random=Middle())
    assert pause_ms == pytest.approx(expected_ms)


def test_they_vary_by_a_fifth():
    random = Random(1)
    pauses = [retry_pause_ms(1, initial_ms=100, max_ms=1000, random=random) for _ in range(500)]
    assert 80 <= min(pauses) < 85
    assert 115 < max(pauses) <= 120
