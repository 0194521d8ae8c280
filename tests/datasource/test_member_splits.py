"""Splits that own whole partitions, and keep them (``partition.assignment.strategy``)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_log import Admin, InvalidOptionError, NewTopic, TopicPartition
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.read.batch_reader import LogBatchReader
from spark_log.datasource.read.log_split import LogSplit
from spark_log.datasource.read.member_splits import MemberSplit, PartitionOwners, group_by_member
from spark_log.datasource.read.schema import READ_SCHEMA
from tests.datasource.streams import add_partitions, append, batches

ALL = ReadAllAvailable()
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def parts(count, topic="t", first=0):
    return [TopicPartition(topic, first + number) for number in range(count)]


def shares(owners):
    """Return the partitions of each member that has any."""
    found: dict[int, set[TopicPartition]] = {}
    for tp, member in owners.items():
        found.setdefault(member, set()).add(tp)
    return found


class TestOwners:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_every_partition_has_one_and_shares_are_even(self, strategy):
        owners = PartitionOwners(strategy, 3).assign(parts(8))
        assert owners.keys() == set(parts(8))
        assert sorted(map(len, shares(owners).values())) == [2, 3, 3]

    def test_of_a_range_are_neighbours_and_of_roundrobin_take_turns(self):
        by_range = PartitionOwners("range", 2).assign(parts(4))
        assert [by_range[tp] for tp in parts(4)] == [0, 0, 1, 1]
        by_turns = PartitionOwners("roundrobin", 2).assign(parts(4))
        assert [by_turns[tp] for tp in parts(4)] == [0, 1, 0, 1]

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_are_one_for_each_partition_where_nobody_says_how_many(self, strategy):
        assert sorted(PartitionOwners(strategy, None).assign(parts(5)).values()) == [0, 1, 2, 3, 4]

    def test_beyond_the_number_of_partitions_have_nothing(self):
        assert len(shares(PartitionOwners("sticky", 9).assign(parts(2)))) == 2

    def test_are_told_from_members_9_and_10_in_the_order_of_numbers(self):
        owners = PartitionOwners("range", 12).assign(parts(12))
        assert [owners[tp] for tp in parts(12)] == list(range(12))

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_of_some_of_a_topics_partitions(self, strategy):
        wanted = [TopicPartition("t", 3), TopicPartition("t", 7), TopicPartition("u", 1)]
        assert PartitionOwners(strategy, 2).assign(wanted).keys() == set(wanted)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_have_whole_stripes_also_of_some_of_a_topics_partitions(self, strategy):
        wanted = [TopicPartition("t", number) for number in (0, 1, 2, 5, 6, 8)]
        owners = PartitionOwners(strategy, 3).assign(wanted, {"t": 4})
        assert owners[wanted[0]] == owners[wanted[5]], "stripe 0 has partitions 0 and 8"
        assert sorted(sorted(tp.partition for tp in each) for each in shares(owners).values()) == [
            [0, 8],
            [1, 5],
            [2, 6],
        ]

    @pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
    def test_keep_what_they_have_when_partitions_come_and_go(self, strategy):
        owners = PartitionOwners(strategy, 3)
        before = dict(owners.assign(parts(6)))
        more = dict(owners.assign(parts(9)))
        assert {tp: more[tp] for tp in before} == before
        assert sorted(map(len, shares(more).values())) == [3, 3, 3]
        fewer = owners.assign(parts(7, first=2))
        assert {tp: fewer[tp] for tp in parts(7, first=2)} == {
            tp: more[tp] for tp in parts(7, first=2)
        }

    @given(
        st.sampled_from(["sticky", "cooperative-sticky"]),
        st.integers(1, 6),
        st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=2, max_size=6),
    )
    def test_of_sticky_assignors_move_only_for_balance(self, strategy, members, changes):
        before: dict[TopicPartition, int] = {}
        owners = PartitionOwners(strategy, members)
        for numbers in changes:
            now = dict(owners.assign([TopicPartition("t", number) for number in numbers]))
            assert {tp.partition for tp in now} == numbers
            sizes = [len(shares(now).get(member, ())) for member in range(members)]
            assert max(sizes) - min(sizes) <= 1
            kept = {tp for tp in now if tp in before}
            moved = sum(now[tp] != before[tp] for tp in kept)
            owned = [sum(before[tp] == member for tp in kept) for member in range(members)]
            least, larger = divmod(len(numbers), members)
            room = [least + (place < larger) for place in range(members)]
            too_many = zip(sorted(owned, reverse=True), room, strict=True)
            assert moved == sum(max(0, had - may) for had, may in too_many)
            before = now


class TestSplits:
    def test_of_a_member_are_one_and_members_without_any_have_none(self):
        one = LogSplit("t", 0, "id", "d", 0, 5)
        two = [LogSplit("t", 3, "id", "d", 0, 2), LogSplit("t", 3, "id", "d", 4, 9)]
        made = group_by_member([one, *two], PartitionOwners("range", 4), parts(4))
        assert made == [MemberSplit(0, (one,)), MemberSplit(3, tuple(two))]

    def test_of_partitions_that_nobody_counted_are_not_lost(self):
        split = LogSplit("t", 9, "id", "d", 0, 5)
        assert group_by_member([split], PartitionOwners("range", 2), parts(2))[0].splits == (split,)


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``, which has four partitions."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=4)])
    return url


def options(root, strategy="sticky", **more):
    wanted = {"path": root, "subscribe": "t", "group.id": "g"}
    return wanted | {"partition.assignment.strategy": strategy} | more


def read_by(splits):
    return {
        split.member: [
            (part.partition, part.start_offset, part.end_offset) for part in split.splits
        ]
        for split in splits
    }


class TestBatches:
    def test_are_read_by_members_whole_partition_after_whole_partition(self, root):
        for number in range(4):
            append(root, "t", number, range(10 + number))
        option_parser = parse_read_options(options(root, "range", minPartitions="2"))
        reader = LogBatchReader(READ_SCHEMA, option_parser)
        splits = reader.partitions()
        assert read_by(splits) == {0: [(0, 0, 10), (1, 0, 11)], 1: [(2, 0, 12), (3, 0, 13)]}
        rows = [row for batch in reader.read(splits[1]) for row in batch.to_pylist()]
        assert [(row["partition"], row["offset"]) for row in rows] == [
            *((2, offset) for offset in range(12)),
            *((3, offset) for offset in range(13)),
        ]

    def test_of_a_topic_with_stripes_are_read_stripe_by_stripe(self, root):
        configs = {"stripes": "2", "flush.on.append": "false"}
        Admin(root).create_topics([NewTopic("s", num_partitions=4, topic_configs=configs)])
        for number in range(4):
            append(root, "s", number, range(3))
        wanted = options(root, "range", minPartitions="2", subscribe="s")
        splits = LogBatchReader(READ_SCHEMA, parse_read_options(wanted)).partitions()
        assert read_by(splits) == {0: [(0, 0, 3), (2, 0, 3)], 1: [(1, 0, 3), (3, 0, 3)]}

    def test_without_records_have_no_split(self, root):
        reader = LogBatchReader(READ_SCHEMA, parse_read_options(options(root)))
        assert list(reader.partitions()) == []
        assert list(reader.read(None)) == []  # type: ignore[arg-type] # as Spark does


class TestMicroBatches:
    def test_of_a_topic_with_stripes_have_whole_stripes(self, root, clock):
        configs = {"stripes": "2", "flush.on.append": "false"}
        Admin(root).create_topics([NewTopic("s", num_partitions=4, topic_configs=configs)])
        wanted = options(root, "sticky", minPartitions="2", subscribe="s")
        planned = batches(root, clock, **wanted)
        start = planned.initial()
        for number in range(4):
            append(root, "s", number, range(3))
        clock.advance_ms(1_000)
        splits = read_by(planned.splits(start, planned.next_end(start, ALL)))
        assert {member: [part for part, _, _ in each] for member, each in splits.items()} == {
            0: [0, 2],
            1: [1, 3],
        }

    def test_have_only_partitions_with_new_records_and_ownership_stays(self, root, clock):
        planned = batches(root, clock, **options(root, "sticky", minPartitions="2"))
        owner: dict[Any, int] = {}
        start = planned.initial()
        for numbers in ([0, 1, 2, 3], [3], [0, 2], [1, 2, 3]):
            for number in numbers:
                append(root, "t", number, range(3))
            clock.advance_ms(1_000)
            end = planned.next_end(start, ALL)
            splits = read_by(planned.splits(start, end))
            found = {part: member for member, each in splits.items() for part, _, _ in each}
            assert sorted(found) == numbers
            owner = {**found, **owner}
            assert all(owner[part] == member for part, member in found.items())
            start = end
        assert sorted(owner.values()) == [0, 0, 1, 1]

    def test_give_new_partitions_away_and_keep_the_others_where_they_are(self, root, clock):
        planned = batches(root, clock, **options(root, "cooperative-sticky", minPartitions="2"))
        for number in range(4):
            append(root, "t", number, range(3))
        start = planned.next_end(planned.initial(), ALL)
        before = read_by(planned.splits(planned.initial(), start))
        add_partitions(root, "t", 6)
        for number in range(6):
            append(root, "t", number, range(3))
        clock.advance_ms(1_000)
        after = read_by(planned.splits(start, planned.next_end(start, ALL)))
        for member in (0, 1):
            kept = {part for part, _, _ in before[member]}
            now = {part for part, _, _ in after[member]}
            assert kept < now
            assert len(now) == 3


class TestOptions:
    def test_are_taken_with_a_group(self, root):
        parsed = parse_read_options(options(root, "Sticky"))
        assert parsed.assignor == "sticky"
        assert parse_read_options({"path": root, "subscribe": "t"}).assignor is None

    @pytest.mark.parametrize("is_stream", [True, False])
    def test_that_would_cut_partitions_are_refused_with_it(self, root, is_stream):
        with pytest.raises(InvalidOptionError, match="a task owns whole partitions") as caught:
            parse_read_options(options(root, maxRecordsPerPartition="5"), is_stream=is_stream)
        assert caught.value.key == "maxRecordsPerPartition"

    def test_are_refused_without_a_group(self, root):
        wanted = options(root)
        del wanted["group.id"]
        with pytest.raises(InvalidOptionError, match=r"needs the option 'group\.id'"):
            parse_read_options(wanted)
