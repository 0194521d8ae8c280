"""Cleaning by a machine whose date is days wrong: it deletes nothing, or only old records."""

import pickle

import pytest

from spark_log.errors import ClockSkewError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from spark_log.log.verify.verifier import Verifier
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, ShiftedClock, file_names, open_log, values
from tests.record.samples import record_batch, row

DAY_MS = 86_400_000
DELAY_MS = 61_001
NO_LIMIT = 2**62

pytestmark = pytest.mark.parametrize("days", [8, 2, -2, -30])


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000_000)


def opened(store, clock, days, **settings):
    """The log of a machine whose clock is some days ahead."""
    return open_log(store, clock=ShiftedClock(clock, days=days), merge_tail_segments=0, **settings)


def fill(store, clock, *keys, **settings):
    """Append one segment per key, a day apart."""
    log = open_log(store, clock=clock, merge_tail_segments=0, **settings)
    for key in keys:
        log.append(record_batch([row(b"value", key=key, timestamp=clock.time_us())]))
        clock.advance_ms(DAY_MS)
    return log


def cleaner(store, clock, days, *, limit_ms=NO_LIMIT, **settings):
    log = opened(store, clock, days, **settings)
    return PartitionCleaner(log, max_clock_skew_ms=limit_ms)


class TestRefusal:
    def test_nothing_is_done(self, memory_store, clock, days):
        fill(memory_store, clock, *[b"a"] * 20, retention_ms=5 * DAY_MS)
        before = file_names(memory_store)
        refused = cleaner(memory_store, clock, days, limit_ms=600_000, retention_ms=5 * DAY_MS)
        with pytest.raises(ClockSkewError, match=r"max\.clock\.skew\.ms") as caught:
            refused.clean()
        assert file_names(memory_store) == before
        assert list(memory_store.list_hidden(DIRECTORY)) == []
        again = pickle.loads(pickle.dumps(caught.value))
        assert again.clock_us - again.storage_us == days * DAY_MS * 1000

    def test_a_dry_run_reports_it_too(self, memory_store, clock, days):
        fill(memory_store, clock, b"a")
        with pytest.raises(ClockSkewError):
            cleaner(memory_store, clock, days, limit_ms=600_000).plan()

    def test_a_repair_removes_nothing(self, memory_store, clock, days):
        log = fill(memory_store, clock, b"a", b"b")
        merge(log.files, log.observe(), 0, 1, sync=False)
        clock.advance_ms(DELAY_MS)
        before = file_names(memory_store)
        verifier = Verifier(opened(memory_store, clock, days), repair=True)
        with pytest.raises(ClockSkewError):
            list(verifier.findings())
        assert file_names(memory_store) == before

    def test_ends_when_the_clock_is_set(self, memory_store, clock, days):
        wrong = ShiftedClock(clock, days=days)
        fill(memory_store, clock, *[b"a"] * 10, retention_ms=5 * DAY_MS)
        log = open_log(memory_store, clock=wrong, retention_ms=5 * DAY_MS)
        with pytest.raises(ClockSkewError):
            PartitionCleaner(log).clean()
        wrong.shift(days=0)
        assert PartitionCleaner(log).clean().log_start_offset == 5


class TestStoragesTime:
    """If the limit is raised, age is measured by the storage's clock."""

    def test_decides_retention(self, memory_store, clock, days):
        fill(memory_store, clock, *[b"a"] * 10, retention_ms=5 * DAY_MS)
        planned = cleaner(memory_store, clock, days, retention_ms=5 * DAY_MS).plan()
        done = cleaner(memory_store, clock, days, retention_ms=5 * DAY_MS).clean()
        assert [each.log_start_offset for each in (planned, done)] == [5, 5]

    def test_decides_deletion_of_covered_segments(self, memory_store, clock, days):
        log = fill(memory_store, clock, b"a", b"b", retention_ms=-1)
        merge(log.files, log.observe(), 0, 1, sync=False)
        assert cleaner(memory_store, clock, days, retention_ms=-1).clean().deleted_files == 0
        clock.advance_ms(DELAY_MS)
        assert cleaner(memory_store, clock, days, retention_ms=-1).clean().deleted_files == 2

    def test_decides_removal_of_tombstones(self, memory_store, clock, days):
        settings = {"cleanup_policy": "compact", "delete_retention_ms": DAY_MS}
        log = fill(memory_store, clock, b"a", **settings)
        log.append(record_batch([row(None, key=b"a", timestamp=clock.time_us())]))
        log.append(record_batch([row(b"value", key=b"z", timestamp=clock.time_us())]))

        def compact():
            always = {**settings, "min_cleanable_dirty_ratio": 0}
            cleaner(memory_store, clock, days, **always).clean()
            return [offset for offset, _ in values(open_log(memory_store))]

        assert compact() == [1, 2]
        clock.advance_ms(DAY_MS // 2)
        log.append(record_batch([row(b"value", key=b"y", timestamp=clock.time_us())]))
        assert compact() == [1, 2, 3]
        clock.advance_ms(DAY_MS)
        log.append(record_batch([row(b"value", key=b"x", timestamp=clock.time_us())]))
        assert compact() == [2, 3, 4]

    def test_decides_the_compaction_lag(self, memory_store, clock, days):
        settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
        fill(memory_store, clock, b"a", b"a", b"a", **settings)
        lagging = {**settings, "min_compaction_lag_ms": int(2.5 * DAY_MS)}
        planned = cleaner(memory_store, clock, days, **lagging).plan()
        one = opened(memory_store, clock, days).observe().live.segments[0].file.size_bytes
        assert planned.compacted_bytes == one
        cleaner(memory_store, clock, days, **lagging).clean()
        assert [offset for offset, _ in values(open_log(memory_store))] == [0, 1, 2]

    def test_decides_the_findings_of_a_verification(self, memory_store, clock, days):
        log = fill(memory_store, clock, b"a", b"b")
        merge(log.files, log.observe(), 0, 1, sync=False)
        clock.advance_ms(DELAY_MS)

        def problems():
            found = Verifier(opened(memory_store, clock, days)).findings()
            return [str(each.kind) for each in found if each.is_problem]

        assert problems() == [], "nothing shows that the delay is over"
        log.append(record_batch([row(b"value")]))
        assert problems() == ["spent-segment", "spent-segment"]


def test_an_appender_keeps_segments_apart_by_the_storages_time(memory_store, clock, days):
    """Its own puts and the segments of the listing are dated by one clock."""
    shifted = ShiftedClock(clock, days=days)
    log = open_log(memory_store, clock=shifted, merge_tail_segments=3, segment_ms=3_600_000)
    large = [record_batch([row(b"x" * 600_000)])]
    for _ in range(2):
        log.append(large)
        clock.advance_ms(40_000)  # the next append begins with a listing
    log.append(large)
    log.append(large)
    assert SegmentName(0, 2, 1) in [each.name for each in log.observe().live.segments]
