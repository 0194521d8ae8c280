"""Damaged segments: an error with file and position, or the correct records; never others."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc

from spark_log.errors import CorruptRecordError
from spark_log.log.files.file_names import SegmentName
from spark_log.record import arrow_ipc
from spark_log.record.schema import OFFSET_DELTA_FIELD, RECORD_SCHEMA, segment_schema
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    Part,
    put_bytes,
    put_segment,
    segment_bytes,
    segment_reader,
    values_of,
)
from tests.record.samples import numbered, record_batch, row

PROJECT = Path(__file__).parents[3]
NAME = SegmentName(0)
PATH = f"{DIRECTORY}/{NAME.file_name}"


@pytest.fixture
def store(memory_store):
    return memory_store


class TestAnyDamage:
    @pytest.mark.parametrize(
        "compression",
        ["none", pytest.param("lz4", marks=pytest.mark.long), "zstd", "parquet"],
    )
    @pytest.mark.parametrize("way", ["mapped", pytest.param("in ranges", marks=pytest.mark.long)])
    def test_wherever_it_is_it_is_an_error_or_changes_nothing(self, tmp_path, way, compression):
        progress = tmp_path / "progress"
        arguments = [compression, way, str(progress)]
        command = [sys.executable, "-m", "tests.log.segment.segment_fuzz", *arguments]
        done = subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
        )
        last = progress.read_text() if progress.exists() else "nothing"
        assert done.returncode == 0, f"died with {done.returncode} on {last}: {done.stderr[-900:]}"
        report = json.loads(done.stdout)
        assert report["last"].startswith("zeros at"), "it went through to the end"
        assert report["found"] == [], f"{len(report['found'])} damages"


class TestChecksum:
    def damaged(self, store):
        """Three batches, the value of the second one damaged."""
        put_segment(store, [numbered(0, 2), numbered(2, 2), numbered(4, 2)])
        content = store.open_buffer(PATH).to_pybytes()
        assert content.count(b"record:2record:3") == 1
        return put_bytes(store, content.replace(b"record:2record:3", b"record:2record;3"))

    def test_a_mismatch_names_file_and_position_and_what_can_be_done(self, store):
        reader = self.damaged(store)
        with pytest.raises(CorruptRecordError, match="checksum is 0x") as caught:
            list(reader.read(0))
        assert caught.value.path == PATH
        assert caught.value.position == reader.position(1)
        assert f"{PATH}, position {reader.position(1)}: " in caught.value.message
        assert "Restore the file from a copy" in caught.value.message

    def test_what_comes_before_it_is_handed_out_and_what_comes_behind_can_be_read(self, store):
        reader = self.damaged(store)
        batches = reader.read(0)
        assert values_of([next(batches)]) == [(0, b"record:0"), (1, b"record:1")]
        with pytest.raises(CorruptRecordError):
            next(batches)
        assert values_of(reader.read(4)) == [(4, b"record:4"), (5, b"record:5")]

    def test_it_is_not_looked_at_where_the_reader_says_so(self, store):
        reader = self.damaged(store)
        assert values_of(reader.read(0, check_crcs=False))[3] == (3, b"record;3")

    def test_it_is_checked_whatever_the_order_of_the_columns(self, store):
        reader = self.damaged(store)
        with pytest.raises(CorruptRecordError):
            list(reader.read(0, columns=RECORD_SCHEMA.names[::-1]))


class TestNoSegment:
    @pytest.mark.parametrize(
        "content",
        [b"", b"ARROW1", b"x" * 9, b"x" * 10_000, bytes(10_000), b"ARROW1\0\0" * 50, b"PAR1" * 99],
    )
    def test_another_file_is_refused_by_its_path(self, store, content):
        with pytest.raises(CorruptRecordError, match="not a readable Arrow file") as caught:
            put_bytes(store, content)
        assert caught.value.path == PATH

    def test_a_cut_segment_is_refused(self, store):
        put_segment(store, [numbered(0, 9)])
        content = store.open_buffer(PATH).to_pybytes()
        for length in range(0, len(content), 7):
            with pytest.raises(CorruptRecordError):
                put_bytes(store, content[:length])

    def test_a_segment_with_bytes_behind_its_end_is_refused(self, store):
        put_segment(store, [numbered(0, 9)])
        content = store.open_buffer(PATH).to_pybytes()
        with pytest.raises(CorruptRecordError):
            put_bytes(store, content + b"\0")

    def test_arrows_stream_format_is_refused(self, store):
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, segment_schema(TOPIC_ID, 0)) as writer:
            writer.write_batch(numbered(0, 1))
        with pytest.raises(CorruptRecordError):
            put_bytes(store, sink.getvalue())

    def test_an_arrow_file_without_batches_is_refused(self, store):
        with pytest.raises(CorruptRecordError, match="no record batches"):
            put_bytes(store, segment_bytes([]))

    def test_an_arrow_file_that_says_nothing_of_spark_log_is_refused(self, store):
        data = segment_bytes([[Part([row()])]], schema=RECORD_SCHEMA)
        with pytest.raises(CorruptRecordError, match="segment format ''"):
            put_bytes(store, data)

    def test_a_segment_of_a_later_format_is_refused_by_its_number(self, store):
        metadata = {**segment_schema(TOPIC_ID, 0).metadata, b"spark_log.format": b"2"}
        data = segment_bytes([[Part([row()])]], schema=RECORD_SCHEMA.with_metadata(metadata))
        with pytest.raises(CorruptRecordError, match="format '2', this version reads '1'"):
            put_bytes(store, data)

    @pytest.mark.parametrize(
        "schema",
        [
            RECORD_SCHEMA.set(3, pa.field("timestamp", pa.timestamp("ns", "UTC"), nullable=False)),
            RECORD_SCHEMA.set(3, pa.field("timestamp", pa.int64(), nullable=False)),
            RECORD_SCHEMA.set(1, pa.field("value", pa.string())),
            RECORD_SCHEMA.set(2, pa.field("headers", pa.list_(pa.binary()))),
            RECORD_SCHEMA.append(pa.field("offset_delta", pa.int64(), nullable=False)),
            RECORD_SCHEMA.append(pa.field("more", pa.int32())),
            pa.schema(list(RECORD_SCHEMA)[:3]),
            pa.schema(list(RECORD_SCHEMA)[::-1]),
        ],
        ids=["ns", "int", "text", "headers", "int64 deltas", "more", "few", "order"],
    )
    def test_columns_of_another_type_are_refused(self, store, schema):
        """Their bytes have the correct checksum and would be read as other values."""
        sink = pa.BufferOutputStream()
        metadata = segment_schema(TOPIC_ID, 0).metadata
        with ipc.new_file(sink, schema.with_metadata(metadata)) as writer:
            writer.write_batch(empty(schema))
        with pytest.raises(CorruptRecordError, match="columns"):
            put_bytes(store, sink.getvalue())

    def test_a_batch_without_a_header_is_refused_where_it_is(self, store):
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, segment_schema(TOPIC_ID, 0)) as writer:
            writer.write_batch(numbered(0, 1))
        reader = put_bytes(store, sink.getvalue())
        with pytest.raises(CorruptRecordError, match="no batch header") as caught:
            list(reader.read(0))
        assert caught.value.position == reader.position(0)


def empty(schema):
    columns = [pa.array([], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class TestFooter:
    """No checksum covers the footer: it is checked by the positions of its blocks."""

    def with_blocks(self, store, change):
        """A segment of three batches with a footer of other blocks."""
        put_segment(store, [numbered(0, 2), numbered(2, 2), numbered(4, 2)])
        content = store.open_buffer(PATH)
        view = memoryview(content)
        blocks = list(arrow_ipc.read_blocks(view[-arrow_ipc.footer_bytes(view) :]))
        listed = vector_of(blocks)
        assert content.to_pybytes().count(listed) == 1
        changed = vector_of(change(blocks)).ljust(len(listed), b"\0")
        return content.to_pybytes().replace(listed, changed)

    @pytest.mark.parametrize(
        "change",
        [
            lambda blocks: blocks[:2],
            lambda blocks: blocks[:1],
            lambda blocks: blocks[1:],
            lambda blocks: [blocks[0], blocks[2]],
            lambda blocks: [blocks[0], blocks[2], blocks[1]],
            lambda blocks: [blocks[0], blocks[0], blocks[2]],
            lambda blocks: [],
        ],
        ids=["last", "last two", "first", "middle", "swapped", "doubled", "all"],
    )
    def test_a_batch_that_it_leaves_out_or_misplaces_is_damage(self, store, change):
        damaged = self.with_blocks(store, change)
        with pytest.raises(CorruptRecordError):
            list(put_bytes(store, damaged).read(0))

    def test_as_it_was_it_is_none(self, store):
        same = self.with_blocks(store, lambda blocks: blocks)
        assert len(values_of(put_bytes(store, same).read(0))) == 6


def vector_of(blocks):
    """Blocks as in a footer: their number, then 24 bytes per block."""
    packed = [
        struct.pack("<qi4xq", block.position, block.metadata_bytes, block.body_bytes)
        for block in blocks
    ]
    return struct.pack("<I", len(blocks)) + b"".join(packed)


class TestHeadersThatDoNotFit:
    """Each header's own checksum fits, but the headers do not fit each other."""

    def refuse(self, store, parts, name=NAME):
        with pytest.raises(CorruptRecordError) as caught:
            list(put_bytes(store, segment_bytes(parts), name).read(0))
        assert caught.value.path.endswith(name.file_name)

    def test_a_plain_segment_with_a_gap_and_no_column_for_it(self, store):
        self.refuse(store, [[Part([row(), row()], last_delta=4)]])

    def test_batches_that_leave_offsets_out(self, store):
        self.refuse(store, [[Part([row()])], [Part([row()])], [Part([row()], base_delta=5)]])

    def test_a_plain_segment_that_does_not_begin_at_its_base(self, store):
        self.refuse(store, [[Part([row()], base_delta=1)]])

    def test_headers_that_leave_offsets_out_within_a_batch(self, store):
        self.refuse(store, [[Part([row()]), Part([row()], base_delta=3)]])

    @pytest.mark.parametrize("deltas", [[3], [6], [5, 7]])
    def test_batches_that_go_back_or_overlap_where_gaps_are_allowed(self, store, deltas):
        first, second = Part([row(), row()], deltas=[5, 6]), Part([row()] * len(deltas), deltas)
        for parts in ([[first], [second]], [[first, second]]):
            self.refuse(store, parts, SegmentName(0, 9, 1))

    @pytest.mark.parametrize("said", [1, 3])
    def test_headers_that_speak_of_fewer_rows_or_more_than_there_are(self, store, said):
        parts = [[Part([row(b"a"), row(b"b"), row(b"c")][:said], deltas=[0, 4, 8][:said])]]
        with ipc.open_file(segment_bytes(parts)) as reader:
            header = reader.get_batch_with_custom_metadata(0).custom_metadata
            schema = reader.schema
        rows = record_batch([row(b"a"), row(b"b")])
        deltas = pa.array([0, 4], pa.int32())
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, schema) as writer:
            records = rows.append_column(OFFSET_DELTA_FIELD, deltas)
            writer.write_batch(
                records.replace_schema_metadata(schema.metadata), custom_metadata=header
            )
        reader = put_bytes(store, sink.getvalue(), SegmentName(0, 9, 1))
        with pytest.raises(CorruptRecordError, match="rows"):
            list(reader.read(0, check_crcs=False))

    def test_the_end_of_such_a_log_is_not_told_either(self, store):
        reader = put_bytes(store, segment_bytes([[Part([row(), row()], last_delta=4)]]))
        with pytest.raises(CorruptRecordError):
            reader.end_offset  # noqa: B018 - reading the header is the test


def test_the_sample_reads_as_it_should(store):
    """The same segment without damage is read, so each error above is for its own reason."""
    reader = put_bytes(store, segment_bytes([[Part([row(b"a")]), Part([row(b"b")])]]))
    assert values_of(reader.read(0)) == [(0, b"a"), (1, b"b")]
    deltas = [[Part([row(b"a")], deltas=[3])]]
    assert OFFSET_DELTA_FIELD.name in ipc.open_file(segment_bytes(deltas)).schema.names
    assert values_of(segment_reader(store).read(1)) == [(1, b"b")]
