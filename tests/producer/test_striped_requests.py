"""Producers that send a little to many partitions of a stripe send few requests."""

import pytest

from benchmarks.request_operations import OPERATIONS
from tests.simulation.stripes.producers import StripedProducers

BUDGETS = {each.name: each.most for each in OPERATIONS}


@pytest.fixture
def open_producers():
    opened = []

    def open_producers(partitions, stripes=1):
        opened.append(StripedProducers(partitions, stripes))
        return opened[-1]

    yield open_producers
    for each in opened:
        each.delete()


@pytest.mark.parametrize(
    ("producers", "partitions", "puts", "operation"),
    [
        (1, 1_000, 2, "a record to each of 1000 partitions of a stripe, a second"),
        # A hundred partitions: what the writers race for is the stripe's next number, which they do
        # for any number of partitions, and 8,000 batches a second would only take longer.
        (8, 100, 12, "a record to each of 100 partitions of a stripe by 8 producers, a second"),
    ],
)
def test_a_record_to_each_partition_a_second_is_few_requests(
    open_producers, producers, partitions, puts, operation
):
    found = open_producers(partitions).count(producers)
    assert found["put_if_absent"] + found["put"] <= puts
    assert sum(found.values()) <= BUDGETS[operation]


@pytest.mark.parametrize("stripes", [2, 4])
def test_more_stripes_are_an_object_more_for_each(open_producers, stripes):
    found = open_producers(40, stripes).count(1)
    assert found["put_if_absent"] + found["put"] <= 2 * stripes
