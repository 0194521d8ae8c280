"""Partitioners choose the same partitions as Kafka's clients, or those that users want."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log import InvalidConfigurationError, InvalidPartitionsError
from spark_log.record.murmur2 import murmur2_of_key, murmur2_of_keys, partition_for_keys
from tests.producer.support import by_hand, new_root, run, values

KEYS = [b"%d" % number for number in range(40)]


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 5))


def sent(root, clock, records, **config):
    """Return ``{partition: [value, …]}`` after sending (value, key) pairs."""
    producer = by_hand(root, clock, **config)
    for value, key in records:
        producer.send("flights", value, key)
    run(producer, clock)
    return values(root, "flights")


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_hash_of_one_key_is_that_of_a_vector(keys):
    assert [murmur2_of_key(key) for key in keys] == murmur2_of_keys(
        pa.array(keys, pa.binary())
    ).tolist()


def test_keys_go_where_kafkas_clients_put_them(root, clock):
    found = sent(root, clock, [(key, key) for key in KEYS])
    expected = partition_for_keys(pa.array(KEYS), 5).tolist()
    for key, partition in zip(KEYS, expected, strict=True):
        assert key in found[partition]


def test_without_keys_a_partition_gets_a_batch_and_then_another_one(root, clock):
    records = [(b"x" * 100, None)] * 400
    found = sent(root, clock, records, batch_size=1_000)
    counts = [len(each) for each in found.values()]
    assert sum(counts) == 400
    assert min(counts) > 0
    assert sum(count % 7 != 0 for count in counts) <= 1, "all batches but the last are full"


def test_slow_records_without_keys_stay_until_the_batch_size_is_reached(root, clock):
    producer = by_hand(root, clock, batch_size=1_000, linger_ms=0)
    partitions = []
    for _ in range(40):
        future = producer.send("flights", b"x" * 100)
        run(producer, clock)
        partitions.append(future.result(0).partition)
    runs = [0]
    for before, after in pairwise(partitions):
        runs[-1] += 1
        if before != after:
            runs.append(0)
    assert len(runs) > 3
    assert all(7 <= count <= 9 for count in runs[:-1]), runs


def test_keys_can_be_ignored(root, clock):
    for config in ({"partitioner_ignore_keys": True}, {"partitioner": "sticky"}):
        producer = by_hand(root, clock, **config)
        futures = [producer.send("flights", b"x", key) for key in KEYS]
        run(producer, clock)
        assert len({future.result(0).partition for future in futures}) == 1


def test_round_robin_takes_turns(root, clock):
    found = sent(root, clock, [(b"x", b"same")] * 50, partitioner="round_robin")
    assert {len(each) for each in found.values()} == {10}


def test_random_uses_all(root, clock):
    found = sent(root, clock, [(b"x", b"same")] * 300, partitioner="random")
    assert min(len(each) for each in found.values()) > 20


def test_a_function_chooses(root, clock):
    def by_length(key, partitions, available):
        assert list(partitions) == list(available) == [0, 1, 2, 3, 4]
        return len(key)

    found = sent(root, clock, [(key, key) for key in KEYS], partitioner=by_length)
    assert Counter({number: len(each) for number, each in found.items() if each}) == {1: 10, 2: 30}


def test_a_function_that_chooses_what_is_not_there_is_told(root, clock):
    producer = by_hand(root, clock, partitioner=lambda key, partitions, available: 9)
    with pytest.raises(InvalidPartitionsError, match="the partitioner chose 9"):
        producer.send("flights", b"x")


def test_unknown_partitioner_names_the_nearest(root, clock):
    with pytest.raises(InvalidConfigurationError, match="round_robin"):
        by_hand(root, clock, partitioner="roundrobin")
