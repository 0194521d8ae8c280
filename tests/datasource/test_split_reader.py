"""Reads of a split, as in a task, without Spark."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from spark_log import CorruptRecordError, OffsetOutOfRangeError
from spark_log.datasource.read.log_split import LogSplit
from spark_log.datasource.read.record_filter import RecordFilter
from spark_log.datasource.read.split_reader import ARROW_TYPES, read_split
from spark_log.errors import NotFoundError
from spark_log.log import SegmentReader
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import SegmentName
from spark_log.log.read import record_columns
from spark_log.record.batch_header import BatchHeader
from spark_log.storage.local import LocalStore
from tests.datasource.reading import (
    BASE_MS,
    create,
    fill,
    log_of,
    numbers,
    options_of,
    plan,
    read,
    records,
    retain_from,
)
from tests.log.support import DIRECTORY, TOPIC_ID, Part, put_bytes, segment_bytes
from tests.record.samples import row

START = datetime.fromtimestamp(BASE_MS / 1000, UTC)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t", 1)
    return url


def between(first, end):
    """Return a filter on the seconds of the records' timestamps."""
    return RecordFilter.from_filters(
        [
            GreaterThanOrEqual(("timestamp",), START + timedelta(seconds=first)),
            LessThan(("timestamp",), START + timedelta(seconds=end)),
        ]
    )[0]


@pytest.fixture
def columns_read(monkeypatch):
    """Record the columns read from segments, and the offsets between which they are read."""
    found = []
    real = SegmentReader.read

    def spied(self, start, end=None, *, columns=None, **options):
        if "/t-0/" in self.path:
            found.append((columns, start, end))
        return real(self, start, end, columns=columns, **options)

    monkeypatch.setattr(SegmentReader, "read", spied)
    return found


class TestColumns:
    def test_all_of_them(self, root):
        fill(root, "t", 0, [7])
        (found,) = read(root, columns=tuple(ARROW_TYPES))
        assert found == {
            "key": b"k",
            "value": b"7",
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "timestamp": START + timedelta(seconds=7),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}],
        }

    @pytest.mark.parametrize(
        ("wanted", "stored"),
        [
            (("value",), ["value"]),
            (("timestamp", "key"), ["key", "timestamp"]),
            (("offset", "topic", "partition", "timestampType"), ["timestamp"]),
            (("headers",), ["headers"]),
            # If only headers are missing, whole records are read, to verify checksums.
            (("key", "value", "timestamp"), None),
            (("key", "value", "timestamp", "headers"), None),
        ],
    )
    def test_only_what_is_wanted_is_read(self, root, columns_read, wanted, stored):
        fill(root, "t", 0, range(3))
        found = read(root, columns=wanted)
        assert [tuple(each) for each in found] == [wanted] * 3
        assert [columns for columns, _, _ in columns_read] == [stored]

    def test_in_any_order_and_with_exact_types(self, root):
        fill(root, "t", 0, range(3))
        wanted = ("timestampType", "offset", "value")
        (split,) = plan(root)
        (batch,) = read_split(split, wanted, options_of(root))
        assert batch.schema == pa.schema([(name, ARROW_TYPES[name]) for name in wanted])


class TestRecords:
    def test_tells_in_the_debug_log_what_it_reads(self, root, caplog):
        fill(root, "t", 0, range(3))
        (split,) = plan(root)
        with caplog.at_level("DEBUG", logger="spark_log.datasource"):
            list(read_split(split, ("value",), options_of(root)))
        began, ended = [
            each.getMessage() for each in caplog.records if str(split) in each.getMessage()
        ]
        assert began.endswith("reads from offset 0, columns value, on broker 0")
        assert ended.endswith(f"read up to offset {split.end_offset}")

    def test_of_many_small_segments_come_in_large_batches(self, root):
        fill(root, "t", 0, range(500), segments=50)
        (split,) = plan(root)
        batches = list(read_split(split, ("offset", "value"), options_of(root)))
        assert len(batches) == 1
        assert batches[0].column("offset").to_pylist() == list(range(500))

    def test_between_the_offsets_of_the_split_alone(self, root):
        fill(root, "t", 0, range(100), segments=7)
        found = read(root, startingOffsets='{"t":{"0":13}}', endingOffsets='{"t":{"0":57}}')
        assert [each["offset"] for each in found] == list(range(13, 57))

    def test_of_all_splits_are_all_records_once(self, root):
        fill(root, "t", 0, range(1000), segments=9)
        for options in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "64"}):
            found = read(root, **options)
            assert [each["offset"] for each in found] == list(range(1000))
            assert numbers(found) == list(range(1000))

    def test_append_time_is_told(self, root):
        create(root, "u", 1, **{"message.timestamp.type": "LogAppendTime"})
        fill(root, "u", 0, [1])
        (found,) = read(root, subscribe="u")
        assert found["timestampType"] == 1

    def test_of_a_damaged_segment_are_never_handed_out(self, root):
        fill(root, "t", 0, range(1000))
        (segment,) = Path(root).glob("t.*/t-0/*.log")
        data = bytearray(segment.read_bytes())
        data[data.index(b"500501502")] ^= 1
        segment.write_bytes(data)
        with pytest.raises(CorruptRecordError, match=r"t-0/0{20}\.log, position \d+: checksum"):
            read(root)
        assert len(read(root, **{"check.crcs": "false"})) == 1000


class TestGapsAndControlBatches:
    """Segments with gaps from compaction, and with control batches, which users do not see."""

    @pytest.fixture
    def store(self, tmp_path):
        store = LocalStore(str(tmp_path / "root"))
        store.create_root()
        return store

    def read(self, store, end_offset, start_offset=0, columns=("offset", "value")):
        split = LogSplit("flights", 0, TOPIC_ID, DIRECTORY, start_offset, end_offset)
        options = options_of(store.url, subscribe="flights")
        return [each for batch in read_split(split, columns, options) for each in batch.to_pylist()]

    def test_control_batches_never_appear(self, store):
        control = BatchHeader.CONTROL_BIT
        put_bytes(
            store,
            segment_bytes(
                [
                    [Part([row(b"0"), row(b"1")])],
                    [Part([row(b"2")], attributes=control)],
                    [Part([row(b"3")]), Part([row(b"4")], attributes=control), Part([row(b"5")])],
                    [Part([row(b"6")], attributes=control)],
                ]
            ),
        )
        found = self.read(store, 7)
        assert [each["offset"] for each in found] == [0, 1, 3, 5]
        assert [each["offset"] for each in self.read(store, 7, 6)] == []  # and this is not a loss

    def test_records_of_compacted_topics_keep_their_offsets(self, store):
        name = SegmentName(0, 99, 1)
        put_bytes(
            store,
            segment_bytes(
                [[Part([row(b"0"), row(b"1")], deltas=[3, 40])], [Part([row(b"2")], deltas=[77])]]
            ),
            name,
        )
        assert [each["offset"] for each in self.read(store, 100)] == [3, 40, 77]
        assert [each["offset"] for each in self.read(store, 77, 4)] == [40]
        assert self.read(store, 100, 78) == []  # compaction has removed the records
        pieces = [self.read(store, end, start) for start, end in ((0, 40), (40, 77), (77, 100))]
        assert [len(piece) for piece in pieces] == [1, 1, 1]


class TestDataLoss:
    def test_of_the_beginning(self, root):
        fill(root, "t", 0, range(30), segments=3)
        (split,) = plan(root)
        retain_from(root, 12, 10)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            list(read_split(split, ("value",), options_of(root)))
        assert "offset 0 does not exist any more, the log has offsets from 12 to before 30" in str(
            raised.value
        )
        assert "failOnDataLoss=false" in str(raised.value)
        lenient = options_of(root, failOnDataLoss="false")
        found = [each for b in read_split(split, ("offset",), lenient) for each in b.to_pylist()]
        assert [each["offset"] for each in found] == list(range(12, 30))

    def test_of_all_of_it(self, root):
        """The topic was deleted after the query was planned: the read is empty, or an error."""
        fill(root, "t", 0, range(30), segments=3)
        (split,) = plan(root)
        shutil.rmtree(Path(root) / split.directory)
        with pytest.raises(OffsetOutOfRangeError, match="does not exist any more"):
            list(read_split(split, ("value",), options_of(root)))
        assert list(read_split(split, ("value",), options_of(root, failOnDataLoss="false"))) == []

    def test_of_the_end(self, root):
        fill(root, "t", 0, range(30), segments=3)
        (split,) = plan(root)
        last = max((Path(root) / split.directory).glob("*.log"))
        last.unlink()
        batches = read_split(split, ("offset",), options_of(root))
        with pytest.raises(OffsetOutOfRangeError, match="the log has offsets from 0 to before 20"):
            list(batches)
        lenient = read_split(split, ("offset",), options_of(root, failOnDataLoss="false"))
        assert sum(batch.num_rows for batch in lenient) == 20


class TestTimes:
    def test_exactly_the_records_of_a_time(self, root):
        fill(root, "t", 0, range(100), segments=7)
        assert numbers(read(root, between(35, 52))) == list(range(35, 52))
        assert numbers(read(root, between(-5, 1))) == [0]
        assert numbers(read(root, between(200, 300))) == []

    def test_also_where_times_go_back(self, root):
        """Timestamps decrease within each segment, and from one segment to the next."""
        random = np.random.default_rng(3)
        values = random.permutation(300)
        fill(root, "t", 0, values, segments=5)
        assert numbers(read(root, between(100, 120))) == list(range(100, 120))
        offsets = [each["offset"] for each in read(root, between(100, 120))]
        assert offsets == sorted(offsets)
        assert [values[offset] for offset in offsets] == [
            int(each["value"]) for each in read(root, between(100, 120))
        ]

    def test_also_on_storage_that_is_not_mapped(self, root, monkeypatch, columns_read):
        """Timestamps are not fetched first, because every batch would be fetched twice."""
        values = np.random.default_rng(4).permutation(300)
        fill(root, "t", 0, values, segments=5)
        monkeypatch.setattr(LocalStore, "is_mapped", False)
        assert numbers(read(root, between(100, 120))) == list(range(100, 120))
        assert [columns for columns, _, _ in columns_read] == [None] * 5

    def test_a_column_that_is_not_asked_for_filters_all_the_same(self, root):
        fill(root, "t", 0, range(100))
        assert numbers(read(root, between(35, 40), columns=("value",))) == list(range(35, 40))

    def test_an_instant(self, root):
        fill(root, "t", 0, range(10))
        instant = START + timedelta(seconds=4)
        where, _ = RecordFilter.from_filters([EqualTo(("timestamp",), instant)])
        assert numbers(read(root, where)) == [4]

    def test_batches_without_any_are_not_decoded(self, root, columns_read):
        """Only their timestamps are read; of batches before the first match not even these."""
        log = log_of(root)
        log.append([records(range(start, start + 10)) for start in range(0, 200, 10)])
        assert numbers(read(root, between(95, 113))) == list(range(95, 113))
        whole = [(start, end) for columns, start, end in columns_read if columns is None]
        assert whole == [(95, 120)]
        looked_at = [start for columns, start, _ in columns_read if columns == ["timestamp"]]
        assert looked_at == [95]

    def test_ranges_apart_are_read_apart(self, root, columns_read):
        log = log_of(root)
        log.append([records(range(start, start + 10)) for start in (0, 50, 100, 51, 200)])
        found = read(root, between(50, 61))
        assert numbers(found) == sorted([*range(50, 60), *range(51, 61)])
        whole = [(start, end) for columns, start, end in columns_read if columns is None]
        assert whole == [(10, 20), (30, 40)]


class TestRewriting:
    """A merger rewrites and deletes segments that are in this reader's listing."""

    @staticmethod
    def merge(root, end):
        log = log_of(root)
        segments = sorted((Path(root) / log.directory).glob("*.log"))
        writer = log.segment_writer()
        for batch in list(log.scan(0, end)):
            writer.write(batch.records)
        segment = writer.finish()
        name = SegmentName(0, end - 1, 1)
        path = f"{log.directory}/{name.file_name}"
        log.files.store.put_if_absent(path, segment.staged, sync=False)
        for plain in segments:
            plain.unlink()

    def test_while_it_reads_others_is_followed(self, root, monkeypatch):
        fill(root, "t", 0, range(40), segments=4)
        (split,) = plan(root)
        batches = read_split(split, ("offset", "value"), options_of(root))
        monkeypatch.setattr(record_columns, "_MIN_ROWS", 1)
        first = next(batches)
        self.merge(root, 40)
        found = [each for batch in (first, *batches) for each in batch.to_pylist()]
        assert [each["offset"] for each in found] == list(range(40))

    def test_in_the_middle_of_a_segment_goes_on_where_it_was(self, root, monkeypatch):
        """On an object store, a segment may be deleted between two reads of its batches."""
        log = log_of(root)
        log.append([records(range(start, start + 10)) for start in range(0, 40, 10)])
        (split,) = plan(root)
        checks = []

        def gone_once(self, reader, observed_ms):
            checks.append(reader.path)
            if len(checks) == 3:
                raise NotFoundError("freed")

        monkeypatch.setattr(PartitionDirectory, "check_unchanged", gone_once)
        batches = read_split(split, ("offset", "value"), options_of(root))
        found = [each for batch in batches for each in batch.to_pylist()]
        assert [each["offset"] for each in found] == list(range(40))
        assert len(checks) > 4
