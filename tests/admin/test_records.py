"""`Admin` deletes records."""

import pytest

from spark_log import (
    NewTopic,
    TopicPartition,
)
from spark_log.errors import (
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tests.log.support import values
from tests.metadata.support import append
from tests.record.samples import numbered


class TestDeleteRecords:
    def test_each_partition_begins_where_it_was_told(self, admin, root):
        admin.create_topics([NewTopic("a", 3)])
        logs = [append(root, "a", 4, partition=number) for number in range(3)]
        first, second, third = (TopicPartition("a", number) for number in range(3))
        deleted = admin.delete_records({first: 2, second: -1, third: 0})
        assert {key: left.low_watermark for key, left in deleted.items()} == {
            first: 2,
            second: 4,
            third: 0,
        }
        assert [[offset for offset, _ in values(log)] for log in logs] == [
            [2, 3],
            [],
            [0, 1, 2, 3],
        ]
        assert logs[1].append(numbered(0, 1)).base_offset == 4

    def test_one_that_begins_later_stays(self, admin, root):
        admin.create_topics([NewTopic("a")])
        append(root, "a", 4)
        partition = TopicPartition("a", 0)
        admin.delete_records({partition: 3})
        assert admin.delete_records({partition: 1})[partition].low_watermark == 3

    @pytest.mark.parametrize("offset", [5, -2])
    def test_all_is_checked_before_anything_is_deleted(self, admin, root, offset):
        admin.create_topics([NewTopic("a", 2)])
        logs = [append(root, "a", 4, partition=number) for number in range(2)]
        wanted = {TopicPartition("a", 0): 2, TopicPartition("a", 1): offset}
        with pytest.raises(OffsetOutOfRangeError, match="give 0 to 4, or -1") as caught:
            admin.delete_records(wanted)
        assert (caught.value.offset, caught.value.log_end_offset) == (offset, 4)
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_records({TopicPartition("a", 0): 2, TopicPartition("a", 2): 1})
        assert [log.observe().log_start_offset for log in logs] == [0, 0]
