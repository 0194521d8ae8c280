"""Tests of `AppendedSegment`: an appender knows the same of a segment as its reader."""

from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.config import TopicConfig
from spark_log.errors import CorruptRecordError
from spark_log.log import LocalLog
from spark_log.log.files import SegmentName
from spark_log.log.rewrite import RecentBatch
from spark_log.log.segment import AppendedSegment, SegmentReader
from spark_log.record import (
    RECORD_SCHEMA,
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
    file_template,
)
from spark_log.storage.memory import MemoryStore
from spark_log.util import SYSTEM_CLOCK
from tests.record.samples import numbered

DIRECTORY = "t.id/t-3"
NAME = SegmentName(0)

texts = st.binary(max_size=40)
times = st.integers(0, 2**50)
column = st.sampled_from([st.none(), texts])
rows = column.flatmap(
    lambda keys: column.flatmap(
        lambda values: st.lists(
            st.fixed_dictionaries({"key": keys, "value": values, "timestamp": times}),
            min_size=1,
            max_size=20,
        )
    )
)
compressions = st.sampled_from(["none", "lz4", "zstd"])
producers = st.none() | st.builds(
    ProducerAppend, st.integers(0, 9), st.integers(0, 9), st.just(0), is_transactional=st.booleans()
)


numbers = count()


def new_store():
    return MemoryStore(f"appended-segment-{next(numbers)}")


def open_log(store):
    return LocalLog(
        store, DIRECTORY, config=TopicConfig(), topic_id="id", partition=3, clock=SYSTEM_CLOCK
    )


def records_of(rows):
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def put(store, *batches, compression="none", producer=None, leader_epoch=0):
    """Put a segment at the log's start, and return it."""
    log = open_log(store)
    writer = log.stager.segment_writer(compression, producer, leader_epoch=leader_epoch)
    for batch in batches:
        writer.write(batch)
    segment = writer.finish()
    log.appender.append_segment(segment)
    return segment


def file_of(store):
    return store.open_buffer(f"{DIRECTORY}/{NAME.file_name}")


def read(file, name=NAME, topic_id="id", partition=3):
    """Return the segment if its file was read by the template; None if not, or if it is damaged."""
    store = new_store()
    store.put(f"{DIRECTORY}/{name.file_name}", file.to_pybytes())
    identity = {"topic_id": topic_id, "partition": partition}
    template = file_template(topic_id, partition)
    try:
        reader = SegmentReader(store, DIRECTORY, name, **identity, template=template)
        return reader.small and AppendedSegment.of_reader(reader, all_headers=True)
    except CorruptRecordError:
        return None


def reader_of(store):
    return SegmentReader(store, DIRECTORY, NAME, topic_id="id", partition=3)


class TestSmall:
    @settings(deadline=None)
    @given(rows, compressions, producers, st.integers(0, 5))
    def test_is_what_a_reader_shows(self, rows, compression, producer, epoch):
        store = new_store()
        segment = put(
            store,
            records_of(rows),
            compression=compression,
            producer=producer,
            leader_epoch=epoch,
        )
        found = read(file_of(store))
        assert found is not None
        shown = AppendedSegment.of_reader(reader_of(store), all_headers=True)
        assert found._replace(compression="", content=None) == shown
        assert RecentBatch.of_other(found) == RecentBatch.of_own(segment, len(rows))

    def test_has_the_offsets_of_its_name(self):
        store = new_store()
        put(store, numbered(0, 3))
        found = read(file_of(store), SegmentName(70))
        assert (found.base_offset, found.end_offset) == (70, 73)

    @pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
    def test_no_damaged_byte_passes(self, compression):
        """A byte that is no part of the checksums is compared; a padding's may be any byte."""
        store = new_store()
        put(store, numbered(0, 2), compression=compression, producer=ProducerAppend(1, 0, 0))
        file = file_of(store).to_pybytes()
        whole = read(pa.py_buffer(file))
        for at in range(len(file)):
            damaged = bytearray(file)
            damaged[at] ^= 0x41
            found = read(pa.py_buffer(bytes(damaged)))
            assert found is None or found == whole, at

    def test_no_shorter_file_passes(self):
        store = new_store()
        put(store, numbered(0, 2))
        file = file_of(store).to_pybytes()
        for length in range(len(file)):
            assert read(pa.py_buffer(file[:length])) is None, length


class TestOther:
    def test_of_several_batches_is_left_to_a_reader(self):
        store = new_store()
        put(store, numbered(0, 2), numbered(2, 3))
        assert read(file_of(store)) is None
        reader = reader_of(store)
        assert len(AppendedSegment.of_reader(reader, all_headers=True).headers) == 2
        last = AppendedSegment.of_reader(reader, all_headers=False)
        assert not last.has_all_headers
        assert (last.headers, last.end_offset) == (reader.headers(1), 5)

    def test_of_markers_is_what_a_reader_shows(self):
        store = new_store()
        log = open_log(store)
        markers = [EndTransactionMarker(each, 1, is_committed=True) for each in (7, 8)]
        log.appender.append_markers(markers, lambda each: log.stager.stage_markers(each, 0))
        assert read(file_of(store)) is None, "it has two headers"
        found = AppendedSegment.of_reader(reader_of(store), all_headers=True)
        assert [header.producer_id for header in found.headers] == [7, 8]

    @pytest.mark.parametrize(
        "identity", [("other", 3), ("id", 4)], ids=["of another topic", "of another partition"]
    )
    def test_is_left_to_a_reader(self, identity):
        store = new_store()
        put(store, numbered(0, 1))
        assert read(file_of(store), NAME, *identity) is None

    def test_with_a_header_for_other_records_is_left_to_a_reader(self, monkeypatch):
        store = new_store()
        monkeypatch.setattr(
            "spark_log.log.segment.writer.content_crc32c", lambda *fields, content: 17
        )
        put(store, numbered(0, 1))
        assert read(file_of(store)) is None
        assert isinstance(reader_of(store).headers(0)[0], BatchHeader)
