"""Partitions read side by side."""

import pytest

from spark_log.cli.records import partition_reader
from spark_log.cli.records.partition_reader import PartitionRange, read_partitions
from spark_log.config import TopicConfig
from spark_log.errors import OffsetOutOfRangeError
from spark_log.log import LocalLog
from spark_log.log.read.probe_interval import LOCAL_PROBES
from spark_log.log.rewrite.merger import merge
from tests.cli.support import SteppingClock
from tests.log.support import HookedStore
from tests.record.samples import numbered, rows_of
from tests.transactions import TransactionWriter


@pytest.fixture
def logs(memory_store):
    """Two logs; values of the first are ``a:0``, ``a:1``, …, of the second ``b:0``, …"""
    return {
        number: LocalLog(memory_store, f"flights-{number}", topic_id="id", partition=number)
        for number in (0, 1)
    }


def append(log, mark, first, count, batch_size=1):
    log.append(
        numbered(start, min(batch_size, first + count - start), mark=mark)
        for start in range(first, first + count, batch_size)
    )


def shown(records):
    """``(partition, offset, value)`` of each record."""
    return [
        (records.partition, offset, row["value"].decode())
        for offset, row in zip(records.offsets.tolist(), rows_of(records.records), strict=True)
    ]


def read(*args):
    return [each for records in read_partitions(*args) for each in shown(records)]


class TestRange:
    def test_is_read_from_its_start_to_before_its_end(self, logs):
        append(logs[0], "a", 0, 10, batch_size=4)
        append(logs[0], "a", 10, 5)
        found = read(logs, {0: PartitionRange(2, 12)}, SteppingClock())
        assert found == [(0, number, f"a:{number}") for number in range(2, 12)]

    def test_with_nothing_in_it_ends_at_once(self, logs):
        append(logs[0], "a", 0, 3)
        clock = SteppingClock()
        assert read(logs, {0: PartitionRange(3, 3), 1: PartitionRange(0, 0)}, clock) == []
        assert clock.sleeps_ms == []

    def test_must_begin_within_the_log(self, logs):
        append(logs[0], "a", 0, 3)
        with pytest.raises(OffsetOutOfRangeError, match="0 to 2"):
            read(logs, {0: PartitionRange(4)}, SteppingClock())


class TestTurns:
    def test_partitions_take_turns(self, logs, monkeypatch):
        monkeypatch.setattr(partition_reader, "ROUND_BYTES", 1)
        append(logs[0], "a", 0, 3)
        append(logs[1], "b", 0, 2)
        ranges = {0: PartitionRange(0, 3), 1: PartitionRange(0, 2)}
        values = [value for _, _, value in read(logs, ranges, SteppingClock())]
        assert values == ["a:0", "b:0", "a:1", "b:1", "a:2"]

    def test_one_that_always_has_more_does_not_keep_another_waiting(self, logs, monkeypatch):
        monkeypatch.setattr(partition_reader, "ROUND_BYTES", 10_000)
        append(logs[0], "a", 0, 10)
        append(logs[1], "b", 0, 1)
        records = read_partitions(
            logs, {0: PartitionRange(0), 1: PartitionRange(0)}, SteppingClock(), timeout_ms=0
        )
        seen = []
        for number in range(10, 500):
            seen += shown(next(records))
            append(logs[0], "a", number, 1)
            if seen[-1][0] == 1:
                break
        assert seen[-1] == (1, 0, "b:0")


class TestFollowing:
    def test_sees_what_is_appended_while_it_waits(self, logs):
        append(logs[0], "a", 0, 1)
        clock = SteppingClock(
            lambda: append(logs[0], "a", 1, 2),
            lambda: None,
            lambda: append(logs[1], "b", 0, 1),
        )
        ranges = {0: PartitionRange(1), 1: PartitionRange(0)}
        values = [value for _, _, value in read(logs, ranges, clock, 1000)]
        assert values == ["a:1", "a:2", "b:0"]

    def test_looks_less_and_less_often_the_longer_nothing_comes(self, logs):
        clock = SteppingClock()
        assert read(logs, {0: PartitionRange(0)}, clock, 1000) == []
        assert clock.sleeps_ms[0] == LOCAL_PROBES.min_ms
        assert sorted(clock.sleeps_ms[:-1]) == clock.sleeps_ms[:-1]
        assert clock.sleeps_ms[-2] == LOCAL_PROBES.max_ms
        assert sum(clock.sleeps_ms) == pytest.approx(1000, abs=1)

    def test_looks_at_many_partitions_less_often(self, memory_store):
        logs = {
            number: LocalLog(memory_store, f"t-{number}", topic_id="id", partition=number)
            for number in range(11)
        }
        clock = SteppingClock()
        assert read(logs, dict.fromkeys(logs, PartitionRange(0)), clock, 1000) == []
        assert clock.sleeps_ms[-2] == 3 * LOCAL_PROBES.max_ms

    def test_on_an_object_store_looks_at_most_every_100_ms(self, memory_store):
        remote = HookedStore(memory_store, is_mapped=False)
        log = LocalLog(remote, "flights-0", topic_id="id", partition=0)
        clock = SteppingClock()
        assert read({0: log}, {0: PartitionRange(0)}, clock, 5000) == []
        assert (clock.sleeps_ms[0], clock.sleeps_ms[-2]) == (10, 100)

    def test_wakes_up_early_again_after_a_record_came(self, logs):
        clock = SteppingClock(*[lambda: None] * 99, lambda: append(logs[0], "a", 0, 1))
        assert len(read(logs, {0: PartitionRange(0)}, clock, 400)) == 1
        assert clock.sleeps_ms[99] == LOCAL_PROBES.max_ms
        assert clock.sleeps_ms[100] == LOCAL_PROBES.min_ms

    def test_ends_when_nothing_came_for_the_timeout(self, logs):
        clock = SteppingClock(*[lambda: None] * 99, lambda: append(logs[0], "a", 0, 1))
        read(logs, {0: PartitionRange(0)}, clock, 300)
        assert sum(clock.sleeps_ms[100:]) == pytest.approx(300, abs=1)

    def test_lists_the_log_again_only_when_what_it_saw_has_aged(self, memory_store):
        store = HookedStore(memory_store)
        config = TopicConfig.parse({"file.delete.delay.ms": 1000})
        clock = SteppingClock(*[lambda: None] * 200, lambda: append(log, "a", 0, 1))
        log: LocalLog = LocalLog(
            store, "flights-0", topic_id="id", partition=0, config=config, clock=clock
        )
        assert len(read({0: log}, {0: PartitionRange(0)}, clock, 2000)) == 1
        seconds = clock.monotonic_ms() / 1000
        assert 2 * seconds <= len(store.called("list")) <= 2 * seconds + 5
        assert len(store.called("open_buffer")) > 300 * seconds

    def test_reads_on_behind_what_was_merged_meanwhile(self, logs, memory_store):
        log = logs[0]
        append(log, "a", 0, 2)

        def merge_and_append():
            append(log, "a", 2, 2)
            append(log, "a", 4, 1)
            merge(log.files, log.observe(), 0, 2)
            append(log, "a", 5, 1)

        clock = SteppingClock(lambda: None, merge_and_append)
        assert read(logs, {0: PartitionRange(1)}, clock, 100) == [
            (0, number, f"a:{number}") for number in range(1, 6)
        ]

    def test_with_no_timeout_does_not_wait_at_all(self, logs):
        append(logs[0], "a", 0, 1)
        clock = SteppingClock()
        assert len(read(logs, {0: PartitionRange(0), 1: PartitionRange(0)}, clock, 0)) == 1
        assert clock.sleeps_ms == []


def test_a_transaction_that_holds_a_reader_up_is_asked_for(logs):
    writer = TransactionWriter(logs[1])
    asked = []

    def resolve(blocking, log):
        asked.append((blocking.first_offset, log))
        if len(asked) == 2:
            writer.commit()
        return len(asked) == 2

    append(logs[0], "a", 0, 1)
    writer.send(b"b")
    fetched = read_partitions(
        logs,
        {0: PartitionRange(0), 1: PartitionRange(0)},
        SteppingClock(),
        1000,
        isolation_level="read_committed",
        resolve=resolve,
    )
    found = [each for records in fetched for each in shown(records)]
    assert found == [(0, 0, "a:0"), (1, 0, "b")]
    assert asked == [(0, logs[1])] * 2
