"""Snapshots: written at intervals, used only if valid, and never needed for an answer."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log.files.file_names import SegmentName, snapshot_name
from spark_log.log.producers.producer_entry import ProducerEntry, SequenceRun
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite.merger import merge
from spark_log.log.segment.summary import SegmentSummary
from spark_log.log.snapshot.snapshot import (
    SNAPSHOT_SCHEMA,
    Snapshot,
)
from spark_log.record import ProducerAppend
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    failing,
    file_names,
    free,
    move_start,
    open_log,
    values,
)
from tests.record.samples import START_US, numbered

HERE: dict[str, Any] = {"topic_id": TOPIC_ID, "partition": 0}

EXAMPLE = Snapshot(
    12,
    (
        SegmentSummary(SegmentName(0, 8, 2), 9, 7, 1_000, None, 50),
        SegmentSummary(SegmentName(9, 10, 1, is_parquet=True), 11, 2, 99, 1, 2),
        SegmentSummary(SegmentName(11), 12, 1, 500, -7, 2**40),
    ),
    ProducerState(
        12,
        [
            (7, ProducerEntry(3, (SequenceRun(5, 0, 4), SequenceRun(9, 9, 2)), 99)),
            (8, ProducerEntry(0, (), 0)),
            (9, ProducerEntry(4, (), 5, earlier_runs=((3, SequenceRun(2, 5, 1)),))),
        ],
    ),
)


def snapshots(store):
    return [name for name in file_names(store) if name.endswith(".snapshot")]


def read(store, offset):
    return Snapshot.from_buffer(store.open_buffer(f"{DIRECTORY}/{snapshot_name(offset)}"), **HERE)


def append(log, count=1):
    for _ in range(count):
        log.append(numbered(0, 1))


def opened_segments(store):
    return [path for path in store.called("open_buffer") if path.endswith(".log")]


class TestFile:
    def test_its_content_is_read_back(self):
        found = Snapshot.from_buffer(EXAMPLE.to_buffer(**HERE), **HERE)
        assert (found.offset, found.segments) == (12, EXAMPLE.segments)
        assert list(found.producers.entries()) == list(EXAMPLE.producers.entries())
        assert found.producers.offset == 12

    def test_of_an_empty_log_can_be_written(self):
        found = Snapshot.from_buffer(Snapshot(3, (), ProducerState(3)).to_buffer(**HERE), **HERE)
        assert (found.offset, found.segments, found.producers.offset) == (3, (), 3)

    def test_is_one_row_that_any_arrow_tool_opens(self):
        table = ipc.open_file(EXAMPLE.to_buffer(**HERE)).read_all()
        assert table.schema.equals(SNAPSHOT_SCHEMA)
        assert table.num_rows == 1

    def test_with_any_byte_changed_is_refused_or_says_the_same(self):
        data = EXAMPLE.to_buffer(**HERE).to_pybytes()
        refused = 0
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 0x41
            try:
                found = Snapshot.from_buffer(pa.py_buffer(bytes(damaged)), **HERE)
            except ValueError:
                refused += 1
                continue
            assert (found.offset, found.segments) == (12, EXAMPLE.segments)
            expected = dict(EXAMPLE.producers.entries())
            if not found.producers.transactions.is_complete:
                expected[9] = replace(expected[9], earlier_runs=())
            assert dict(found.producers.entries()) == expected
        assert refused > len(data) / 4, "the rest is padding and what no reader looks at"

    @pytest.mark.parametrize("length", [0, 5, 100, 400])
    def test_cut_short_is_refused(self, length):
        with pytest.raises(ValueError, match="Arrow"):
            Snapshot.from_buffer(EXAMPLE.to_buffer(**HERE).slice(0, length), **HERE)

    @pytest.mark.parametrize("other", [{"topic_id": "x"}, {"partition": 1}])
    def test_of_another_partition_is_refused(self, other):
        with pytest.raises(ValueError, match="belongs"):
            Snapshot.from_buffer(EXAMPLE.to_buffer(**{**HERE, **other}), **HERE)


class TestWriting:
    def test_is_due_after_an_interval_of_segments_of_any_appenders(self, inner):
        logs = [open_log(inner, snapshot_interval_segments=4) for _ in range(2)]
        for _ in range(4):
            for log in logs:
                append(log)
        written = [int(name[:20]) for name in snapshots(inner)]
        assert written == [4, 8]

    def test_of_a_log_without_appends_says_it_is_empty(self, inner):
        assert open_log(inner).snapshots.write().offset == 0
        assert read(inner, 0).segments == ()

    def test_has_a_summary_of_every_segment(self, inner):
        log = open_log(inner)
        log.append([numbered(5, 2), numbered(0, 3)])
        log.append(numbered(9, 1))
        log.snapshots.write()
        sizes = [file.size_bytes for file in inner.list(DIRECTORY) if file.name.endswith(".log")]
        first, second = read(inner, 6).segments
        assert first == SegmentSummary(SegmentName(0), 5, 5, sizes[0], START_US, START_US + 6_000)
        assert second == SegmentSummary(
            SegmentName(5), 6, 1, sizes[1], START_US + 9_000, START_US + 9_000
        )

    def test_is_the_same_by_a_process_that_appended_nothing(self, inner, clock):
        log = open_log(inner, clock=clock)
        for sequence in range(3):
            log.append(numbered(sequence, 1), producer=ProducerAppend(7, 0, sequence))
        own, other = log.snapshots.write(), open_log(inner, clock=clock).snapshots.write()
        assert own.segments == other.segments
        assert list(own.producers.entries()) == list(other.producers.entries())

    def test_keeps_one_that_is_older_and_no_more(self, inner):
        log = open_log(inner, snapshot_interval_segments=2)
        append(log, 10)
        assert [int(name[:20]) for name in snapshots(inner)] == [8, 10]

    @pytest.mark.parametrize("error", [StorageError("down"), CorruptRecordError("damaged")])
    def test_that_fails_fails_no_append(self, store, inner, error):
        log = open_log(store, snapshot_interval_segments=2)
        append(log)
        store.on("put", failing(error))
        append(log, 3)
        assert len(values(log)) == 4
        assert snapshots(inner) == []

    def test_is_due_less_often_as_the_log_grows(self, store):
        """The cost per append does not depend on the number of segments."""
        log = open_log(store, snapshot_interval_segments=1, merge_tail_segments=0)
        append(log, 200)
        assert 15 < len(store.called("delete")) < 25


class TestCostOfWriting:
    """One of the appenders writes a snapshot, mostly from state that it has anyway."""

    INTERVAL = 16

    def log(self, store, **settings):
        settings = {"merge_tail_segments": 0, **settings}
        return open_log(store, snapshot_interval_segments=self.INTERVAL, **settings)

    def test_opens_no_segment_that_one_has_appended_or_lost_against(self, store, inner):
        log, other = self.log(store), self.log(inner)
        for _ in range(4):
            append(log)
            append(other, 3)
        store.calls.clear()
        log.snapshots.write()
        assert len(opened_segments(store)) <= 4, "the last one and what others appended after ours"

    def test_takes_one_listing_and_one_of_newer_snapshots(self, store):
        log = self.log(store)
        append(log)
        store.calls.clear()
        append(log, self.INTERVAL - 1)
        assert len(snapshots(store)) == 1
        assert len(store.called("list")) == 2 + 1, "the third is this test's"
        assert len(opened_segments(store)) == 1

    def test_is_not_paid_by_appenders_that_find_the_snapshot_of_another(self, inner):
        stores = [HookedStore(inner) for _ in range(3)]
        logs = [self.log(store) for store in stores]
        for _ in range(4 * self.INTERVAL):
            for log in logs:
                append(log)
        written = [len(store.called("put")) for store in stores]
        assert sum(written) <= 3 * 4 + 1, "one for so many segments"
        read = [len(store.called("open_buffer")) for store in stores]
        appended = 4 * self.INTERVAL
        assert max(read) < 3.5 * appended, "two winners an append, a free name, little besides"

    def test_of_another_process_is_no_error_after_appended_segments_were_merged(self, inner, clock):
        log, other = (
            open_log(inner, clock=clock, snapshot_interval_segments=999, merge_tail_segments=0)
            for _ in range(2)
        )
        append(log, 4)
        other.snapshots.write()  # before the merged segments; the appender does not list it yet
        append(log, 4)
        merge(other.files, other.observe(), 4, 7)
        log.segments(log.observe())
        append(log, 8)
        merge(other.files, other.observe(), 5, 12)
        merge(other.files, other.observe(), 0, 3)
        clock.advance_ms(log.config.file_delete_delay_ms)
        append(log)
        assert len(values(log)) == log.snapshots.write().offset == 17

    def test_is_correct_with_appends_of_others_in_between(self, inner, clock):
        logs = [self.log(inner, clock=clock) for _ in range(3)]
        for sequence in range(40):
            producer = ProducerAppend(sequence % 3, 0, sequence // 3)
            logs[sequence % 3].append(numbered(sequence, 1), producer=producer)
            append(logs[(sequence + 1) % 3])
        expected = open_log(inner, clock=clock).producers()
        for log in logs:
            found = log.snapshots.write()
            assert [each.end_offset for each in found.segments] == list(range(1, 81))
            assert found.offset == 80
            for (_, entry), (_, wanted) in zip(
                found.producers.entries(), expected.entries(), strict=True
            ):
                assert (entry.epoch, entry.runs) == (wanted.epoch, wanted.runs)


class TestReading:
    @pytest.fixture
    def log(self, inner):
        """A log of ten segments, eight of which are in a snapshot."""
        log = open_log(inner)
        append(log, 8)
        log.snapshots.write()
        append(log, 2)
        return log

    def test_opens_only_segments_that_the_snapshot_does_not_list(self, store, log):
        fresh = open_log(store)
        summaries, view = fresh.segments(fresh.observe())
        assert [summary.end_offset for summary in summaries] == list(range(1, 11))
        assert view.log_end_offset == 10
        assert {path[-24:] for path in opened_segments(store)} == {
            SegmentName(base).file_name for base in (8, 9)
        }

    def test_opens_no_segment_twice(self, store, log):
        fresh = open_log(store)
        fresh.segments(fresh.observe())
        view = fresh.observe()
        store.calls.clear()
        fresh.segments(view)
        assert store.calls == []

    @pytest.mark.parametrize("damage", [b"", b"damaged", None])
    def test_does_without_a_snapshot_that_is_damaged_or_deleted(self, store, inner, log, damage):
        path = f"{DIRECTORY}/{snapshot_name(8)}"
        store.once("open_buffer", lambda *_: store.inner.open_buffer(f"{DIRECTORY}/gone"))
        if damage is None:
            fresh = open_log(store)
            view = fresh.observe()
            inner.delete(path)
        else:
            inner.put(path, damage)
            store.hooks.clear()
            fresh = open_log(store)
            view = fresh.observe()
        summaries, _ = fresh.segments(view)
        assert [summary.record_count for summary in summaries] == [1] * 10

    def test_takes_the_older_one_when_the_newest_is_damaged(self, store, inner, log):
        log.snapshots.write()
        inner.put(f"{DIRECTORY}/{snapshot_name(10)}", b"damaged")
        fresh = open_log(store)
        fresh.segments(fresh.observe())
        assert len(set(opened_segments(store))) == 2

    def test_knows_a_rewritten_segment_from_what_it_covers(self, inner, log):
        view = log.observe()
        merge(log.files, view, 2, 5)
        free(inner, *(SegmentName(base) for base in (2, 3, 4, 5)))
        for each in (log, open_log(inner)):
            summaries, _ = each.segments(each.observe())
            assert [(s.end_offset, s.record_count) for s in summaries] == [
                (1, 1),
                (2, 1),
                (6, 4),
                *((end, 1) for end in (7, 8, 9, 10)),
            ]

    def test_of_a_view_that_is_old_answers_for_the_log_as_it_is(self, inner, log):
        fresh = open_log(inner)
        view = fresh.observe()
        merge(log.files, log.observe(), 8, 9)
        free(inner, SegmentName(8), SegmentName(9))
        summaries, newer = fresh.segments(view)
        assert len(summaries) == len(newer.live.segments) == 9

    def test_raises_if_a_segment_is_missing(self, inner, log):
        free(inner, SegmentName(8))
        for each in (log, open_log(inner)):
            with pytest.raises(CorruptRecordError, match="missing"):
                each.segments(each.observe())


class TestProducersBehindTheStart:
    def test_are_known_though_a_listing_shows_the_marker_without_the_snapshot(
        self, store, inner, clock
    ):
        """Both appeared during the listing, the snapshot first: the log is listed again."""
        log = open_log(inner, clock=clock)
        log.append(numbered(0, 2), producer=ProducerAppend(7, 0, 0))
        log.snapshots.write()
        move_start(inner, 2, 2)
        free(inner, SegmentName(0))

        def miss_the_snapshot(path, call):
            return [file for file in call() if not file.name.endswith(".snapshot")]

        store.once("list", miss_the_snapshot)
        again = open_log(store, clock=clock).append(
            numbered(0, 2), producer=ProducerAppend(7, 0, 0)
        )
        assert again.base_offset == 0

    def test_are_not_taken_for_unknown_while_their_snapshot_cannot_be_read(
        self, store, inner, clock
    ):
        """Else deleted records could be appended again (found by the simulator, seed 88853)."""
        append_as = ProducerAppend(7, 0, 0)
        log = open_log(inner, clock=clock)
        first = log.append(numbered(0, 2), producer=append_as)
        append(log)
        log.snapshots.write()
        move_start(inner, 2, 2)
        free(inner, SegmentName(0))
        again = open_log(store, clock=clock)

        def fail(path, call):
            if path.endswith(".snapshot"):
                raise StorageError("it does not answer", path=path)
            return call()

        store.on("open_buffer", fail)
        with pytest.raises(StorageError, match="does not answer"):
            again.append(numbered(0, 2), producer=append_as)
        assert again.offset_for_time(0) is not None, "lookups do without"
        store.hooks.clear()
        assert again.append(numbered(0, 2), producer=append_as) == first
        assert len(values(log)) == 1

    def test_are_unknown_when_no_snapshot_covers_the_start(self, inner):
        log = open_log(inner)
        log.append(numbered(0, 2), producer=ProducerAppend(7, 0, 0))
        move_start(inner, 2, 2)
        free(inner, SegmentName(0))
        assert list(open_log(inner).producers().entries()) == []
        assert (
            open_log(inner).append(numbered(0, 1), producer=ProducerAppend(7, 0, 9)).base_offset
            == 2
        )
