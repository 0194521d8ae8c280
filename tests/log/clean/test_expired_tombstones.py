"""Tombstones whose time has passed are removed also from a log that gets no new records."""

from dataclasses import replace

import pytest

from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.expired_tombstones import remove_expired_tombstones
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_to_clean import first_dirty_offset, log_to_clean
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.log.verify.finding import LogFindingKind
from spark_log.log.verify.verifier import Verifier
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.clean.test_compacted_transactions import TransactionalLog
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    file_names,
    open_log,
    put_bytes,
    records_of,
)
from tests.record.samples import record_batch, row

RETENTION_MS = 86_400_000
SETTLED_MS = 61_001
BIG = b"x" * 600_000
SMALL_SEGMENTS = {"segment_bytes": 2**20}


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture
def store(clock, request):
    store = MemoryStore(f"expired-{request.node.name}", clock)
    yield store
    store.delete_directory(DIRECTORY)


@pytest.fixture
def log(store, clock):
    return open_compacted(store, clock)


def open_compacted(store, clock, **config):
    return open_log(store, clock=clock, cleanup_policy="compact", **SMALL_SEGMENTS, **config)


def append(log, *pairs):
    now_us = log.clock.time_us()
    rows = [row(value, key=key, timestamp=now_us) for key, value in pairs]
    return log.append(record_batch(rows))


def clean(log):
    """Clean as another process does, and return its report."""
    return PartitionCleaner(open_compacted(log.files.store, log.clock)).clean()


def pairs(log):
    """Return ``[(offset, key, is tombstone), …]`` as a reader gets them."""
    found = records_of(log.scan(log.observe().log_start_offset))
    return [(offset, row["key"], row["value"] is None) for offset, row in found]


def live(log):
    return [(each.name, each.file.modified_us) for each in log.observe().live.segments]


def problems(log):
    found = Verifier(log).findings()
    return [each for each in found if each.is_problem and each.kind != LogFindingKind.SPENT_SEGMENT]


@pytest.fixture
def compacted(log, clock):
    """A log of three clean segments, of which the one in the middle has a tombstone."""
    append(log, (b"a", b"0"), (b"b", BIG))
    append(log, (b"c", BIG), (b"a", None))
    append(log, (b"d", BIG))
    append(log, (b"z", b""))
    assert clean(log).compacted_records == 5
    assert pairs(log)[1:3] == [(2, b"c", False), (3, b"a", True)]
    return log


def test_a_log_at_rest_loses_its_tombstones_and_nothing_else_is_rewritten(compacted, clock):
    before = live(compacted)
    clock.advance_ms(RETENTION_MS - 1)
    assert clean(compacted).tombstones_removed == 0
    assert live(compacted) == before
    clock.advance_ms(2)
    report = clean(compacted)
    assert (report.tombstones_removed, report.compacted_records, report.kept_records) == (1, 2, 1)
    assert report.compacted_bytes < 2 * len(BIG)
    assert [key for _, key, _ in pairs(compacted)] == [b"b", b"c", b"d", b"z"]
    after = live(compacted)
    assert [now == then for now, then in zip(after, before, strict=True)] == [
        True,
        False,
        True,
        True,
    ]
    assert problems(compacted) == []


def test_what_was_clean_stays_clean_and_nothing_is_rewritten_again(compacted, clock, store):
    first_dirty = first_dirty_offset(compacted.observe())
    clock.advance_ms(RETENTION_MS + 1)
    clean(compacted)
    after = live(compacted)
    for _ in range(3):
        clock.advance_ms(RETENTION_MS)
        assert clean(compacted).compacted_bytes == 0
        assert first_dirty_offset(compacted.observe()) == first_dirty
    assert live(compacted) == after
    generations = [name for name in file_names(store) if name.endswith(".generation")]
    assert len(generations) == 1, "the pass has its own"


def test_a_plan_tells_what_a_cleaning_would_rewrite(compacted, clock):
    clock.advance_ms(RETENTION_MS + 1)
    planned = PartitionCleaner(open_compacted(compacted.files.store, clock)).plan()
    assert planned.compacted_bytes == clean(compacted).compacted_bytes > 0


def test_a_cleaning_that_finds_none_opens_no_segment(compacted, clock, store):
    clock.advance_ms(RETENTION_MS // 2)
    hooked = HookedStore(store, is_mapped=False)
    PartitionCleaner(open_compacted(hooked, clock)).clean()
    opened = [path.rpartition(".")[2] for path in hooked.called("open_buffer")]
    # The listing needs the end of the last segment, as that of any log.
    assert opened == ["log", "snapshot"]
    assert hooked.called("read") == hooked.called("read_tail") == []


def test_a_little_dirt_does_not_keep_them(compacted, clock):
    append(compacted, (b"y", b""))
    clock.advance_ms(RETENTION_MS + 1)
    found, _ = log_to_clean(compacted, compacted.observe(), now_us=clock.time_us())
    assert 0 < found.ratio < 0.5
    assert clean(compacted).tombstones_removed == 1
    found, _ = log_to_clean(compacted, compacted.observe(), now_us=clock.time_us())
    assert 0 < found.ratio < 0.5


def test_a_segment_waits_for_the_last_of_its_tombstones(store, log, clock):
    for key in (b"a", b"b"):
        append(log, (key, b""), (key, None))
        append(log, (b"z", b""))
        compact(log, now_us=clock.time_us())
        clock.advance_ms(RETENTION_MS // 2)
    clock.advance_ms(1)
    assert clean(log).compacted_bytes == 0, "that of a has passed, that of b has not"
    clock.advance_ms(RETENTION_MS // 2)
    assert clean(log).tombstones_removed == 2


def test_within_the_delay_after_a_compaction_they_stay(store, clock):
    """A reader may use a listing that shows what they deleted."""
    log = open_compacted(store, clock, delete_retention_ms=0)
    append(log, (b"a", b"0"), (b"a", None))
    append(log, (b"z", b""))
    compact(log, now_us=clock.time_us())
    clock.advance_ms(SETTLED_MS - 2)
    assert remove_expired_tombstones(log, now_us=clock.time_us()).segments_written == 0
    clock.advance_ms(2)
    assert remove_expired_tombstones(log, now_us=clock.time_us()).tombstones_removed == 1


def test_markers_whose_time_has_passed_go_too(store, clock):
    log = TransactionalLog(store, clock)
    log.send(1, b"a", epoch=0)
    log.commit(1)
    log.plain(b"a")
    log.send(1, b"b", epoch=1)
    log.commit(1, epoch=1)
    log.clean()  # removes the transaction's only batch
    log.clean()  # gives its marker a delete horizon
    assert 1 in log.offsets()
    clock.advance_ms(RETENTION_MS + 1)
    report = PartitionCleaner(open_log(store, clock=clock, cleanup_policy="compact")).clean()
    assert report.compacted_records - report.kept_records == 1
    assert 1 not in log.offsets()
    assert {3, 4} <= set(log.offsets()), "the transaction that has its record"
    log.verify()
    clock.advance_ms(RETENTION_MS)
    assert clean(log.log).compacted_bytes == 0


class TestInterrupted:
    def test_a_crash_between_two_files_loses_nothing_and_the_next_pass_ends_it(
        self, log, clock, store
    ):
        for key in (b"a", b"b"):
            append(log, (key + b"0", BIG), (key, b""), (key, None))
        append(log, (b"z", b""))
        clean(log)
        clock.advance_ms(RETENTION_MS + 1)
        hooked = HookedStore(store)

        def crash(path, call):
            if path.endswith(".log"):
                call()
                raise KeyboardInterrupt
            call()

        hooked.on("put_if_absent", crash)
        with pytest.raises(KeyboardInterrupt):
            PartitionCleaner(open_compacted(hooked, clock)).clean()
        assert [key for _, key, _ in pairs(log)] == [b"a0", b"b0", b"b", b"z"]
        assert clean(log).compacted_bytes == 0, "a listing may show what the first pass replaced"
        clock.advance_ms(SETTLED_MS)
        assert clean(log).tombstones_removed == 1
        assert [key for _, key, _ in pairs(log)] == [b"a0", b"b0", b"z"]
        assert problems(log) == []

    def test_another_that_takes_the_generation_goes_first(self, compacted, clock, store):
        clock.advance_ms(RETENTION_MS + 1)
        hooked = HookedStore(store)

        def overtake(path, call):
            if path.endswith(".generation"):
                hooked.hooks.clear()
                take_generation(compacted.files, compacted.observe())
            call()

        hooked.on("put_if_absent", overtake)
        log = open_compacted(hooked, clock)
        done = remove_expired_tombstones(log, now_us=clock.time_us())
        assert (done.is_complete, done.segments_written) == (False, 0)
        assert first_dirty_offset(compacted.observe()) == 0, "it may have listed before"

    def test_after_a_compaction_that_was_stopped_nothing_is_removed(self, compacted, clock):
        take_generation(compacted.files, compacted.observe())
        clock.advance_ms(RETENTION_MS + 1)
        done = remove_expired_tombstones(compacted, now_us=clock.time_us())
        assert done.segments_written == 0


class TestOfAnotherCompaction:
    """A clean segment may be a copy from another replica, under a generation of this one."""

    def test_a_tombstone_does_not_go_before_its_record(self, compacted, clock, store):
        leader = MemoryStore("expired-leader", clock)
        other = open_compacted(leader, clock)
        append(other, (b"b", b"0"), (b"x", BIG))
        append(other, (b"b", None), (b"y", BIG))
        append(other, (b"z", b""))
        clean(other)
        (name,) = [each for each, _ in live(other) if each.base_offset == 2]
        assert name in [each for each, _ in live(compacted)]
        put_bytes(store, leader.open_buffer(f"{DIRECTORY}/{name.file_name}"), name)
        leader.delete_directory(DIRECTORY)
        assert pairs(compacted)[:2] == [(1, b"b", False), (2, b"b", True)]
        clock.advance_ms(RETENTION_MS + 1)
        clean(compacted)
        assert [key for _, key, _ in pairs(compacted)] == [b"y", b"d", b"z"]

    def test_segments_of_an_earlier_version_are_compacted_as_a_whole(
        self, compacted, clock, monkeypatch
    ):
        monkeypatch.setattr("spark_log.log.segment.reader.SegmentReader.compaction_id", "")
        clock.advance_ms(RETENTION_MS + 1)
        report = clean(compacted)
        assert (report.tombstones_removed, report.compacted_records) == (1, 4)
        monkeypatch.undo()
        (compaction_id,) = {
            compacted.files.open(name).compaction_id
            for name, _ in live(compacted)
            if name.is_compacted
        }
        assert len(compaction_id) == 22

    def test_nothing_behind_the_high_watermark_is_rewritten(self, compacted, clock, monkeypatch):
        monkeypatch.setattr("spark_log.log.segment.reader.SegmentReader.compaction_id", "")
        clock.advance_ms(RETENTION_MS + 1)
        before = live(compacted)
        settings = {"now_us": clock.time_us(), "limit_offset": 4}
        assert remove_expired_tombstones(compacted, **settings).segments_written == 0
        assert live(compacted) == before
        monkeypatch.undo()
        assert remove_expired_tombstones(compacted, **settings).segments_written == 1
        assert [now == then for now, then in zip(live(compacted), before, strict=True)] == [
            True,
            False,
            True,
            True,
        ]


def without_horizons(store, log):
    """Write the newest snapshot as an earlier version does."""
    offset = max(log.observe().live.snapshots)
    path = f"{DIRECTORY}/{offset:020d}.snapshot"
    snapshot = Snapshot.from_buffer(store.open_buffer(path), topic_id=TOPIC_ID, partition=0)
    unknown = tuple(replace(each, delete_horizon_us=None) for each in snapshot.segments)
    data = replace(snapshot, segments=unknown).to_buffer(topic_id=TOPIC_ID, partition=0)
    store.put(path, data)


def test_with_a_snapshot_of_an_earlier_version_headers_are_read_once(compacted, clock, store):
    without_horizons(store, compacted)
    assert problems(open_compacted(store, clock)) == []
    opened = []
    for _ in range(2):
        hooked = HookedStore(store, is_mapped=False)
        PartitionCleaner(open_compacted(hooked, clock)).clean()
        opened.append(
            [path for path in hooked.called("open_buffer") if "-" in path.rpartition("/")[2]]
        )
    assert [len(paths) for paths in opened] == [3, 0]
    clock.advance_ms(RETENTION_MS + 1)
    assert clean(compacted).tombstones_removed == 1
