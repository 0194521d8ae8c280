"""A compaction's Arrow files become Parquet when the topic's table has another policy."""

import pytest

from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compacted_conversion import is_convertible
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.log_to_clean import log_to_clean
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.storage import FileInfo
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, HookedStore, open_log, records_of
from tests.record.samples import record_batch, row

SETTLED_MS = 61_001
TABLE = {"table_format": "delta", "table_commit_interval_ms": 0}


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture
def store(clock, request):
    """A store whose files have the time of the clock."""
    store = MemoryStore(f"conversion-{request.node.name}", clock)
    yield store
    store.delete_directory(DIRECTORY)


@pytest.fixture
def compacted(store, clock):
    """A log that was compacted, with records behind it: three segments of the compaction."""
    log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=1 << 20)
    for number in range(6):
        values = bytes([number]) * 400_000
        keys = (b"k%d" % (number % 4), b"a%d" % number)
        now_us = clock.time_us()
        rows = [row(values, key=key, headers=[("h", b"x")], timestamp=now_us) for key in keys]
        log.append(record_batch([*rows, row(None, key=b"gone%d" % number, timestamp=now_us)]))
    log.append(record_batch([row(b"last", key=b"k0")]))
    assert compact(log, now_us=clock.time_us()).segments_written > 1
    clock.advance_ms(SETTLED_MS)
    PartitionCleaner(log).clean()  # frees what was compacted
    return log


def as_table(store, clock, **settings):
    return open_log(store, clock=clock, segment_bytes=1 << 20, **TABLE, **settings)


def content(log):
    """Return records with their offsets, and the headers of all batches with their offsets."""
    view = log.observe()
    headers = []
    for segment in view.live.segments:
        reader = log.files.open_listed(segment, view.observed_ms)
        for _, found in reader.all_headers():
            headers += [
                (
                    reader.base_offset + each.base_offset_delta,
                    reader.base_offset + each.last_offset_delta,
                    each.attributes,
                    each.base_timestamp_us,
                    each.record_count,
                    each.crc32c if each.record_count else None,
                )
                for each in found
            ]
    return records_of(log.scan(view.log_start_offset)), headers


def compacted_names(log):
    return [each.name for each in log.observe().live.segments if each.name.is_compacted]


def test_the_segments_of_a_compaction_become_parquet_with_the_same_content(store, clock, compacted):
    before, names = content(compacted), compacted_names(compacted)
    assert not any(name.is_parquet for name in names)
    log = as_table(store, clock)
    report = PartitionCleaner(log, table_at_once=True).clean()
    found = compacted_names(log)
    assert [name.stem for name in found] == [name.stem for name in names]
    assert all(name.is_parquet for name in found)
    assert report.parquet_offsets == log.observe().log_end_offset
    records, headers = content(log)
    assert records == before[0]
    # The plain segment behind them was merged into a Parquet file, too: its header is the same.
    assert headers == before[1]
    again = PartitionCleaner(as_table(store, clock), table_at_once=True).clean()
    assert again.merged_segments == 0
    clock.advance_ms(SETTLED_MS)
    PartitionCleaner(as_table(store, clock)).clean()
    left = {file.name for file in store.list(DIRECTORY)}
    assert left.isdisjoint(name.file_name for name in names), "the Arrow files are spent"
    assert content(as_table(store, clock)) == before


def test_the_order_of_compactions_stays_as_it_is(store, clock, compacted):
    """The topic is compacted again: what was clean is clean, and horizons of tombstones hold."""
    now_us = clock.time_us()
    before, _ = log_to_clean(compacted, compacted.observe(), now_us=now_us)
    ids = set(compaction_ids(compacted))
    PartitionCleaner(as_table(store, clock), table_at_once=True).clean()
    log = as_table(store, clock, cleanup_policy="compact", min_cleanable_dirty_ratio=0.9)
    after, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
    assert after.first_dirty_offset == before.first_dirty_offset > 0
    assert set(compaction_ids(log)) == ids
    clock.advance_ms(2 * log.config.delete_retention_ms)
    log.append(record_batch([row(b"more", key=b"z")]))
    report = PartitionCleaner(log).clean()
    assert report.tombstones_removed == 6
    kept = {found["key"] for _, found in records_of(log.scan(0))}
    assert kept == {b"k0", b"k1", b"k2", b"k3", *(b"a%d" % number for number in range(6)), b"z"}


def compaction_ids(log):
    view = log.observe()
    for segment in view.live.segments:
        if segment.name.is_compacted:
            yield log.files.open_listed(segment, view.observed_ms).compaction_id


def test_records_before_the_logs_start_are_left_out(store, clock, compacted):
    first, *_ = compacted_names(compacted)
    move_log_start(compacted, first.base_offset + 2)
    before, _ = content(compacted)
    log = as_table(store, clock)
    PartitionCleaner(log, table_at_once=True).clean()
    found, *_ = compacted_names(log)
    assert (found.stem, found.is_parquet) == (first.stem, True)
    assert content(log)[0] == before
    reader = log.files.open(found)
    assert reader.row_statistics().min_offset == before[0][0] == 2


def test_it_may_die_at_any_point(store, clock, compacted):
    before, _ = content(compacted)
    dying = HookedStore(store)
    converted = []

    def put(path, call):
        if path.endswith(".parquet"):
            converted.append(path)
            if len(converted) == 2:
                raise StorageError("it dies", path=path)
        return call()

    dying.on("put_if_absent", put)
    with pytest.raises(StorageError, match="it dies"):
        PartitionCleaner(as_table(dying, clock), table_at_once=True).clean()
    log = as_table(store, clock)
    assert [name.is_parquet for name in compacted_names(log)][:2] == [True, False]
    assert content(log)[0] == before
    PartitionCleaner(log, table_at_once=True).clean()
    assert all(name.is_parquet for name in compacted_names(log))
    assert content(log)[0] == before


def test_a_damaged_segment_is_not_converted(store, clock, compacted):
    first, *_ = compacted_names(compacted)
    path = f"{DIRECTORY}/{first.file_name}"
    data = bytearray(store.open_buffer(path).to_pybytes())
    data[len(data) // 2] ^= 1
    store.put(path, bytes(data))
    log = as_table(store, clock)
    with pytest.raises(CorruptRecordError):
        PartitionCleaner(log, table_at_once=True).clean()
    assert not compacted_names(log)[0].is_parquet


@pytest.mark.parametrize(
    ("name", "start_offset", "log_start", "expected"),
    [
        (SegmentName(0, 9, 1_000_001), 0, 0, True),
        (SegmentName(0, 9, 1_000_001), 4, 4, True),
        (SegmentName(0, 9, 1_000_001), 4, 0, False),  # another compaction replaced its first part
        (SegmentName(0, 9, 1_000_001, is_parquet=True), 0, 0, False),
        (SegmentName(0, 9, 3), 0, 0, False),
        (SegmentName(0), 0, 0, False),
    ],
)
def test_which_segments_are_converted(name, start_offset, log_start, expected):
    segment = LiveSegment(name, FileInfo(name.file_name, 1, 0), start_offset, 10)
    assert is_convertible(segment, log_start) is expected
