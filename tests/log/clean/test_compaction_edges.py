"""A compacted log for readers, lookups, producers, the verifier and mergers."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_log.errors import StorageError, UnknownOutcomeError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compacted_segment import group_segments
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_to_clean import log_to_clean
from spark_log.log.files.file_names import MAX_MERGE_GENERATION, SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.max_timestamp import offset_of_max_timestamp
from spark_log.log.producers.producer_entry import SequenceRun
from spark_log.log.rewrite.merger import merge
from spark_log.log.verify.finding import LogFindingKind
from spark_log.log.verify.verifier import Verifier
from spark_log.record.batch_header import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from spark_log.record.producer_append import ProducerAppend
from tests.log.support import (
    DIRECTORY,
    Part,
    done_but,
    failing,
    file_names,
    open_log,
    put_bytes,
    records_of,
    segment_bytes,
)
from tests.record.samples import record_batch, row

SETTLED_MS = 61_000


@pytest.fixture
def log(store, clock):
    return open_log(store, clock=clock, cleanup_policy="compact")


def append(log, *rows, producer=None):
    """Append records ``(key, value, timestamp)``, the timestamp in microseconds or left out."""
    now_us = log.clock.time_us()
    made = [row(value, key=key, timestamp=(*rest, now_us)[0]) for key, value, *rest in rows]
    return log.append(record_batch(made), producer=producer).base_offset


def compacted(log, **settings):
    return compact(log, now_us=log.clock.time_us(), **settings)


def keys(log, start=None):
    start = log.observe().log_start_offset if start is None else start
    return [(offset, row["key"]) for offset, row in records_of(log.scan(start))]


def compacted_names(store):
    found = [SegmentName.parse(name) for name in file_names(store)]
    return [name for name in found if name and name.is_compacted]


def problems(log):
    """Return the verifier's findings, except files that wait for the cleaner."""
    found = Verifier(log).findings()
    return [each for each in found if each.is_problem and each.kind != LogFindingKind.SPENT_SEGMENT]


class TestAnEmptySegment:
    """A segment without records, between two others."""

    @pytest.fixture
    def log(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        big = b"x" * (2**20)
        append(log, (b"a", big, 10))
        append(log, (b"b", big, 99), (b"c", big, 30))
        append(log, (b"d", big, 40))
        append(log, (b"b", b"", 50), (b"c", b"", 60))
        append(log, (b"z", b"", 55))
        assert compacted(log).segments_written == 4
        return log

    def test_scans_and_fetches_skip_an_empty_segment(self, log):
        expected = [(0, b"a"), (3, b"d"), (4, b"b"), (5, b"c"), (6, b"z")]
        assert keys(log) == expected
        assert keys(log, 1) == keys(log, 2) == expected[1:]
        position, seen = 0, []
        while position < log.observe().log_end_offset:
            batches, following = log.read(position, max_bytes=1)
            assert following > position, "a reader that stands still never ends"
            seen += [offset for offset, _ in records_of(batches)]
            position = following
        assert seen == [0, 3, 4, 5, 6]

    def test_a_fetch_that_begins_in_an_empty_segment_skips_it(self, log):
        assert records_of(log.read(1, max_bytes=1)[0])[0][0] == 3

    def test_an_empty_segment_has_no_timestamp(self, log):
        assert log.offset_for_time(20) == (3, 40)
        assert log.offset_for_time(45) == (4, 50)
        assert log.offset_for_time(61) is None
        assert offset_of_max_timestamp(log, log.observe()) == (5, 60)
        summaries, _ = log.segments(log.observe())
        assert [each.max_timestamp_us for each in summaries] == [10, NO_TIMESTAMP, 40, 60, 55]

    def test_an_empty_segment_and_its_snapshot_are_sound(self, log):
        log.snapshots.write()
        assert problems(log) == []


def test_an_emptied_batch_is_not_later_than_records_from_before_1970(log):
    append(log, (b"a", b"", -50))
    append(log, (b"b", b"", -30), producer=ProducerAppend(7, 0, 0))
    append(log, (b"b", b"", -40), (b"z", b"", -60))
    append(log, (b"y", b"", -70))
    compacted(log)
    assert offset_of_max_timestamp(log, log.observe()) == (2, -40)
    assert log.offset_for_time(-45) == (2, -40)
    assert log.offset_for_time(-5) is None
    log.snapshots.write()
    assert problems(log) == []


class TestKilledBetweenTwoFiles:
    @pytest.fixture
    def log(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        big = b"x" * (2**19)
        for key in (b"a", b"b", b"a", b"c", b"b", b"d", b"a", b"z"):
            append(log, (key, big, 10))
        return log

    def test_no_record_is_lost_and_the_next_compaction_continues(self, store, log, clock):
        before = keys(log)
        self.kill_after_first(store, log)
        assert len(compacted_names(store)) == 1
        assert set(keys(log)) < set(before)
        assert dict(map(reversed, keys(log))) == dict(map(reversed, before))
        assert problems(log) == []
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert 0 < found.first_dirty_offset < found.end_offset
        clock.advance_ms(SETTLED_MS)
        assert compacted(log).is_complete
        assert keys(log) == [(3, b"c"), (4, b"b"), (5, b"d"), (6, b"a"), (7, b"z")]

    def kill_after_first(self, store, log):
        def kill(path, call):
            if path.endswith(".log") and compacted_names(store):
                raise KeyboardInterrupt
            return call()

        store.on("put_if_absent", kill)
        with pytest.raises(KeyboardInterrupt):
            compacted(log)
        store.hooks.clear()

    def test_a_cut_batch_has_the_timestamps_of_its_remaining_records(self, store, log):
        """A merge that finished meanwhile extends past the end of the compaction."""
        append(log, (b"y", b"", 20))
        view = log.observe()
        self.kill_after_first(store, log)
        cut = compacted_names(store)[0].last_offset + 1
        assert merge(log.files, view, 0, len(view.live.segments) - 1).name.generation == 1
        live = log.observe().live.segments
        assert [each.start_offset for each in live] == [0, cut]
        assert offset_of_max_timestamp(log, log.observe()) == (8, 20)
        assert dict(map(reversed, keys(log)))[b"a"] == 6


def test_a_timestamp_before_the_cut_of_a_segment_is_ignored(store, clock):
    log = open_log(store, clock=clock, cleanup_policy="compact")
    append(log, (b"a", b"", 90))
    append(log, (b"a", b"", 10))
    append(log, (b"b", b"", 20))
    append(log, (b"z", b"", 5))
    view = log.observe()
    short = replace(
        view, live=replace(view.live, segments=view.live.segments[:3]), log_end_offset=3
    )
    merge(log.files, view, 0, 2)
    log.observe = lambda: short  # like an earlier listing: only two can be compacted
    compacted(log)
    del log.observe
    live = log.observe().live.segments
    assert [each.start_offset for each in live] == [0, 2, 3], "the merge is cut"
    assert offset_of_max_timestamp(log, log.observe()) == (2, 20)
    assert keys(log) == [(1, b"a"), (2, b"b"), (3, b"z")]


class TestFilesOfOneCompaction:
    def test_a_compaction_writes_as_many_files_as_its_sources_would_fill(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        for number in range(7):
            append(log, (b"%d" % number, b"x" * (2**20 // 3 - 4000)))
        assert compacted(log).segments_written == 2
        sizes = [name.last_offset - name.base_offset + 1 for name in compacted_names(store)]
        assert sizes == [3, 3]

    def test_a_compacted_file_has_no_more_offsets_than_a_header_can_store(self):
        class Reader:
            def __init__(self, end_offset):
                self.end_offset, self.size_bytes = end_offset, 1

        readers: list[tuple[int, Any]]
        readers = [(0, Reader(10)), (10, Reader(2**31 - 1)), (2**31 - 1, Reader(2**31))]
        assert [len(group) for group in group_segments(readers, 2**30)] == [2, 1]

    @pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
    def test_compacted_files_are_compressed_like_their_sources(self, store, clock, codec):
        log = open_log(
            store, clock=clock, cleanup_policy="compact", merge_compression_type="producer"
        )
        log.append(record_batch([row(b"x" * 5000, key=b"a")]), compression=codec)
        append(log, (b"z", b""))
        compacted(log)
        assert log.files.open(compacted_names(store)[0]).compression(0) == codec

    def test_compacted_files_have_the_topics_compression(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", compression_type="zstd")
        append(log, (b"a", b"x" * 5000))
        append(log, (b"z", b""))
        compacted(log)
        assert log.files.open(compacted_names(store)[0]).compression(0) == "zstd"

    def test_files_whose_answer_was_lost_are_found_by_the_next_compaction(self, store, log, clock):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"z", b""))
        store.on(
            "put_if_absent",
            lambda path, call: (
                done_but(UnknownOutcomeError("lost"))(path, call)
                if path.endswith(".log")
                else call()
            ),
        )
        with pytest.raises(UnknownOutcomeError):
            compacted(log)
        store.hooks.clear()
        assert keys(log) == [(1, b"a"), (2, b"z")]

    def test_a_file_delivered_twice_is_recognised(self, store, log):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"z", b""))

        def twice(path, call):
            if path.endswith(".log"):
                call()
            call()

        store.on("put_if_absent", twice)
        assert compacted(log).is_complete
        assert keys(log) == [(1, b"a"), (2, b"z")]

    def test_without_a_generation_no_file_is_written(self, store, log):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"z", b""))
        store.once("put_if_absent", failing(StorageError("full")))
        with pytest.raises(StorageError):
            compacted(log)
        assert compacted_names(store) == []


class TestTwoThatLookedAtTheSame:
    def test_only_one_compaction_gets_the_next_generation(self, log):
        append(log, (b"a", b"0"))
        view = log.observe()
        assert take_generation(log.files, view) == MAX_MERGE_GENERATION + 1
        assert take_generation(log.files, view) is None
        assert take_generation(log.files, log.observe()) == MAX_MERGE_GENERATION + 2

    def test_the_other_compaction_gives_up(self, store, log):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"z", b""))
        done = []

        def first(path, call):
            store.hooks.clear()
            done.append(compacted(log))
            return call()

        store.on("put_if_absent", first)
        assert not compacted(log).is_complete
        assert done[0].is_complete
        assert len(compacted_names(store)) == 1


class TestProducers:
    def test_a_retry_of_an_append_of_several_batches_is_recognised(self, store, log, clock):
        records = [record_batch([row(b"", key=key)]) for key in (b"a", b"b", b"c")]
        producer = ProducerAppend(7, 0, 5)
        assert log.append(records, producer=producer).base_offset == 0
        append(log, (b"a", b""), (b"b", b""), (b"c", b""))
        append(log, (b"z", b""))
        compacted(log)
        self.delete_snapshots(store)
        again = open_log(store, clock=clock, cleanup_policy="compact")
        info = again.append(records, producer=producer)
        assert (info.base_offset, info.last_offset) == (0, 2)
        assert again.observe().log_end_offset == 7

    @pytest.mark.parametrize("left", [(), (0,), (0, 1), (1,), (0, 2)])
    def test_a_retry_is_recognised_if_some_records_are_left(self, store, log, clock, left):
        records = [record_batch([row(b"", key=b"%d" % key)]) for key in range(4)]
        append(log, (b"x", b""), producer=ProducerAppend(7, 0, 2**31 - 1))
        append(log, (b"y", b""))
        log.append(records, producer=ProducerAppend(7, 0, 0))
        append(log, *((b"%d" % key, b"") for key in range(4) if key not in left), (b"w", b""))
        append(log, (b"z", b""))
        compacted(log)
        self.delete_snapshots(store)
        again = open_log(store, clock=clock, cleanup_policy="compact")
        assert again.append(records, producer=ProducerAppend(7, 0, 0)).base_offset == 2

    def test_runs_joined_by_a_wider_merge_are_one_run_in_a_sound_snapshot(self, store, log, clock):
        """A compaction kept the runs apart, and a concurrent merge joined them."""
        for sequence, key in enumerate((b"a", b"b", b"b", b"c")):
            append(log, (key, b""), producer=ProducerAppend(7, 0, sequence))
        append(log, (b"d", b""), producer=ProducerAppend(7, 0, 4))
        view = log.observe()
        compacted(log)
        append(log, (b"z", b""))
        assert merge(log.files, view, 0, 4).name == SegmentName(0, 4, 1)
        assert [each.start_offset for each in log.observe().live.segments] == [0, 4, 5]
        again = open_log(store, clock=clock, cleanup_policy="compact")
        again.snapshots.write()
        ((_, entry),) = again.producers().entries()
        assert entry.runs == (SequenceRun(0, 0, 5),)
        assert problems(log) == []

    def test_the_placeholder_of_an_empty_segment_has_no_producer(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        append(log, (b"a", b"x" * 2**20), producer=ProducerAppend(7, 0, 0))
        append(log, (b"a", b"x" * 2**20))
        append(log, (b"z", b""))
        clock.advance_ms(2 * log.config.producer_id_expiration_ms)
        for _ in range(2):  # the first one gives the storage's time
            log.snapshots.write()
        again = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        compacted(again)
        name, _ = compacted_names(store)
        headers = [header for _, found in log.files.open(name).all_headers() for header in found]
        assert [header.producer_id for header in headers] == [NO_PRODUCER_ID]
        assert keys(log) == [(1, b"a"), (2, b"z")]

    def test_a_fenced_epoch_stays_fenced(self, store, log, clock):
        append(log, (b"a", b""), producer=ProducerAppend(7, 0, 0))
        append(log, (b"a", b""), producer=ProducerAppend(7, 1, 0))
        append(log, (b"a", b""))
        append(log, (b"z", b""))
        compacted(log)
        self.delete_snapshots(store)
        again = open_log(store, clock=clock, cleanup_policy="compact")
        ((producer_id, entry),) = again.producers().entries()
        assert (producer_id, entry.epoch, entry.runs[-1].next_sequence) == (7, 1, 1)

    @staticmethod
    def delete_snapshots(store):
        for name in file_names(store):
            if name.endswith(".snapshot"):
                store.delete(f"{DIRECTORY}/{name}")


def test_control_batches_stay_and_replace_nothing(store, log):
    parts = [
        Part([row(b"0", key=b"a")]),
        Part([row(b"marker", key=b"a")], attributes=BatchHeader.CONTROL_BIT),
        Part([row(b"2", key=b"b")]),
    ]
    put_bytes(store, segment_bytes([parts]))
    append(log, (b"b", b""))
    append(log, (b"z", b""))
    assert compacted(log).records_written == 3
    assert keys(log) == [(0, b"a"), (3, b"b"), (4, b"z")]
    reader = log.files.open(compacted_names(store)[0])
    batches = list(reader.read(0))
    assert [batch.is_control for batch in batches] == [False, True, False]


class TestTheLogsStart:
    def test_a_log_start_inside_a_batch_keeps_the_records_after_it(self, store, log, clock):
        append(log, (b"a", b""), (b"b", b""), (b"c", b""), (b"a", b""))
        append(log, (b"z", b""))
        move_log_start(log, 2)
        compacted(log)
        assert keys(log) == [(2, b"c"), (3, b"a"), (4, b"z")]
        clock.advance_ms(SETTLED_MS)
        append(log, (b"c", b""))
        append(log, (b"y", b""))
        move_log_start(log, 3)
        compacted(log)
        assert keys(log) == [(3, b"a"), (4, b"z"), (5, b"c"), (6, b"y")]
        assert problems(log) == []

    def test_a_log_start_in_a_batch_of_tombstones_keeps_their_retention(self, log, clock):
        append(log, (b"a", None), (b"b", None), (b"c", b""))
        append(log, (b"z", b""))
        compacted(log)
        move_log_start(log, 1)
        clock.advance_ms(SETTLED_MS)
        append(log, (b"y", b""))
        assert compacted(log).tombstones_removed == 0
        assert keys(log)[0] == (1, b"b")
        clock.advance_ms(log.config.delete_retention_ms - SETTLED_MS)
        append(log, (b"x", b""))
        assert compacted(log).tombstones_removed == 1

    def test_the_next_compaction_begins_at_the_log_start(self, store, log, clock):
        """Segments that a compaction wrote before the log start are freed as well."""
        append(log, (b"a", b""), (b"b", b""), (b"c", b""))
        append(log, (b"z", b""))
        compacted(log)
        clock.advance_ms(SETTLED_MS)
        move_log_start(log, 1)
        append(log, (b"y", b""))
        compacted(log)
        assert [name.base_offset for name in compacted_names(store)] == [0, 1]
        clock.advance_ms(2 * SETTLED_MS)
        PartitionCleaner(log).clean()
        assert [name.base_offset for name in compacted_names(store)] == [1]
        assert keys(log) == [(1, b"b"), (2, b"c"), (3, b"z"), (4, b"y")]

    def test_a_log_start_after_the_last_record_of_a_segment_leaves_it_empty(self, store, clock):
        """A compacted segment has records and batches only before the log start."""
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        big = b"x" * 2**20
        append(log, (b"a", big, 10))
        append(log, (b"b", b"", 10))
        append(log, (b"c", big, 10))
        append(log, (b"b", b"", 10))
        append(log, (b"z", b"", 10))
        merge(log.files, log.observe(), 0, 1)
        compacted(log)
        assert [offset for offset, _ in keys(log)] == [0, 2, 3, 4]
        clock.advance_ms(SETTLED_MS)
        move_log_start(log, 1)
        append(log, (b"y", b"", 10))
        assert compacted(log).is_complete
        assert keys(log) == [(2, b"c"), (3, b"b"), (4, b"z"), (5, b"y")]
        assert problems(log) == []

    def test_a_log_start_that_moves_during_a_compaction_is_kept(self, store, log):
        append(log, (b"a", b""), (b"b", b""), (b"c", b""))
        append(log, (b"b", b""))
        append(log, (b"z", b""))

        def meanwhile(_):
            move_log_start(open_log(store, clock=log.clock), 2)

        compact(
            log,
            now_us=log.clock.time_us(),
            on_progress=meanwhile,
        )
        assert log.observe().log_start_offset == 2
        assert keys(log) == [(2, b"c"), (3, b"b"), (4, b"z")]


class TestAPolicyThatChanges:
    def test_a_policy_changed_to_delete_keeps_compacted_segments(self, store, log, clock):
        for number in range(6):
            append(log, (b"a", b"%d" % number))
        compacted(log)
        plain = open_log(store, clock=clock, retention_ms=-1)
        for number in range(20):
            append(plain, (None, b"%d" % number))
        report = PartitionCleaner(plain).clean()
        assert report.merged_segments > 8
        found = [segment.name for segment in plain.observe().live.segments]
        assert [name.is_compacted for name in found][:2] == [True, False]
        assert len(keys(plain)) == 22

    def test_a_policy_changed_to_compact_compacts_merged_segments(self, store, clock):
        plain = open_log(store, clock=clock, retention_ms=-1)
        for number in range(20):
            append(plain, (b"%d" % (number % 3), b""), (None, b""))
        PartitionCleaner(plain).clean()
        log = open_log(store, clock=clock, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        append(log, (b"z", b""))
        PartitionCleaner(log).clean()
        assert keys(log) == [(34, b"2"), (36, b"0"), (38, b"1"), (40, b"z")]

    def test_a_merge_refuses_compacted_segments(self, store, log):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"a", b"2"))
        append(log, (b"z", b""))
        compacted(log)
        with pytest.raises(StorageError, match="rewritten"):
            merge(log.files, log.observe(), 0, 1)


def test_generations_below_an_old_one_are_removed(store, log, clock):
    append(log, (b"a", b"0"))
    for _ in range(3):
        take_generation(log.files, log.observe())
    assert generation_names(store) == 3
    PartitionCleaner(log).clean()
    assert generation_names(store) == 3, "a listing may show the lower one alone"
    clock.advance_ms(SETTLED_MS + 1)
    PartitionCleaner(log).clean()
    assert generation_names(store) == 1
    assert take_generation(log.files, log.observe()) == MAX_MERGE_GENERATION + 4


def generation_names(store):
    return sum(name.endswith(".generation") for name in file_names(store))


def test_a_table_of_updates_is_small_and_sound(store, log, clock):
    """Rounds of appends and compactions: the verifier finds no problem."""
    for round_ in range(4):
        for number in range(12):
            value = None if number % 5 == round_ else b"%d" % round_
            append(log, (b"%d" % number, value), producer=ProducerAppend(number, 0, round_))
        compacted(log)
        log.snapshots.write()
        clock.advance_ms(SETTLED_MS)
        assert problems(log) == []
    table = {row["key"]: row["value"] for _, row in records_of(log.scan(0))}
    assert sorted(key for key, value in table.items() if value is None) == [b"3", b"8"]
    assert pa.array(table.values()).null_count == 2
