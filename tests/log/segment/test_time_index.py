"""The time index: Kafka's TimeIndexTest, and comparison with a scan over all records."""

import struct

import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.segment.offset_index import offset_index_bytes
from spark_log.log.segment.time_index import TimeIndex, TimestampOffset, time_index_bytes

BASE = 45
U32_MAX = 2**32 - 1
I64 = (-(2**63), 2**63 - 1)
OFFSETS = offset_index_bytes([(3, 1_000), (7, 2_000)], "AAECAwQFBgcICQoLDA0ODw")
"""The offset index that the time index was written with."""


def read(data, base=BASE):
    return TimeIndex.from_bytes(base, pa.py_buffer(data), pa.py_buffer(OFFSETS))


def index_of(entries, base=BASE):
    """An index read from its file; entries are timestamp and relative offset."""
    return read(time_index_bytes(entries, OFFSETS), base)


class TestCeiling:
    def test_below_between_at_and_behind_entries(self):
        index = index_of([(10 * number, 10 * number) for number in range(1, 30)])
        assert len(index) == 29
        assert index.ceiling(9) == TimestampOffset(10, BASE + 10)
        assert index.ceiling(25) == TimestampOffset(30, BASE + 30)
        assert index.ceiling(30) == TimestampOffset(30, BASE + 30)
        assert index.ceiling(290) == TimestampOffset(290, BASE + 290)
        assert index.ceiling(291) is None

    def test_of_the_largest_and_smallest_numbers_that_an_entry_holds(self):
        index = index_of([(I64[0], 0), (0, 1), (I64[1], U32_MAX)], 2**40)
        assert index.ceiling(I64[0]) == TimestampOffset(I64[0], 2**40)
        assert index.ceiling(-1) == TimestampOffset(0, 2**40 + 1)
        assert index.ceiling(I64[1]) == TimestampOffset(I64[1], 2**40 + U32_MAX)

    @given(
        st.lists(st.tuples(st.integers(*I64), st.integers(0, U32_MAX)), min_size=1, max_size=30),
        st.lists(st.integers(*I64), max_size=10),
    )
    def test_answers_as_a_scan_over_the_entries_does(self, drawn, asked):
        times, offsets = (sorted(set(column)) for column in zip(*drawn, strict=True))
        entries = list(zip(times, offsets, strict=False))
        index = index_of(entries)
        assert list(index.entries()) == [TimestampOffset(t, BASE + offset) for t, offset in entries]
        for asked_us in [*asked, *times]:
            found = (TimestampOffset(t, BASE + o) for t, o in entries if t >= asked_us)
            assert index.ceiling(asked_us) == next(found, None)


class TestFile:
    def test_an_entry_is_twelve_bytes_little_endian_timestamp_then_offset(self):
        data = time_index_bytes([(1, 2), (0x0102030405060708, 0x090A0B0C)], OFFSETS)
        assert data[:-4] == bytes.fromhex("0100000000000000 02000000 0807060504030201 0c0b0a09")

    def test_it_ends_in_the_checksum_of_the_offset_indexs_checksum_and_the_entries(self):
        data = time_index_bytes([(1, 2)], OFFSETS)
        assert data[-4:] == struct.pack("<I", crc32c(OFFSETS[-4:] + data[:-4]))

    def test_no_entries_are_no_bytes(self):
        assert time_index_bytes([], OFFSETS) == b""

    @pytest.mark.parametrize("entry", [(0, U32_MAX + 1), (0, -1), (2**63, 0)])
    def test_a_number_that_does_not_fit_is_refused_rather_than_cut(self, entry):
        with pytest.raises(OverflowError):
            time_index_bytes([entry], OFFSETS)

    @pytest.mark.parametrize("length", [*range(28), 29, 40])
    def test_any_other_length_is_damage(self, length):
        data = (time_index_bytes([(1, 1), (2, 2)], OFFSETS) + bytes(20))[:length]
        with pytest.raises(ValueError, match=r"entries of 12 bytes|checksum"):
            read(data)

    def test_any_bit_is_seen_when_it_is_damaged(self):
        data = time_index_bytes([(1, 1), (2, 200), (9, 3_000)], OFFSETS)
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ValueError, match="damaged, or was made for another file"):
                read(bytes(damaged))

    def test_one_that_was_made_with_another_offset_index_is_refused(self):
        """Each may be valid by itself, but they index different positions."""
        data = pa.py_buffer(time_index_bytes([(1, 1)], OFFSETS))
        other = offset_index_bytes([(4, 1_100)], "AAECAwQFBgcICQoLDA0ODw")
        with pytest.raises(ValueError, match="was made for another file"):
            TimeIndex.from_bytes(BASE, data, pa.py_buffer(other))
        assert len(TimeIndex.from_bytes(BASE, data, None)) == 1, "unless nobody knows"

    @pytest.mark.parametrize(
        ("entries", "field"),
        [
            ([(10, 1), (9, 2)], "timestamp"),
            ([(10, 1), (10, 2)], "timestamp"),
            ([(10, 2), (11, 1)], "relative_offset"),
            ([(10, 1), (11, 1)], "relative_offset"),
            ([(0, 0), (0, 0)], "timestamp"),
        ],
    )
    def test_entries_that_do_not_increase_are_refused(self, entries, field):
        packed = b"".join(struct.pack("<qI", *entry) for entry in entries)
        with pytest.raises(ValueError, match=f"{field} does not strictly increase"):
            read(packed + struct.pack("<I", crc32c(OFFSETS[-4:] + packed)))

    def test_extreme_timestamps_do_increase(self):
        """Their difference does not fit into 64 bits."""
        assert len(index_of([(I64[0], 0), (I64[1], 1)])) == 2
