"""The checks that a simulated writer makes, and those that it must not make."""

import random
from typing import Any
from unittest.mock import Mock

import pytest

from spark_log.errors import OutOfOrderSequenceError, UnknownOutcomeError
from tests.simulation.log.profile import draw_profile
from tests.simulation.log.true_log import ProducerPosition, TrueLog
from tests.simulation.log.writers import IdempotentWriter


class ScriptedLog:
    """A log whose appends raise these errors, in this order."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def append(self, batches, **how):
        raise self.errors.pop(0)


class FakeScheduler:
    steps = 0

    def __init__(self):
        self.random = Mock(wraps=random.Random(1))
        self.random.random.return_value = 0.99  # no gap is tried, and nothing is given up

    def note(self, text):
        pass

    def pass_time(self, duration_ms):
        pass


class FakeWorld:
    """The world of one writer, whose producer is known to the model and has expired before."""

    def __init__(self, memory_store, clock, log):
        self.scheduler = FakeScheduler()
        self.true_log = TrueLog(memory_store, clock, expiration_ms=2000)
        self.profile = draw_profile(random.Random(0))
        self.is_ending = False
        self.log = log

    def next_producer_id(self):
        self.true_log.producers[2] = ProducerPosition(0, 0)
        return 2

    def open_log(self):
        return self.log

    def rest(self, mean_ms):
        self.is_ending = not self.log.errors


OUT_OF_ORDER = OutOfOrderSequenceError(
    "another is next", producer_id=2, base_sequence=0, expected_sequence=9
)


@pytest.mark.parametrize(
    ("errors", "is_final"),
    [
        ([OUT_OF_ORDER], True),
        ([UnknownOutcomeError("no answer"), OUT_OF_ORDER], False),
    ],
    ids=["refused at once", "refused after a lost answer"],
)
def test_what_may_be_on_its_way_is_not_held_to_be_refused_for_ever(
    memory_store, clock, monkeypatch, errors, is_final
):
    """A put whose answer was lost may take effect after its retry was refused."""
    told = []
    world: Any = FakeWorld(memory_store, clock, ScriptedLog(*errors))
    monkeypatch.setattr(
        world.true_log,
        "check_out_of_order",
        lambda append, records, *, is_final: told.append(is_final),
    )
    IdempotentWriter(world).run()
    assert told == [is_final]
