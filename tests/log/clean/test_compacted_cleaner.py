"""When a cleaner compacts, and retention in a compacted topic."""

import pytest

from spark_log.log.clean import compacted_segment
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.log_to_clean import log_to_clean
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite import merger
from spark_log.log.segment import writer as segment_writer
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, HookedStore, open_log, records_of
from tests.record.samples import record_batch, row

HOUR_MS = 3_600_000
SETTLED_MS = 61_001


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture
def inner(clock, request):
    """A store whose files have the time of the clock."""
    store = MemoryStore(f"compacted-{request.node.name}", clock)
    yield store
    store.delete_directory(DIRECTORY)


def append(log, *keys, value=b"value"):
    """Append one segment."""
    now_us = log.clock.time_us()
    return log.append(record_batch([row(value, key=key, timestamp=now_us) for key in keys]))


def clean(log):
    return PartitionCleaner(log).clean()


def keys(log):
    found = records_of(log.scan(log.observe().log_start_offset))
    return [(offset, row["key"]) for offset, row in found]


def test_a_small_segment_is_read_once(inner, clock):
    log = open_log(inner, clock=clock, cleanup_policy="compact")
    for _ in range(20):
        append(log, b"a")
    store = HookedStore(inner, is_mapped=False)
    report = clean(open_log(store, clock=clock, cleanup_policy="compact"))
    assert (report.compacted_records, report.kept_records) == (19, 1)
    read = [SegmentName.parse(path.rpartition("/")[2]) for path in store.called("open_buffer")]
    assert [read.count(SegmentName(offset)) for offset in range(19)] == [1] * 19


class TestDirt:
    def test_a_log_below_the_dirty_ratio_is_not_compacted(self, inner, clock):
        log = open_log(inner, clock=clock, cleanup_policy="compact", min_cleanable_dirty_ratio=0.5)
        for _ in range(4):
            append(log, b"a", b"b", b"c", b"d")
        append(log, b"z")
        assert clean(log).compacted_records == 16, "all of it is dirty"
        clock.advance_ms(SETTLED_MS)
        append(log, b"z")
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert 0 < found.ratio < 0.5, "the record that stood last"
        assert clean(log).compacted_records == 0
        for _ in range(4):
            append(log, b"a", b"b", b"c", b"d")
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert found.ratio > 0.5
        assert clean(log).compacted_records == 4 + 2 + 12

    def test_a_dirty_ratio_of_one_is_never_exceeded(self, inner, clock):
        log = open_log(inner, clock=clock, cleanup_policy="compact", min_cleanable_dirty_ratio=1)
        for _ in range(4):
            append(log, b"a")
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert found.ratio == 1
        assert clean(log).compacted_records == 0

    def test_dirty_bytes_are_between_the_clean_and_the_active_segment(self, inner, clock):
        log = open_log(inner, clock=clock, cleanup_policy="compact", min_compaction_lag_ms=HOUR_MS)
        for _ in range(2):
            append(log, b"a", b"b")
        clock.advance_ms(HOUR_MS)
        append(log, b"c")
        assert clean(log).compacted_records == 4
        clock.advance_ms(HOUR_MS)
        append(log, b"a")
        append(log, b"b")
        found, view = log_to_clean(log, log.observe(), now_us=clock.time_us())
        sizes = [segment.file.size_bytes for segment in view.live.segments]
        assert (found.first_dirty_offset, found.end_offset) == (4, 5)
        assert (found.clean_bytes, found.dirty_bytes) == (sizes[0], sizes[1])
        assert found.ratio == pytest.approx(sizes[1] / (sizes[0] + sizes[1]))

    def test_an_overdue_log_is_compacted_below_the_ratio(self, inner, clock):
        """Kafka's LogCleanerIntegrationTest: by the ratio alone it would never be compacted."""
        log = open_log(
            inner,
            clock=clock,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=1,
            min_compaction_lag_ms=HOUR_MS,
            max_compaction_lag_ms=6 * HOUR_MS,
        )
        for _ in range(3):
            append(log, b"a", b"b")
        clock.advance_ms(3 * HOUR_MS)
        assert clean(log).compacted_records == 0
        clock.advance_ms(3 * HOUR_MS + 1)
        append(log, b"a")
        append(log, b"a")
        assert clean(log).compacted_records == 6, "not what is younger than an hour"
        assert keys(log) == [(4, b"a"), (5, b"b"), (6, b"a"), (7, b"a")]
        clock.advance_ms(6 * HOUR_MS)
        assert clean(log).compacted_records == 0
        clock.advance_ms(1)
        assert clean(log).compacted_records == 3
        assert keys(log) == [(5, b"b"), (6, b"a"), (7, b"a")]

    def test_min_compaction_lag_keeps_young_segments_unchanged(self, inner, clock):
        """Its segments do not change, whatever keys they have."""
        log = open_log(inner, clock=clock, cleanup_policy="compact", min_compaction_lag_ms=HOUR_MS)
        append(log, b"a", b"a")
        append(log, b"a", b"a")
        clock.advance_ms(HOUR_MS)
        append(log, b"a", b"a")
        append(log, b"a", b"a")
        clean(log)
        assert [offset for offset, _ in keys(log)] == [3, 4, 5, 6, 7]


class TestSegmentsThatWouldBeTooLarge:
    """Without compression the records may not fit into one file."""

    @pytest.fixture(autouse=True)
    def _small_files(self, monkeypatch):
        for module in (segment_writer, compacted_segment):
            monkeypatch.setattr(module, "MAX_SEGMENT_BYTES", 100_000)
        monkeypatch.setattr(merger, "_JOINED_RECORDS", 4)

    @pytest.mark.parametrize("policy", ["compact", "delete"])
    def test_segments_too_large_without_compression_stay_compressed(self, inner, clock, policy):
        settings = {"cleanup_policy": policy, "retention_ms": -1, "merge_tail_segments": 0}
        log = open_log(inner, clock=clock, compression_type="zstd", **settings)
        for number in range(9):
            append(log, *(b"%d.%d" % (number, at) for at in range(4)), value=b"x" * 20_000)
        log = open_log(inner, clock=clock, compression_type="none", **settings)
        append(log, b"z")
        clean(log)
        live = log.observe().live.segments
        assert len(live) <= 2
        assert log.files.open(live[0].name).compression(0) == "zstd"
        assert len(keys(log)) == 9 * 4 + 1


class TestRetention:
    """Fifteen segments of one record each, of one key, a second apart."""

    def log(self, inner, clock, **settings):
        log = open_log(inner, clock=clock, min_cleanable_dirty_ratio=1, **settings)
        for _ in range(15):
            append(log, b"key")
            clock.advance_ms(1000)
        return log

    @pytest.mark.parametrize("limit", [{"retention_ms": 1000}, {"retention_bytes": 1}])
    def test_without_delete_in_the_policy_nothing_is_retained_away(self, inner, clock, limit):
        report = clean(self.log(inner, clock, cleanup_policy="compact", **limit))
        assert (report.expired_segments, report.segments) == (0, 15)

    def test_retention_applies_to_a_topic_of_both_policies(self, inner, clock):
        log = self.log(inner, clock, cleanup_policy="compact,delete", retention_ms=10_500)
        report = clean(log)
        assert (report.expired_segments, report.log_start_offset) == (5, 5)
        assert report.compacted_records == 0

    def test_retention_and_compaction_alternate(self, inner, clock):
        settings = {"cleanup_policy": "compact,delete", "retention_ms": HOUR_MS}
        log = open_log(inner, clock=clock, min_cleanable_dirty_ratio=0, **settings)
        for number in range(6):
            append(log, b"a", b"b" if number % 2 else b"c")
        assert clean(log).kept_records == 3
        clock.advance_ms(HOUR_MS + 1)
        report = clean(log)
        assert (report.log_start_offset, report.segments) == (12, 0)
        for _ in range(3):
            append(log, b"a", b"b")
        assert clean(log).kept_records == 2
        assert keys(log) == [(14, b"a"), (15, b"b"), (16, b"a"), (17, b"b")]

    def test_deleted_records_are_removed_with_any_policy(self, inner, clock):
        log = self.log(inner, clock, cleanup_policy="compact")
        move_log_start(log, 5)
        clock.advance_ms(SETTLED_MS)
        assert clean(log).deleted_files >= 5
        assert [offset for offset, _ in keys(log)] == list(range(5, 15))

    def test_retention_continues_after_blocking_records_are_deleted(self, inner, clock):
        """A record in the future keeps all segments after it, until it is deleted."""
        log = open_log(inner, clock=clock, retention_ms=900)
        now_us = clock.time_us()
        for ahead_ms in (60_000, 0, 100):
            log.append(record_batch([row(b"", timestamp=now_us + ahead_ms * 1000)]))
        clock.advance_ms(1001)
        assert clean(log).expired_segments == 0
        move_log_start(log, 1)
        report = clean(log)
        assert (report.expired_segments, report.log_start_offset) == (2, 3)
        assert clean(log).expired_segments == 0
