"""Placement of replicas: Kafka's StripedReplicaPlacerTest, and what always holds."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import InvalidReplicationFactorError
from spark_log.metadata.partitions.placement import UsableBroker, place_replicas


class Scripted(Random):
    """Makes given choices: where each ring begins, then the orders of a shuffle."""

    def __init__(self, *choices, shuffled=()):
        super().__init__()
        self.starts = list(choices)
        self.orders = list(shuffled)

    def randrange(self, stop):  # type: ignore[override]
        choice = self.starts.pop(0)
        assert 0 <= choice < stop
        return choice

    def shuffle(self, items):
        if len(items) > 1:
            items[:] = self.orders.pop(0)


def in_rack(rack, *ids, fenced=()):
    return [UsableBroker(each, rack, fenced=each in fenced) for each in ids]


def place(brokers, count, factor, random=None, existing=()):
    random = random or Random(1)
    return place_replicas(
        brokers,
        num_partitions=count,
        replication_factor=factor,
        random=random,
        existing=existing,
    )


class TestWithoutRacks:
    def test_each_partition_begins_one_broker_further_then_brokers_are_shuffled(self):
        random = Scripted(2, 0, shuffled=[[2, 1, 0, 3]])
        assert place(in_rack(None, 0, 3, 2, 1), 5, 3, random) == [
            (2, 3, 0),
            (3, 0, 1),
            (0, 1, 2),
            (1, 2, 3),
            (0, 3, 2),
        ]

    def test_a_fenced_broker_is_avoided_if_possible(self):
        random = Scripted(2, 0, 0, shuffled=[[4, 3, 0, 2]])
        assert place(in_rack(None, 3, 1, 0, 4, 2, fenced=[1]), 5, 4, random) == [
            (3, 4, 0, 2),
            (4, 0, 2, 3),
            (0, 2, 3, 4),
            (2, 3, 4, 0),
            (0, 2, 4, 3),
        ]

    def test_a_fenced_broker_is_the_last_replica_if_it_is_needed(self):
        random = Scripted(1, 0, 0, shuffled=[[2, 3]])
        assert place(in_rack(None, 3, 1, 2, fenced=[1]), 4, 3, random) == [
            (3, 2, 1),
            (2, 3, 1),
            (3, 2, 1),
            (2, 3, 1),
        ]

    def test_the_only_broker_that_is_not_fenced_leads_all_partitions(self):
        assert place(in_rack(None, 0, 1, fenced=[1]), 3, 1) == [(0,)] * 3

    def test_new_partitions_continue_after_the_existing_ones(self):
        brokers = in_rack(None, *range(12))
        existing = [(7, 8, 9), (8, 9, 10)]
        existing += place(brokers, 2, 3, existing=existing)
        assert existing[2:] == [(9, 10, 11), (10, 11, 0)]
        assert place(brokers, 4, 3, existing=existing) == [
            (11, 0, 1),
            (0, 1, 2),
            (1, 2, 3),
            (2, 3, 4),
        ]

    def test_all_pairs_of_brokers_occur_about_equally_often(self):
        pairs = Counter(place(in_rack(None, 0, 1, 2, 3), 200, 2))
        assert len(pairs) == 12
        assert all(6 <= count <= 30 for count in pairs.values())


class TestWithRacks:
    def test_each_partition_begins_one_rack_further(self):
        brokers = [*in_rack("1", 11, 10), *in_rack("3", 30, 31), *in_rack("2", 21, 20, fenced=[20])]
        random = Scripted(1, 0, 0, 1, 0)
        assert place(brokers, 3, 4, random) == [
            (11, 21, 31, 10),
            (21, 30, 10, 20),
            (31, 11, 21, 30),
        ]

    def test_a_rack_of_fenced_brokers_gets_replicas_but_no_leader(self):
        brokers = [
            *in_rack("1", 11, 10),
            *in_rack("3", 30, 31, fenced=[30, 31]),
            *in_rack("2", 20, 21, fenced=[20, 21]),
            *in_rack("4", 41, 40, fenced=[40]),
        ]
        random = Scripted(1, 1, 0, 0, 0, 3)
        assert place(brokers, 3, 4, random) == [
            (41, 11, 21, 30),
            (10, 20, 31, 41),
            (41, 21, 30, 11),
        ]

    def test_three_racks_of_three_are_a_stripe(self):
        brokers = [*in_rack("a", 0, 1, 2), *in_rack("b", 10, 11, 12), *in_rack("c", 20, 21, 22)]
        random = Scripted(0, 0, 0, 0)
        assert place(brokers, 3, 3, random) == [(0, 10, 20), (11, 21, 1), (22, 2, 12)]

    def test_new_partitions_continue_after_the_existing_ones(self):
        brokers = [
            *in_rack("1", 0, 1, 2, 3),
            *in_rack("2", 4, 5, 6, 7),
            *in_rack("3", 8, 9, 10, 11),
        ]
        assert place(brokers, 2, 3, existing=[(6, 8, 2), (9, 3, 7)]) == [(0, 4, 10), (5, 11, 1)]

    def test_new_partitions_use_the_racks_that_the_last_one_left_out(self):
        brokers = [UsableBroker(number, f"{number + 1}") for number in range(4)]
        existing = [(0, 1)]
        for _ in range(3):
            existing += place(brokers, 1, 2, existing=existing)
        assert existing == [(0, 1), (1, 2), (2, 3), (3, 0)]

    def test_the_order_of_racks_is_shuffled_too(self):
        brokers = [UsableBroker(number, f"{number}") for number in range(3)]
        assert len(set(place(brokers, 3, 2))) == 3
        assert len(set(place(brokers, 90, 2))) == 6

    def test_brokers_without_a_rack_are_a_rack_of_their_own(self):
        brokers = [*in_rack("a", 1, 2), *in_rack(None, 3, 4)]
        for replicas in place(brokers, 20, 2):
            assert len({broker <= 2 for broker in replicas}) == 2


class TestWhereNewPartitionsBegin:
    """The broker of a rack, and the rack, that follow those of the existing partitions."""

    RACKS = (*in_rack("1", 0, 1, 2, 3), *in_rack("2", 4, 5, 6, 7), *in_rack("3", 8, 9, 10, 11))

    def first(self, existing, random, brokers=RACKS):
        return place(brokers, 1, 3, random, existing)[0]

    def test_is_anywhere_without_existing_ones(self):
        assert self.first([], Scripted(0, 1, 2, 1)) == (5, 10, 0)

    def test_is_after_the_first_replica_of_a_rack_in_the_last_partition(self):
        assert self.first([(0, 1, 2), (1, 2, 0)], Scripted(1, 2)) == (5, 10, 2)

    def test_is_after_a_replica_in_an_earlier_partition_if_the_last_has_none_in_the_rack(self):
        existing = [(0, 1, 2), (1, 2, 0), (4, 5, 6), (5, 6, 7)]
        assert self.first(existing, Scripted(0)) == (8, 2, 6)

    def test_is_after_a_replica_that_is_not_the_leader(self):
        assert self.first([(4, 5, 1)], Scripted(3)) == (11, 2, 5)
        existing = [(1, 2, 0), (0, 5, 6), (0, 1, 2)]
        assert self.first(existing, Scripted(3)) == (6, 11, 1)

    def test_is_anywhere_in_a_rack_whose_last_replica_is_fenced(self):
        brokers = [*in_rack("1", 0, 1, 2, 3, fenced=[1]), *self.RACKS[4:]]
        random = Scripted(2, 0, 1, 2)
        assert self.first([(0, 1, 2), (1, 2, 0)], random, brokers) == (5, 10, 3)

    def test_is_in_any_rack_if_the_last_leader_is_registered_no_more(self):
        assert self.first([(6, 8, 2), (99, 3, 7)], Scripted(2)) == (9, 0, 4)


class TestRefused:
    def test_a_factor_above_the_number_of_brokers(self):
        with pytest.raises(InvalidReplicationFactorError) as caught:
            place(in_rack("1", 10, 11, fenced=[11]), 1, 3)
        assert caught.value.message == (
            "replication factor 3, but 2 brokers are registered; give at most 2, or register more "
            "brokers"
        )

    @pytest.mark.parametrize("factor", [0, -1])
    def test_a_factor_that_is_not_positive(self, factor):
        with pytest.raises(InvalidReplicationFactorError, match=f"{factor}; give at least 1"):
            place(in_rack("1", 10), 1, factor)

    def test_that_all_brokers_are_fenced(self):
        with pytest.raises(InvalidReplicationFactorError, match=r"none can lead .* unfence or reg"):
            place(in_rack("1", 10, 11, fenced=[10, 11]), 1, 1)

    def test_that_there_is_no_broker(self):
        with pytest.raises(InvalidReplicationFactorError, match=r"0 brokers .* register a broker"):
            place([], 1, 1)


@st.composite
def clusters(draw):
    """Draw brokers of which at least one is not fenced, and a possible replication factor."""
    ids = draw(st.lists(st.integers(0, 100), min_size=1, max_size=12, unique=True))
    racks = st.sampled_from([None, "a", "b", "c", "d"])
    rest = [UsableBroker(each, draw(racks), draw(st.booleans())) for each in ids[1:]]
    brokers = draw(st.permutations([UsableBroker(ids[0], draw(racks)), *rest]))
    return brokers, draw(st.integers(1, len(ids)))


class TestAlways:
    @given(clusters(), st.integers(0, 40), st.integers())
    def test_replicas_are_different_brokers_and_the_leader_is_not_fenced(
        self, cluster, count, seed
    ):
        brokers, factor = cluster
        by_id = {broker.broker_id: broker for broker in brokers}
        placed = place(brokers, count, factor, Random(seed))
        assert len(placed) == count
        for replicas in placed:
            assert len(set(replicas)) == len(replicas) == factor
            assert set(replicas) <= set(by_id)
            assert not by_id[replicas[0]].fenced

    @given(clusters(), st.integers())
    def test_a_rack_gets_its_next_replica_after_all_others_had_their_turn(self, cluster, seed):
        brokers, factor = cluster
        rack_of = {broker.broker_id: broker.rack for broker in brokers}
        sizes = Counter(rack_of.values())
        for replicas in place(brokers, 20, factor, Random(seed)):
            has = Counter(rack_of[broker] for broker in replicas)
            most = max(has.values())
            assert all(has[rack] >= min(size, most - 1) for rack, size in sizes.items())

    @given(clusters(), st.integers())
    def test_a_fenced_broker_comes_after_all_others_of_its_rack(self, cluster, seed):
        brokers, factor = cluster
        by_id = {broker.broker_id: broker for broker in brokers}
        for replicas in place(brokers, 20, factor, Random(seed)):
            for index, broker in enumerate(replicas):
                if by_id[broker].fenced:
                    before = set(replicas[:index])
                    rack = by_id[broker].rack
                    others = {b.broker_id for b in brokers if b.rack == rack and not b.fenced}
                    assert others <= before

    @given(st.integers(1, 8), st.integers(0, 4), st.integers(0, 60), st.data(), st.integers())
    def test_without_racks_each_broker_leads_equally_often(self, size, fenced, count, data, seed):
        ids = range(size + fenced)
        brokers = in_rack(None, *ids, fenced=ids[size:])
        factor = data.draw(st.integers(1, size + fenced))
        leaders = Counter(replicas[0] for replicas in place(brokers, count, factor, Random(seed)))
        assert {leaders[each] for each in ids[:size]} <= {count // size, -(-count // size)}
        assert not any(leaders[each] for each in ids[size:])

    @given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.data(), st.integers())
    def test_racks_of_one_size_lead_equally_often(self, racks, size, times, data, seed):
        brokers = [
            UsableBroker(rack * size + number, f"{rack}")
            for rack in range(racks)
            for number in range(size)
        ]
        count = times * racks * size
        factor = data.draw(st.integers(1, racks * size))
        placed = place(brokers, count, factor, Random(seed))
        assert Counter(replicas[0] // size for replicas in placed) == dict.fromkeys(
            range(racks), times * size
        )

    @given(clusters(), st.integers())
    def test_the_order_in_which_brokers_are_given_does_not_matter(self, cluster, seed):
        brokers, factor = cluster
        again = place(brokers[::-1], 10, factor, Random(seed))
        assert place(brokers, 10, factor, Random(seed)) == again

    @given(st.integers(1, 9), st.data(), st.integers())
    def test_single_partitions_added_one_by_one_are_led_in_turn(self, size, data, seed):
        factor = data.draw(st.integers(1, size))
        existing: list[tuple[int, ...]] = []
        for _ in range(2 * size):
            existing += place(in_rack(None, *range(size)), 1, factor, Random(seed), existing)
        leaders = [replicas[0] for replicas in existing]
        assert leaders == [(leaders[0] + step) % size for step in range(2 * size)]
