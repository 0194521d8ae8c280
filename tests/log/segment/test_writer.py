"""Rewrites: batches of several segments as one Arrow batch with unchanged headers."""

import re
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_log.config import TopicConfig
from spark_log.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.segment import writer as writer_module
from spark_log.log.segment.validator import LogValidator
from spark_log.record import SmallBatch
from spark_log.record.batch_header import BatchHeader
from spark_log.record.checksum import batch_crc32c
from spark_log.record.producer_append import ProducerAppend
from spark_log.record.rebase import rebase_batches
from spark_log.util.clock import ManualClock
from tests.log.support import (
    DIRECTORY,
    Part,
    put_bytes,
    put_segment,
    records_of,
    segment_bytes,
    segment_reader,
    segment_writer,
)
from tests.record.samples import numbered, row

NOW_US = 1_700_000_000_000_000


def put(store, writer, name):
    segment = writer.finish()
    store.put_if_absent(f"{DIRECTORY}/{name.file_name}", segment.staged)
    return segment, segment_reader(store, name)


def joined(readers, base, *, with_offsets=False):
    """All batches of some segments, relative to a segment that begins at ``base``."""
    headers: list[BatchHeader] = []
    pieces = []
    for reader in readers:
        for ordinal in range(reader.batch_count):
            own, records = reader.read_batch(ordinal)
            shift = reader.base_offset - base
            moved, rows = rebase_batches(own, records, shift, with_offsets=with_offsets)
            headers += moved
            pieces.append(rows)
    return pa.concat_batches(pieces), headers


@pytest.mark.parametrize("compression", ["none", "zstd"])
class TestRewriting:
    def test_small_segments_become_one_batch_that_keeps_their_headers(
        self, memory_store, compression
    ):
        sources = [
            put_segment(memory_store, [numbered(0, 3), numbered(3, 1)], SegmentName(100)),
            put_segment(memory_store, [numbered(4, 2)], SegmentName(104)),
        ]
        records, headers = joined(sources, 100)
        writer = segment_writer(memory_store, compression=compression)
        writer.write_rewritten(records, headers)
        name = SegmentName(100, 105, 1)
        segment, reader = put(memory_store, writer, name)
        assert (segment.record_count, reader.batch_count, reader.end_offset) == (6, 1, 106)
        assert reader.compression(0) == compression
        found = list(reader.read(0))
        assert records_of(found) == [
            pair for source in sources for pair in records_of(source.read(0))
        ]
        sums = [h.crc32c for source in sources for _, own in source.all_headers() for h in own]
        assert [header.crc32c for header in reader.headers(0)] == sums
        assert [header.base_offset_delta for header in reader.headers(0)] == [0, 3, 4]

    def test_missing_offsets_stay_missing(self, memory_store, compression):
        gapped = segment_bytes(
            [[Part([row(b"a"), row(b"b")], deltas=[1, 4], last_delta=5)], [Part([row(b"c")], [7])]]
        )
        sources = [
            put_bytes(memory_store, gapped, SegmentName(50, 59, 1)),
            put_segment(memory_store, [numbered(0, 2)], SegmentName(60)),
        ]
        records, headers = joined(sources, 50, with_offsets=True)
        writer = segment_writer(memory_store, compression=compression, with_offsets=True)
        writer.write_rewritten(records, headers)
        _, reader = put(memory_store, writer, SegmentName(50, 61, 2))
        assert reader.has_gaps
        assert [offset for offset, _ in records_of(reader.read(0))] == [51, 54, 57, 60, 61]
        assert [offset for offset, _ in records_of(reader.read(54, 61))] == [54, 57, 60]

    def test_a_header_may_have_lost_all_its_records(self, memory_store, compression):
        """As the last batch of a producer that may still retry."""
        gapped = segment_bytes([[Part([row(b"a")], deltas=[3])]])
        source = put_bytes(memory_store, gapped, SegmentName(0, 9, 1))
        (header,), records = source.read_batch(0)
        writer = segment_writer(memory_store, compression=compression, with_offsets=True)
        empty = segment_bytes([[Part([row(b"b")], deltas=[5])]])
        (gone,), rows = put_bytes(memory_store, empty, SegmentName(0, 9, 2)).read_batch(0)
        gone = replace(gone, record_count=0)
        gone = replace(gone, crc32c=batch_crc32c(gone, rows.slice(0, 0)))
        writer.write_rewritten(records, [header, gone])
        _, reader = put(memory_store, writer, SegmentName(0, 9, 3))
        assert [offset for offset, _ in records_of(reader.read(0))] == [3]
        assert reader.headers(0)[1].last_offset_delta == 5

    def test_what_does_not_fit_is_refused(self, memory_store, compression):
        source = put_segment(memory_store, [numbered(0, 3), numbered(3, 2)])
        first, second = source.read_batch(0), source.read_batch(1)
        for headers, records in (
            (first[0], second[1]),
            (second[0], second[1]),
            ((), first[1].slice(0, 0)),
            ([*first[0], *first[0]], first[1]),
        ):
            writer = segment_writer(memory_store, compression=compression)
            with pytest.raises(InvalidRecordError):
                writer.write_rewritten(records.replace_schema_metadata(None), headers)
            writer.discard()


def test_headers_of_an_idempotent_append_count_on_from_batch_to_batch(memory_store):
    writer = segment_writer(memory_store, producer=ProducerAppend(11, 3, 2**31 - 3))
    first, second, third = (writer.write(numbered(at, 2)) for at in (0, 2, 4))
    assert {(h.producer_id, h.producer_epoch) for h in (first, second, third)} == {(11, 3)}
    assert [h.base_sequence for h in (first, second, third)] == [2**31 - 3, 2**31 - 1, 1]
    writer.discard()


def test_a_batch_is_read_as_it_is_stored(memory_store):
    parts = [[Part([row(b"a")], deltas=[3]), Part([row(b"b"), row(b"c")], deltas=[5, 6])]]
    reader = put_bytes(memory_store, segment_bytes(parts), SegmentName(0, 9, 1))
    headers, records = reader.read_batch(0)
    assert [header.record_count for header in headers] == [1, 2]
    assert records.column("offset_delta").to_pylist() == [3, 5, 6]
    assert records.column("value").to_pylist() == [b"a", b"b", b"c"]


SMALL = SmallBatch.of_records([b"k", b""], [b"v", b"w"], [NOW_US, NOW_US + 5])


class TestWriteSmall:
    @pytest.fixture(autouse=True)
    def _same_append_id(self, monkeypatch):
        monkeypatch.setattr(writer_module, "new_append_id", lambda: b"i" * 22)

    def written(self, store, *batches, **config):
        """The files of batches, written as small ones and as Arrow batches."""
        files = []
        for is_small in (True, False):
            validator = LogValidator(TopicConfig.parse(config), ManualClock(NOW_US))
            producer = ProducerAppend(5, 1, 7)
            writer = segment_writer(store, producer=producer, validator=validator)
            headers = [
                writer.write_small(each) if is_small else writer.write(each.records())
                for each in batches
            ]
            segment = writer.finish()
            files.append((headers, segment.load().to_pybytes(), segment.content))
            segment.discard()
        return files

    def test_the_file_is_that_of_an_arrow_batch(self, memory_store):
        small, by_arrow = self.written(memory_store, SMALL)
        assert small == by_arrow
        assert small[2] is not None

    def test_the_second_batch_of_a_segment_follows_the_first(self, memory_store):
        small, by_arrow = self.written(memory_store, SMALL, SMALL)
        assert small == by_arrow

    def test_a_topic_may_set_the_timestamps(self, memory_store):
        small, by_arrow = self.written(memory_store, SMALL, message_timestamp_type="LogAppendTime")
        assert small == by_arrow
        assert small[0][0].max_timestamp_us == NOW_US

    @pytest.mark.parametrize(
        ("config", "error"),
        [
            ({"cleanup_policy": "compact"}, InvalidRecordError),
            ({"max_message_bytes": 1}, RecordTooLargeError),
            ({"message_timestamp_after_max_ms": 0}, InvalidTimestampError),
        ],
    )
    def test_what_a_topic_does_not_accept_is_refused(self, memory_store, config, error):
        keys = None if "cleanup_policy" in config else b"k"
        small = SmallBatch.of_records([keys] * 2, [b"v", b"w"], [NOW_US, NOW_US + 5_000])
        assert small is not None
        with pytest.raises(error) as caught:
            self.written(memory_store, small, **config)
        validator = LogValidator(TopicConfig.parse(config), ManualClock(NOW_US))
        with pytest.raises(error, match=re.escape(str(caught.value))):
            validator.validate(small.records())


class TestOneHeaderForAll:
    def test_leads_to_the_same_producer_state_as_those_in_the_file(self, memory_store):
        for producer in (None, ProducerAppend(7, 3, 2**31 - 2)):
            writer = segment_writer(memory_store, producer=producer)
            for first, count in ((5, 2), (0, 3), (9, 1)):
                writer.write(numbered(first, count))
            segment = writer.finish()
            memory_store.put_if_absent(f"{DIRECTORY}/{SegmentName(0).file_name}", segment.staged)
            reader = segment_reader(memory_store)
            in_file, in_one = ProducerState(), ProducerState()
            in_file.replay(0, [each for _, found in reader.all_headers() for each in found], 1)
            in_one.replay(0, segment.headers, 1)
            assert list(in_file.entries()) == list(in_one.entries())
            assert in_file.offset == in_one.offset == 6
            assert bool(list(in_one.entries())) == (producer is not None)
            memory_store.delete(f"{DIRECTORY}/{SegmentName(0).file_name}")
