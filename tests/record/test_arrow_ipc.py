"""Footer and messages of an Arrow file: the results equal pyarrow's, damage is an error."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from spark_log.record import arrow_ipc
from tests.record.samples import numbered

WANTED = b"spark_log.batch"


def arrow_file(batches, *, compression=None, metadata=None):
    """An Arrow file of these batches, each with its metadata (a dict, or None for none)."""
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    schema = batches[0].schema if batches else numbered(0, 1).schema
    with ipc.new_file(sink, schema, options=options) as writer:
        for batch, custom in itertools.zip_longest(batches, metadata or []):
            writer.write_batch(batch, custom_metadata=custom)
    return sink.getvalue()


def blocks_of(data):
    view = memoryview(data)
    return list(arrow_ipc.read_blocks(view[-arrow_ipc.footer_bytes(view) :]))


FILE = arrow_file(
    [numbered(0, 3), numbered(3, 1), numbered(4, 5)],
    metadata=[{WANTED: b"one"}, {b"other": b"x", WANTED: b"two"}, {WANTED: b"three"}],
)
FOOTER = bytes(memoryview(FILE)[-arrow_ipc.footer_bytes(memoryview(FILE)) :])
MESSAGES = [
    bytes(memoryview(FILE)[block.position : block.position + block.metadata_bytes])
    for block in blocks_of(FILE)
]


class TestAgreesWithPyarrow:
    @pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
    @pytest.mark.parametrize("counts", [[1], [5, 1, 300], [2] * 70, [0, 3, 0]])
    def test_every_block_holds_the_batch_that_pyarrow_reads(self, counts, compression):
        batches = [numbered(at, count) for at, count in enumerate(counts)]
        data = arrow_file(batches, compression=compression)
        reader = ipc.open_file(data)
        blocks = blocks_of(data)
        assert len(blocks) == reader.num_record_batches
        for block, batch in zip(blocks, batches, strict=True):
            length = block.metadata_bytes + block.body_bytes
            message = ipc.read_message(data.slice(block.position, length))
            assert message.type == "record batch"
            assert message.body.size == block.body_bytes
            assert ipc.read_record_batch(message, reader.schema).equals(batch)

    def test_blocks_follow_each_other_without_a_gap_up_to_the_footer(self):
        blocks = blocks_of(FILE)
        ends = [block.position + block.metadata_bytes + block.body_bytes for block in blocks]
        end_of_stream = 8
        footer = FILE.size - len(FOOTER)
        assert ends == [*(block.position for block in blocks[1:]), footer - end_of_stream]

    def test_a_file_without_batches_has_no_blocks(self):
        assert blocks_of(arrow_file([])) == []

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from([b"a", b"spark_log", WANTED, b"spark_log.batch2"]),
                st.binary(min_size=1, max_size=90).map(bytes.hex).map(str.encode),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_custom_metadata_is_what_pyarrow_says(self, metadata):
        data = arrow_file([numbered(0, 2)] * len(metadata), metadata=metadata)
        reader = ipc.open_file(data)
        for ordinal, block in enumerate(blocks_of(data)):
            found = reader.get_batch_with_custom_metadata(ordinal).custom_metadata or {}
            message = memoryview(data)[block.position : block.position + block.metadata_bytes]
            assert arrow_ipc.custom_metadata(message).get(WANTED) == found.get(WANTED)

    def test_long_and_empty_metadata_values_are_read(self):
        long = b"0123456789abcdef" * 10_000
        data = arrow_file([numbered(0, 1)] * 2, metadata=[{WANTED: long}, {WANTED: b""}])
        found = [
            arrow_ipc.custom_metadata(
                memoryview(data)[block.position : block.position + block.metadata_bytes]
            )[WANTED]
            for block in blocks_of(data)
        ]
        assert found == [long, b""]

    @pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
    def test_a_message_tells_how_its_body_is_compressed(self, codec):
        compression = None if codec == "none" else codec
        data = arrow_file([numbered(0, 50)] * 2, compression=compression)
        told = [
            arrow_ipc.codec(
                memoryview(data)[block.position : block.position + block.metadata_bytes]
            )
            for block in blocks_of(data)
        ]
        assert told == [codec] * 2

    def test_the_tail_tells_how_long_the_footer_is(self):
        view = memoryview(FILE)
        assert arrow_ipc.footer_bytes(view[-10:]) == arrow_ipc.footer_bytes(view)
        footer = view[-arrow_ipc.footer_bytes(view[-10:]) :]
        assert list(arrow_ipc.read_blocks(footer)) == blocks_of(FILE)


class TestDamage:
    @pytest.mark.parametrize("length", range(10))
    def test_a_file_too_short_for_a_trailer_is_refused(self, length):
        with pytest.raises(ValueError, match="too short"):
            arrow_ipc.footer_bytes(memoryview(FOOTER)[-length:] if length else memoryview(b""))

    @pytest.mark.parametrize(
        "tail",
        [b"\x01\0\0\0ARROW2", b"\0\0\0\0ARROW1", b"\xff\xff\xff\xffARROW1", b"0123456789" * 2],
    )
    def test_a_tail_without_a_trailer_is_refused(self, tail):
        with pytest.raises(ValueError, match="does not end as an Arrow file does"):
            arrow_ipc.footer_bytes(memoryview(tail))

    @given(st.data())
    def test_a_damaged_footer_is_an_error_or_still_blocks(self, data):
        damaged = memoryview(draw_damage(data, FOOTER))
        try:
            length = arrow_ipc.footer_bytes(damaged)
            blocks = arrow_ipc.read_blocks(damaged[max(0, len(damaged) - length) :])
        except ValueError:
            return
        assert all(isinstance(block, arrow_ipc.Block) for block in blocks)

    @given(st.sampled_from(MESSAGES), st.data())
    def test_a_damaged_message_is_an_error_or_some_value(self, message, data):
        damaged = memoryview(draw_damage(data, message))
        try:
            value = arrow_ipc.custom_metadata(damaged).get(WANTED)
            told = arrow_ipc.codec(damaged)
        except ValueError:
            return
        assert value is None or isinstance(value, bytes)
        assert told in ("none", "lz4", "zstd")

    @given(st.binary(max_size=200))
    def test_random_bytes_are_an_error_or_give_nothing(self, noise):
        for read in (
            lambda view: arrow_ipc.read_blocks(view[: arrow_ipc.footer_bytes(view)]),
            arrow_ipc.read_blocks,
            arrow_ipc.custom_metadata,
            arrow_ipc.codec,
        ):
            try:
                read(memoryview(noise))
            except ValueError:
                continue

    def test_any_flipped_bit_of_footer_and_message_is_survived(self):
        for original, read in [
            (FOOTER, arrow_ipc.read_blocks),
            (MESSAGES[1], arrow_ipc.custom_metadata),
            (MESSAGES[1], arrow_ipc.codec),
        ]:
            for bit in range(8 * len(original)):
                damaged = bytearray(original)
                damaged[bit // 8] ^= 1 << bit % 8
                try:
                    read(memoryview(damaged))
                except ValueError:
                    continue

    def test_a_footer_never_gives_fewer_blocks_than_it_claims(self):
        """The vector of blocks is near the end: a cut footer must not give fewer blocks."""
        claimed = len(blocks_of(FILE))
        for length in range(len(FOOTER)):
            try:
                blocks = arrow_ipc.read_blocks(memoryview(FOOTER)[:length])
            except ValueError:
                continue
            assert len(blocks) == claimed


def draw_damage(data, original):
    """Bytes with a few of them changed, and perhaps cut at either end."""
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(0, 4), label="changes")):
        at = data.draw(st.integers(0, len(damaged) - 1), label="at")
        damaged[at] = data.draw(st.integers(0, 255), label="to")
    first = data.draw(st.just(0) | st.integers(0, len(damaged)), label="from")
    last = data.draw(st.just(len(damaged)) | st.integers(first, len(damaged)), label="to")
    return bytes(damaged[first:last])
