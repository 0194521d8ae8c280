"""Format 1 stays readable: golden files that were written once, and are in this repository."""

import pyarrow as pa
import pytest
from pyarrow import ipc

from spark_log.log import SegmentReader
from spark_log.log.segment.offset_index import OffsetIndex, OffsetPosition
from spark_log.log.segment.time_index import TimeIndex, TimestampOffset
from spark_log.record.batch_header import METADATA_KEY
from spark_log.storage.local import LocalStore
from tests.log import golden
from tests.log.support import TOPIC_ID, records_of
from tests.record.samples import START_US


@pytest.fixture(params=golden.COMPRESSIONS)
def directory(request):
    return golden.DATA / request.param


def reader_of(directory, name):
    store = LocalStore(str(directory.parent))
    return SegmentReader(store, directory.name, name, topic_id=TOPIC_ID, partition=0)


def test_a_plain_segment_is_read_whole_and_its_sums_fit(directory):
    reader = reader_of(directory, golden.PLAIN)
    rows = list(zip(range(1_000, 1_020), golden.PLAIN_ROWS, strict=True))
    assert records_of(reader.read(0)) == rows
    assert (reader.base_offset, reader.end_offset) == (1_000, 1_020)
    assert reader.append_id == golden.APPEND_ID
    headers = [reader.headers(ordinal) for ordinal in range(reader.batch_count)]
    assert [header.crc32c for (header,) in headers] == golden.PLAIN_SUMS
    assert [header.record_count for (header,) in headers] == golden.PLAIN_SPLITS


def test_its_indexes_are_sound_and_name_its_batches(directory):
    reader = reader_of(directory, golden.PLAIN)
    data = pa.py_buffer((directory / golden.PLAIN.index).read_bytes())
    index = OffsetIndex.from_bytes(1_000, data, golden.APPEND_ID)
    assert list(index.entries()) == [
        OffsetPosition(
            1_000 + reader.headers(ordinal)[0].base_offset_delta, reader.position(ordinal)
        )
        for ordinal in range(1, 4)
    ]
    times = pa.py_buffer((directory / golden.PLAIN.time_index).read_bytes())
    entries = list(TimeIndex.from_bytes(1_000, times, data).entries())
    assert entries == [TimestampOffset(START_US + 86_400_000_000, 1_000)]


def test_a_plain_segment_is_read_from_any_offset(directory):
    reader = reader_of(directory, golden.PLAIN)
    for offset in range(1_000, 1_021):
        rows = list(enumerate(golden.PLAIN_ROWS, start=1_000))[offset - 1_000 :]
        assert records_of(reader.read(offset)) == rows


def test_a_plain_segment_is_searched_by_time(directory):
    reader = reader_of(directory, golden.PLAIN)
    times_us = [row["timestamp"] for row in golden.PLAIN_ROWS]
    for time_us in {*times_us, *(time_us + 1 for time_us in times_us)}:
        hits = [(at, found) for at, found in enumerate(times_us, 1_000) if found >= time_us]
        assert reader.offset_for_time(time_us, 1_000) == next(iter(hits), None)


def test_a_rewritten_segment_is_read_with_its_gaps_and_its_headers(directory):
    reader = reader_of(directory, golden.REWRITTEN)
    batches = list(reader.read(0))
    rows = [row for parts in golden.REWRITTEN_PARTS for part in parts for row in part.rows]
    expected = list(zip(golden.REWRITTEN_OFFSETS, rows, strict=True))
    assert records_of(batches) == expected
    assert reader.end_offset == 2_020
    assert [batch.is_control for batch in batches] == [False, True, False]
    assert [batch.leader_epoch for batch in batches] == [1, 2, 0]
    assert [batch.timestamp_type for batch in batches] == [0, 0, 1]


def test_any_arrow_reader_opens_it(directory):
    """Readers based on arrow-rs refuse metadata that is not UTF-8, in the schema and in batches."""
    for name in (golden.PLAIN, golden.REWRITTEN):
        with pa.memory_map(str(directory / name.file_name)) as file, ipc.open_file(file) as reader:
            dictionaries = [reader.schema.metadata]
            for ordinal in range(reader.num_record_batches):
                found = reader.get_batch_with_custom_metadata(ordinal)
                found.batch.validate(full=True)
                dictionaries.append(found.custom_metadata)
            for metadata in dictionaries:
                assert metadata
                assert all(
                    (key + value).decode("utf-8").isprintable() for key, value in metadata.items()
                )
            assert METADATA_KEY in dictionaries[-1]
