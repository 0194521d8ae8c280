"""`Admin` looks up offsets."""

import pytest

from spark_log import (
    NewTopic,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTimestampError,
    UnknownTopicOrPartitionError,
)
from tests.metadata.support import append
from tests.record.samples import START_US
from tests.transactions import TransactionWriter


class TestListOffsets:
    def test_ends_times_and_the_largest_time(self, admin, root):
        admin.create_topics([NewTopic("a", 2)])
        append(root, "a", 3)
        append(root, "a", 2, first=3)
        partition, empty = TopicPartition("a", 0), TopicPartition("a", 1)
        start_ms = START_US // 1000

        def found(spec):
            both = admin.list_offsets({partition: spec, empty: spec})
            assert list(both) == [partition, empty]
            return both[partition], both[empty]

        none = OffsetAndTimestamp(-1, -1, -1)
        zero = OffsetAndTimestamp(0, -1, 0)
        assert found(OffsetSpec.EARLIEST) == (zero, zero)
        assert found(OffsetSpec.LATEST) == (OffsetAndTimestamp(5, -1, 0), zero)
        assert found(-3) == (OffsetAndTimestamp(4, start_ms + 4, 0), none)
        assert found(start_ms + 2) == (OffsetAndTimestamp(2, start_ms + 2, 0), none)
        assert found(0) == (OffsetAndTimestamp(0, start_ms, 0), none)
        assert found(start_ms + 5) == (none, none)

    def test_the_earliest_is_the_first_that_is_not_deleted(self, admin, root):
        admin.create_topics([NewTopic("a")])
        append(root, "a", 3)
        partition = TopicPartition("a", 0)
        admin.delete_records({partition: 2})
        assert admin.list_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 2
        assert admin.list_offsets({partition: 0})[partition].offset == 2

    def test_what_does_not_exist_is_refused(self, admin):
        admin.create_topics([NewTopic("a")])
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 1"):
            admin.list_offsets({TopicPartition("a", 1): OffsetSpec.LATEST})
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'b'"):
            admin.list_offsets({TopicPartition("b", 0): OffsetSpec.LATEST})
        for time in (-4, 2**63):
            with pytest.raises(InvalidTimestampError, match="is not a time to look up"):
                admin.list_offsets({TopicPartition("a", 0): time})


def test_kafka_python_3s_name_gives_the_same_answer(admin, root):
    admin.create_topics([NewTopic("a")])
    append(root, "a", 3)
    specs = {TopicPartition("a", 0): OffsetSpec.LATEST}
    assert admin.list_partition_offsets(specs) == admin.list_offsets(specs)
    assert admin.list_partition_offsets(specs)[TopicPartition("a", 0)].offset == 3


class TestIsolationLevel:
    @pytest.fixture
    def held(self, admin, root):
        """A partition with 3 records, and 2 of an open transaction that are later."""
        admin.create_topics([NewTopic("a")])
        append(root, "a", 3)
        topic = Cluster(root).topic("a")
        writer = TransactionWriter(Cluster(root).partition_log(topic, 0))
        writer.send(b"x", b"y", timestamp=START_US + 9_000)
        return writer

    @pytest.mark.parametrize("name", ["list_offsets", "list_partition_offsets"])
    def test_read_committed_ends_at_the_last_stable_offset(self, admin, held, name):
        partition = TopicPartition("a", 0)

        def offsets(**options):
            specs = (OffsetSpec.EARLIEST, OffsetSpec.LATEST, -3, START_US // 1000 + 9)
            look_up = getattr(admin, name)
            return [look_up({partition: spec}, **options)[partition].offset for spec in specs]

        assert offsets() == offsets(isolation_level="read_uncommitted") == [0, 5, 3, 3]
        assert offsets(isolation_level="read_committed") == [0, 3, -1, -1]
        held.commit()
        found = getattr(admin, name)(
            {partition: OffsetSpec.LATEST}, isolation_level="read_committed"
        )
        assert found[partition].offset == 6

    def test_the_largest_time_is_that_of_a_record(self, admin, held):
        held.commit()
        specs = {TopicPartition("a", 0): OffsetSpec.MAX_TIMESTAMP}
        assert admin.list_offsets(specs)[TopicPartition("a", 0)].offset == 3

    def test_another_level_is_refused(self, admin, held):
        with pytest.raises(InvalidConfigurationError, match="'read_uncommitted' or"):
            admin.list_offsets(
                {TopicPartition("a", 0): OffsetSpec.LATEST}, isolation_level="serializable"
            )
