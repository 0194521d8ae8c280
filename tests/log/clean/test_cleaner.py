"""Cleaning a partition: few files are left, no record is lost, at any interruption."""

import pytest

from spark_log.errors import CorruptRecordError, LogTruncatedError, StorageError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.file_deletion import find_deletable
from spark_log.record.producer_append import ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from spark_log.util.throttle import Throttle
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    failing,
    file_names,
    free,
    open_log,
    segment_reader,
    values,
)
from tests.record.samples import numbered

DAY_MS = 86_400_000
FOR_EVER = {"merge_tail_segments": 0, "retention_ms": -1}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def inner(clock, request):
    """A store whose files have the time of the clock."""
    store = MemoryStore(f"cleaner-{request.node.name}", clock)
    yield store
    store.delete_directory(DIRECTORY)


@pytest.fixture
def log(store, clock):
    """Twenty segments of two records, by one producer."""
    log = open_log(store, clock=clock, **FOR_EVER)
    for sequence in range(0, 40, 2):
        log.append(numbered(sequence, 2), producer=ProducerAppend(7, 0, sequence))
    return log


def clean(log, **settings):
    return PartitionCleaner(log, **settings).clean()


def live(log):
    return [segment.name for segment in log.observe().live.segments]


def test_a_replica_that_was_emptied_since_it_was_looked_at_is_told(store, clock):
    emptied = open_log(store, clock=clock, **FOR_EVER)
    with pytest.raises(LogTruncatedError) as error:
        clean(emptied, start_offset=4)
    assert error.value.witnessed_offset == 4
    assert not [name for name in file_names(store) if name.endswith(".start")]


class TestMerging:
    def test_without_a_policy_segments_are_merged_and_every_record_stays(self, store, clock):
        log = open_log(store, clock=clock, merge_tail_segments=0, retention_ms=1, cleanup_policy=())
        for sequence in range(0, 40, 2):
            log.append(numbered(sequence, 2), producer=ProducerAppend(7, 0, sequence))
        clock.advance_ms(DAY_MS)
        assert clean(log).log_start_offset == 0
        assert live(log) == [SegmentName(0, 39, 1)]

    def test_merging_leaves_few_segments_and_every_record(self, log, inner):
        before = values(log)
        report = clean(log)
        assert live(log) == [SegmentName(0, 39, 1)]
        assert (report.merged_segments, report.merged_into, report.segments) == (20, 1, 1)
        assert report.log_end_offset == 40
        assert values(open_log(inner)) == before

    def test_merging_writes_a_snapshot(self, log, inner):
        clean(log)
        store = HookedStore(inner)
        summaries, _ = (fresh := open_log(store)).segments(fresh.observe())
        assert [summary.record_count for summary in summaries] == [40]
        assert summaries[0].min_timestamp_us is not None
        assert len(store.calls) <= 5

    def test_merging_continues_level_by_level(self, log):
        clean(log)
        for day in range(1, 20):
            for _ in range(9):
                log.append(numbered(day, 1))
            clean(log)
        assert len(live(log)) <= 3 * 7
        assert max(name.generation for name in live(log)) == 2

    def test_a_second_cleaning_has_nothing_to_merge(self, log, store):
        clean(log)
        store.calls.clear()
        report = clean(log)
        assert (report.merged_segments, report.deleted_files) == (0, 0)
        assert not any(path.endswith(".log") for path in store.called("put_if_absent"))

    @pytest.mark.parametrize(
        ("settings", "codec"),
        [
            ({}, "none"),
            ({"merge_compression_type": "zstd"}, "zstd"),
            ({"compression_type": "lz4"}, "lz4"),
            ({"compression_type": "lz4", "merge_compression_type": "zstd"}, "lz4"),
        ],
    )
    def test_merged_segments_have_the_topics_compression(
        self, log, store, inner, settings, codec, clock
    ):
        before = values(log)
        clean(open_log(store, clock=clock, **FOR_EVER, **settings))
        assert segment_reader(inner, SegmentName(0, 39, 1)).compression(0) == codec
        assert values(open_log(inner)) == before

    def test_merged_segments_keep_the_compression_of_most_bytes(self, inner, clock):
        log = open_log(inner, clock=clock, **FOR_EVER)
        for number in range(8):
            log.append(numbered(0, 500 if number else 1), compression="zstd" if number else "none")
        clean(log)
        assert segment_reader(inner, live(log)[0]).compression(0) == "zstd"

    def test_a_cleaner_lists_again_after_another_has_merged(self, log, store, inner, clock):
        before = values(log)

        def another(path, call):
            clean(open_log(inner, clock=clock, **FOR_EVER))
            free(inner, *map(SegmentName, range(0, 40, 2)))
            return call()

        store.once("stage", another)
        clean(log)
        assert live(log) == [SegmentName(0, 39, 1)]
        assert values(open_log(inner)) == before

    def test_merging_is_throttled(self, log, clock, monkeypatch):
        slept = []

        def sleep_ms(duration_ms):
            slept.append(duration_ms)
            clock.advance_ms(duration_ms)

        monkeypatch.setattr(clock, "sleep_ms", sleep_ms)
        report = clean(log, on_progress=Throttle(10_000, clock))
        moved = report.merged_bytes + report.size_bytes
        assert sum(slept) == pytest.approx(moved / 10, rel=0.2)


class TestDeleting:
    def test_spent_files_are_deleted_after_the_delay(self, log, inner, clock):
        before = values(log)
        assert clean(log).waiting_segments == 20
        clock.advance_ms(60_500)
        assert clean(log).deleted_files == 0
        clock.advance_ms(1_000)
        report = clean(log)
        assert (report.deleted_files, report.waiting_segments) == (20, 0)
        assert [name for name in file_names(inner) if name.endswith(".log")] == [
            SegmentName(0, 39, 1).file_name
        ]
        assert values(open_log(inner)) == before

    def test_segments_before_the_start_are_deleted(self, log, inner, clock):
        move_log_start(log, 21)
        clock.advance_ms(61_001)
        clean(log)
        assert min(name.base_offset for name in live(log)) == 20
        names = filter(None, map(SegmentName.parse, file_names(inner)))
        assert min(name.base_offset for name in names) == 20
        assert [offset for offset, _ in values(open_log(inner))] == list(range(21, 40))

    def test_start_markers_below_the_highest_are_deleted(self, log, inner, clock):
        for offset in (3, 7, 9):
            move_log_start(log, offset)
        clock.advance_ms(61_001)
        move_log_start(log, 12)
        clean(log)
        markers = [marker for name in file_names(inner) if (marker := StartMarker.parse(name))]
        assert [marker.log_start_offset for marker in markers] == [9, 12], "a listing shows one"

    def test_void_files_orphans_and_old_snapshots_are_deleted(self, log, inner, clock):
        clean(log)
        inner.put(f"{DIRECTORY}/{SegmentName(2).file_name}", b"delivered late")
        inner.put(f"{DIRECTORY}/{SegmentName(3).index}", b"its segment is gone")
        for offset in (4, 6, 8):
            inner.put(f"{DIRECTORY}/{offset:020d}.snapshot", b"old")
        inner.put(f"{DIRECTORY}/.left.tmp", b"by a writer that died")
        clock.advance_ms(3_600_001)
        clean(log)
        assert file_names(inner) == [
            SegmentName(0, 39, 1).file_name,
            "00000000000000000040.snapshot",
        ] or [name for name in file_names(inner) if "snapshot" not in name] == [
            SegmentName(0, 39, 1).file_name
        ]
        assert not list(inner.list_hidden(DIRECTORY))
        assert sum("snapshot" in name for name in file_names(inner)) <= 2

    def test_files_of_running_writers_are_kept(self, log, inner, clock):
        inner.put(f"{DIRECTORY}/.busy.tmp", b"")
        inner.put(f"{DIRECTORY}/{SegmentName(1, 2, 9).index}", b"its segment comes now")
        clock.advance_ms(59_000)
        clean(log)
        assert len(list(inner.list_hidden(DIRECTORY))) == 1
        assert SegmentName(1, 2, 9).index in file_names(inner)

    def test_indexes_are_deleted_before_their_segment(self, store, inner, clock):
        log = open_log(store, clock=clock, index_interval_bytes=0, **FOR_EVER)
        for _ in range(8):
            log.append([numbered(0, 1), numbered(1, 1)])
        clean(log)
        clock.advance_ms(61_001)
        store.calls.clear()
        clean(log)
        kinds = [path.rpartition(".")[2] for path in store.called("delete")]
        assert kinds.index("log") > max(at for at, kind in enumerate(kinds) if "index" in kind)

    def test_a_killed_deletion_is_finished_by_the_next_cleaner(self, log, store, inner, clock):
        before = values(log)
        clean(log)
        clock.advance_ms(61_001)
        for survives in range(1, 5):
            calls = iter(range(survives))

            def die(path, call, calls=calls):
                if path.endswith(".log") and next(calls, None) is None:
                    raise KeyboardInterrupt
                return call()

            store.on("delete", die)
            with pytest.raises(KeyboardInterrupt):
                clean(log)
            assert values(open_log(inner)) == before
        store.hooks.clear()
        assert clean(log).deleted_files == 20 - (1 + 2 + 3 + 4)
        assert find_deletable(log.files, 60_000).all == ()
        assert values(open_log(inner)) == before


class TestListings:
    """The steps that only look share a listing; what deletes has one of its own."""

    def test_a_cleaning_that_finds_nothing_to_do_lists_once(self, log, store, clock):
        clean(log)
        clock.advance_ms(61_001)
        clean(log)
        store.calls.clear()
        clean(log)
        assert len(store.called("list")) == 1
        assert not store.called("read_tail")

    def test_a_listing_that_is_given_is_not_made_again(self, log, store):
        listing = log.files.observe_files()
        store.calls.clear()
        report = PartitionCleaner(log, fan_in=100, listing=listing).clean()
        assert not store.called("list")
        assert (report.segments, report.log_end_offset) == (20, 40)

    def test_a_listing_is_made_again_when_it_is_too_old(self, log, inner, clock):
        listing = log.files.observe_files()
        open_log(inner, clock=clock, **FOR_EVER).append(numbered(40, 2))
        clock.advance_ms(29_999)
        assert PartitionCleaner(log, fan_in=100, listing=listing).clean().log_end_offset == 40
        clock.advance_ms(1)
        assert PartitionCleaner(log, fan_in=100, listing=listing).clean().log_end_offset == 42

    def test_a_listing_of_before_does_not_decide_what_is_deleted(self, log, inner, clock):
        inner.put(f"{DIRECTORY}/.left.tmp", b"by a writer that died")
        inner.put(f"{DIRECTORY}/.busy.tmp", b"")
        clock.advance_ms(3_600_001)
        listing = log.files.observe_files()
        inner.put(f"{DIRECTORY}/.busy.tmp", b"written again")
        PartitionCleaner(log, listing=listing).clean()
        assert [file.name for file in inner.list_hidden(DIRECTORY)] == [".busy.tmp"]


class TestDamage:
    def test_damage_does_not_stop_the_other_steps(self, log, inner, clock):
        move_log_start(log, 10)
        path = f"{DIRECTORY}/{SegmentName(20).file_name}"
        data = bytearray(inner.open_buffer(path).to_pybytes())
        data[data.index(b"record:20")] ^= 1
        inner.put(path, bytes(data))
        clock.advance_ms(61_001)
        with pytest.raises(CorruptRecordError):
            clean(log)
        assert SegmentName(0).file_name not in file_names(inner)
        assert SegmentName(20).file_name in file_names(inner)

    def test_a_storage_that_does_not_answer_is_an_error(self, log, store):
        store.on("list", failing(StorageError("no")))
        with pytest.raises(StorageError):
            clean(log)


class TestPlan:
    def test_a_plan_reports_the_work_and_does_nothing(self, log, store, inner, clock):
        move_log_start(log, 20)
        clock.advance_ms(61_001)
        before = file_names(inner)
        store.calls.clear()
        plan = PartitionCleaner(log).plan()
        assert (plan.merged_segments, plan.merged_into, plan.segments) == (10, 1, 10)
        assert plan.deleted_files == 10
        assert plan.dirt_bytes > 0
        assert file_names(inner) == before
        assert not store.called("put_if_absent")
