"""Records are read as they were written: by poll, as tables, by iteration."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pytest

from spark_log import (
    Admin,
    CorruptRecordError,
    IllegalStateError,
    NewTopic,
    RecordDeserializationError,
    StorageError,
    TopicPartition,
    WakeupError,
)
from spark_log.cluster import Cluster
from spark_log.consumer import TABLE_SCHEMA
from spark_log.log.files.file_names import SegmentName
from spark_log.record.schema import OFFSET_DELTA_FIELD, segment_schema
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    append,
    damage,
    log_of,
    numbered,
    poll_until,
    read_values,
    values_of,
)
from tests.log.support import Part, segment_bytes
from tests.record.samples import row


class TestPoll:
    def test_gives_every_field_of_a_record(self, root, open_consumer):
        append(
            root,
            [b"v", None],
            keys=[None, b"k"],
            headers=[[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None],
            times_us=[1_700_000_000_123_456, 1_700_000_001_000_000],
        )
        first, second = poll_until(open_consumer("t"), 2)[T0]
        assert first == ("t", 0, 0, 1_700_000_000_123, 0, None, b"v", [("a", b"1"), ("a", None)], 0)
        assert second == ("t", 0, 1, 1_700_000_001_000, 0, b"k", None, [], 0)

    def test_gives_at_most_as_many_as_it_is_told(self, root, open_consumer):
        append(root, numbered(0, 1200))
        consumer = open_consumer("t")
        assert len(consumer.poll(PATIENCE_MS)[T0]) == 500
        assert values_of(consumer.poll(PATIENCE_MS, max_records=3)) == numbered(500, 503)
        assert len(open_consumer("t", max_poll_records=7).poll(PATIENCE_MS)[T0]) == 7

    def test_gives_nothing_when_the_time_is_up(self, open_consumer):
        assert open_consumer("t").poll(timeout_ms=1) == {}

    def test_gives_records_of_all_partitions_in_turns(self, root, open_consumer):
        for partition in THREE:
            for start in range(0, 100, 10):
                append(root, numbered(start, start + 10), to=partition)
        consumer = open_consumer("three", max_partition_fetch_bytes=1, max_poll_records=10)
        seen = []
        for _ in range(15):
            seen += list(consumer.poll(PATIENCE_MS))
        assert all(3 <= seen.count(partition) <= 7 for partition in THREE)
        rest = poll_until(consumer, 150)
        assert sum(map(len, rest.values())) == 150

    def test_keeps_the_order_within_a_partition_and_leaves_nothing_out(self, root, open_consumer):
        for start in range(0, 2_000, 40):
            append(root, numbered(start, start + 40), to=THREE[start % 3])
        found = poll_until(open_consumer("three", fetch_max_bytes=500), 2_000)
        for partition in THREE:
            assert [each.offset for each in found[partition]] == list(range(len(found[partition])))

    def test_sees_what_comes_later(self, root, open_consumer):
        consumer = open_consumer("t")
        assert consumer.poll(timeout_ms=1) == {}
        for round_ in range(3):
            append(root, [b"%d" % round_])
            assert read_values(consumer, 1) == [b"%d" % round_]

    def test_of_nothing_is_refused(self, open_consumer):
        with pytest.raises(IllegalStateError, match="subscribe"):
            open_consumer().poll()

    @pytest.mark.parametrize("wrong", [0, -1])
    def test_of_no_records_is_refused(self, open_consumer, wrong):
        with pytest.raises(ValueError, match="max_records"):
            open_consumer("t").poll(max_records=wrong)
        with pytest.raises(ValueError, match="max_records"):
            open_consumer("t").poll_table(max_records=wrong)

    @pytest.mark.partition_logs_only("writes a file of a partition")
    def test_control_batches_and_gaps_are_passed_over(self, root, open_consumer):
        log = log_of(root)
        schema = segment_schema(log.files.topic_id, 0).append(OFFSET_DELTA_FIELD)
        parts = [
            Part([row(b"0"), row(b"2")], deltas=[0, 2]),
            Part([row(b"marker")], deltas=[3], attributes=0x20),
            Part([row(b"4")], deltas=[4], last_delta=6),
        ]
        name = SegmentName(0, 6, 1)
        data = segment_bytes([parts], schema=schema)
        log.files.store.put(f"{log.directory}/{name.file_name}", data)
        append(root, [b"7"])
        consumer = open_consumer("t")
        found = poll_until(consumer, 4)[T0]
        assert [(each.offset, each.value) for each in found] == [
            (0, b"0"),
            (2, b"2"),
            (4, b"4"),
            (7, b"7"),
        ]
        consumer.seek(T0, 0)
        table = consumer.poll_table(PATIENCE_MS, max_records=2)
        assert table.column("offset").to_pylist() == [0, 2]
        consumer.seek(T0, 3)
        assert poll_until(consumer, 1)[T0][0].offset == 4
        consumer.seek(T0, 5)
        assert read_values(consumer, 1) == [b"7"]

    @pytest.mark.partition_logs_only("writes a file of a partition")
    def test_the_position_goes_behind_control_batches_at_the_end(self, root, open_consumer):
        log = log_of(root)
        parts = [Part([row(b"0")]), Part([row(b"marker")], attributes=0x20)]
        data = segment_bytes([parts], schema=segment_schema(log.files.topic_id, 0))
        log.files.store.put(f"{log.directory}/{SegmentName(0).file_name}", data)
        consumer = open_consumer("t")
        assert read_values(consumer, 1) == [b"0"]
        assert consumer.poll(timeout_ms=50) == {}
        assert consumer.position(T0) == 2
        assert consumer.lag() == {T0: 0}


class TestPollTable:
    def test_has_the_columns_of_the_spark_source(self, root, open_consumer):
        append(
            root,
            [b"a", None],
            keys=[b"k", None],
            headers=[[{"key": "h", "value": b"1"}], None],
            times_us=[1_700_000_000_000_001] * 2,
        )
        table = open_consumer("t").poll_table(PATIENCE_MS)
        assert table.schema.equals(TABLE_SCHEMA)
        table.validate(full=True)
        rows = table.drop_columns("timestamp").to_pylist()
        assert rows == [
            {
                "key": b"k",
                "value": b"a",
                "topic": "t",
                "partition": 0,
                "offset": 0,
                "timestampType": 0,
                "headers": [{"key": "h", "value": b"1"}],
            },
            {
                "key": None,
                "value": None,
                "topic": "t",
                "partition": 0,
                "offset": 1,
                "timestampType": 0,
                "headers": None,
            },
        ]
        times = table.column("timestamp").cast(pa.int64())
        assert times.to_pylist() == [1_700_000_000_000_001] * 2

    def test_is_empty_with_the_same_columns_when_the_time_is_up(self, open_consumer):
        table = open_consumer("t").poll_table(timeout_ms=1)
        assert table.num_rows == 0
        assert table.schema.equals(TABLE_SCHEMA)

    def test_goes_on_where_poll_stopped_and_the_other_way_round(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        assert values_of(consumer.poll(PATIENCE_MS, max_records=3)) == numbered(0, 3)
        table = consumer.poll_table(PATIENCE_MS, max_records=4)
        assert table.column("value").to_pylist() == numbered(3, 7)
        assert table.column("offset").to_pylist() == [3, 4, 5, 6]
        assert consumer.position(T0) == 7
        assert values_of(consumer.poll(PATIENCE_MS)) == numbered(7, 10)

    def test_holds_several_topics_of_different_lengths(self, root, open_consumer):
        append(root, numbered(0, 3))
        append(root, numbered(0, 2000), to=THREE[1])
        consumer = open_consumer("t", "three")
        tables: list[pa.Table] = []
        while sum(table.num_rows for table in tables) < 2003:
            tables.append(consumer.poll_table(PATIENCE_MS))
        table = pa.concat_tables(tables)
        table.validate(full=True)
        counted = table.group_by(["topic", "partition"]).aggregate([("offset", "count")])
        assert sorted(counted.to_pylist(), key=str) == [
            {"topic": "t", "partition": 0, "offset_count": 3},
            {"topic": "three", "partition": 1, "offset_count": 2000},
        ]


class TestIterating:
    def test_hands_out_one_by_one_and_ends_after_the_timeout(self, root, open_consumer):
        append(root, numbered(0, 700))
        found = islice(open_consumer("t"), 700)
        assert [record.value for record in found] == numbered(0, 700)
        at_the_end = open_consumer("t", consumer_timeout_ms=50, auto_offset_reset="latest")
        assert list(at_the_end) == []

    def test_the_position_is_behind_the_record_in_hand(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        for expected in range(3):
            assert next(consumer).offset == expected
            assert consumer.position(T0) == expected + 1

    def test_a_poll_in_between_leaves_nothing_out(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        assert next(consumer).value == b"0"
        assert read_values(consumer, 9) == numbered(1, 10)

    def test_pausing_or_seeking_in_between_counts_at_once(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        assert next(consumer).value == b"0"
        consumer.seek(T0, 7)
        assert next(consumer).value == b"7"
        consumer.pause(T0)
        assert consumer.poll(timeout_ms=1) == {}
        consumer.resume(T0)
        assert next(consumer).value == b"8"

    def test_ends_when_the_consumer_is_closed(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        next(consumer)
        consumer.close()
        assert list(consumer) == []


class TestDeserializers:
    def test_are_called_with_bytes_and_never_with_null(self, root, open_consumer):
        append(root, [b"1", None], keys=[None, b"k"])
        consumer = open_consumer("t", key_deserializer=bytes.decode, value_deserializer=int)
        found = poll_until(consumer, 2)[T0]
        assert [(each.key, each.value) for each in found] == [(None, 1), ("k", None)]

    def test_may_be_objects_that_are_told_the_topic(self, root, open_consumer):
        class Tagging:
            closed = False

            def deserialize(self, topic, data):
                return f"{topic}:{data.decode()}"

            def close(self):
                self.closed = True

        tagging = Tagging()
        append(root, [b"1"])
        consumer = open_consumer("t", value_deserializer=tagging)
        assert read_values(consumer, 1) == ["t:1"]
        consumer.close()
        assert tagging.closed

    def test_an_error_names_the_record_and_comes_after_those_before_it(self, root, open_consumer):
        headers = [None, None, [{"key": "h", "value": b"x"}], None]
        append(root, [b"0", b"1", b"two", b"3"], keys=[b"k"] * 4, headers=headers)
        consumer = open_consumer("t", value_deserializer=int)
        assert read_values(consumer, 2) == [0, 1]
        for _ in range(2):  # until a seek
            with pytest.raises(RecordDeserializationError, match="seek to offset 3") as caught:
                consumer.poll(PATIENCE_MS)
            assert consumer.position(T0) == 2
        error = caught.value
        fields = (error.topic, error.partition, error.offset, error.origin, error.key, error.value)
        assert fields == ("t", 0, 2, "VALUE", b"k", b"two")
        assert error.headers == (("h", b"x"),)
        assert isinstance(error.__cause__, ValueError)
        consumer.seek(T0, error.offset + 1)
        assert read_values(consumer, 1) == [3]

    def test_an_error_of_a_key_says_so(self, root, open_consumer):
        append(root, [b"0"], keys=[b"\xff"])
        consumer = open_consumer("t", key_deserializer=bytes.decode)
        with pytest.raises(RecordDeserializationError, match="key of the record at offset 0"):
            consumer.poll(PATIENCE_MS)

    def test_an_error_ends_an_iteration_at_the_record(self, root, open_consumer):
        append(root, [b"0", b"one", b"2"])
        consumer = open_consumer("t", value_deserializer=int)
        assert next(consumer).value == 0
        with pytest.raises(RecordDeserializationError):
            next(consumer)
        consumer.seek(T0, 2)
        assert next(consumer).value == 2

    def test_an_error_in_one_partition_does_not_hold_up_another(self, root, open_consumer):
        append(root, [b"bad"], to=THREE[0])
        consumer = open_consumer("three", value_deserializer=int)
        with pytest.raises(RecordDeserializationError):
            consumer.poll(PATIENCE_MS)
        append(root, numbered(0, 3), to=THREE[1])
        found: list[int] = []
        refused = []
        while len(found) < 3:
            try:
                found += values_of(consumer.poll(PATIENCE_MS), THREE[1])
            except RecordDeserializationError as error:
                refused.append(error.partition)
        assert found == [0, 1, 2]
        assert set(refused) <= {0}


class TestHeaders:
    def test_of_records_without_any_cannot_be_changed(self, root, open_consumer):
        append(root, [b"0"])
        headers = poll_until(open_consumer("t"), 1)[T0][0].headers
        assert headers == []
        with pytest.raises(TypeError, match="create a new list"):
            headers.append(("a", b"1"))
        assert [*headers, ("a", b"1")] == [("a", b"1")]


class TestInterceptors:
    def test_see_what_is_handed_out_and_may_change_it(self, root, open_consumer):
        class Doubling:
            def on_consume(self, records):
                return {tp: found * 2 for tp, found in records.items()}

            def on_commit(self, offsets):
                pass

        class Failing:
            def on_consume(self, records):
                raise RuntimeError("broken")

            def on_commit(self, offsets):
                pass

        append(root, [b"0"])
        consumer = open_consumer("t", interceptors=[Failing(), Doubling()])
        assert values_of(consumer.poll(PATIENCE_MS)) == [b"0", b"0"]

    def test_see_what_an_iteration_hands_out(self, root, open_consumer):
        class OnlyEven:
            def on_consume(self, records):
                return {
                    tp: [each for each in found if each.offset % 2 == 0]
                    for tp, found in records.items()
                }

            def on_commit(self, offsets):
                pass

        append(root, numbered(0, 5))
        consumer = open_consumer("t", interceptors=[OnlyEven()])
        assert [record.value for record in islice(consumer, 3)] == [b"0", b"2", b"4"]
        assert consumer.position(T0) == 5


class TestMinBytes:
    def test_records_wait_for_more_of_them(self, root, open_consumer):
        append(root, [b"x" * 10])
        consumer = open_consumer("t", fetch_min_bytes=5_000, fetch_max_wait_ms=2**31 - 1)
        assert consumer.poll(timeout_ms=50) == {}
        append(root, [b"x" * 10_000])
        assert len(read_values(consumer, 2)) == 2

    def test_but_no_longer_than_the_longest_wait(self, root, open_consumer):
        append(root, [b"x" * 10])
        consumer = open_consumer("t", fetch_min_bytes=5_000, fetch_max_wait_ms=30)
        assert len(read_values(consumer, 1)) == 1


class TestWakeup:
    def test_ends_a_poll_that_waits(self, open_consumer):
        consumer = open_consumer("t")
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_MS)
        assert consumer.poll(timeout_ms=1) == {}

    def test_ends_the_next_poll_when_none_waits(self, root, open_consumer):
        append(root, [b"0"])
        consumer = open_consumer("t")
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_MS)
        assert read_values(consumer, 1) == [b"0"]


class TestDamage:
    @pytest.mark.partition_logs_only("damages a file of a partition")
    def test_is_named_and_can_be_sought_past(self, root, open_consumer):
        append(root, numbered(0, 4))
        append(root, numbered(4, 6))
        path = damage(root, 0, b"0123")
        consumer = open_consumer("t")
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=re.escape(path)):
                consumer.poll(PATIENCE_MS)
        consumer.seek(T0, 4)
        assert read_values(consumer, 2) == numbered(4, 6)

    @pytest.mark.partition_logs_only("damages a file of a partition")
    def test_is_not_looked_for_without_checksums(self, root, open_consumer):
        append(root, numbered(0, 4))
        damage(root, 0, b"0123")
        consumer = open_consumer("t", check_crcs=False)
        assert read_values(consumer, 4) == [b"9", b"1", b"2", b"3"]


class TestMetrics:
    def test_count_what_was_consumed_and_tell_the_lag(self, root, open_consumer):
        append(root, numbered(0, 10))
        consumer = open_consumer("t")
        poll_until(consumer, 4, max_records=4)
        metrics = consumer.metrics()
        fetched = metrics["consumer-fetch-manager-metrics"]
        assert fetched["records-consumed-total"] == 4
        assert fetched["bytes-consumed-total"] > 0
        assert fetched["records-lag-max"] == 6
        assert metrics["consumer-coordinator-metrics"]["assigned-partitions"] == 1
        assert consumer.highwater(T0) == 10
        assert consumer.lag() == {T0: 6}

    def test_count_what_failed_and_was_done_without(self, open_consumer, monkeypatch):
        opened = []
        partition_log = Cluster.partition_log

        def noted(*given):
            opened.append(partition_log(*given))
            return opened[-1]

        monkeypatch.setattr(Cluster, "partition_log", noted)
        consumer = open_consumer("t")
        consumer.poll(timeout_ms=1)
        assert consumer.metrics()["suppressed-errors"] == {"suppressed-errors-total": 0}
        log = opened[-1]
        log.suppressed.add("index", log.directory, StorageError("no"))
        assert consumer.metrics()["suppressed-errors"] == {
            "suppressed-errors-total": 1,
            "index-errors-total": 1,
        }


def test_partitions_and_topics_are_told(open_consumer):
    consumer = open_consumer()
    assert consumer.topics() == {"t", "three"}
    assert consumer.partitions_for_topic("three") == {0, 1, 2}
    assert consumer.partitions_for_topic("nothing") == set()
    assert consumer.end_offsets([TopicPartition("three", 2)]) == {TopicPartition("three", 2): 0}


class TestRepr:
    def test_tells_root_group_and_assignment(self, root, open_consumer):
        consumer = open_consumer("three", group_id="g")
        assert repr(consumer) == f"<Consumer root={root!r} group_id='g' assignment=[]>"
        consumer.poll()
        assigned = "three-0, three-1, three-2"
        assert repr(consumer) == f"<Consumer root={root!r} group_id='g' assignment=[{assigned}]>"
        consumer.close()
        assert repr(consumer) == f"<Consumer root={root!r} group_id='g' closed>"

    def test_leaves_out_what_there_is_not_and_stays_short(self, root, open_consumer):
        Admin(root).create_topics([NewTopic("many", num_partitions=9)])
        consumer = open_consumer("many")
        consumer.poll()
        shown = ", ".join(f"many-{number}" for number in range(5))
        assert repr(consumer) == f"<Consumer root={root!r} assignment=[{shown} and 4 more]>"

    def test_may_be_asked_for_by_another_thread_while_the_consumer_polls(self, root, open_consumer):
        consumer = open_consumer("t")
        consumer.poll()
        told = []
        with ThreadPoolExecutor(1) as other:
            poll = other.submit(consumer.poll, PATIENCE_MS)
            while not poll.done():
                told.append(repr(consumer))
                if len(told) == 100:
                    append(root, [b"0"])
        assert set(told) == {f"<Consumer root={root!r} assignment=[t-0]>"}
