"""The offset index: Kafka's OffsetIndexTest, and comparison with a sorted list."""

import bisect
import struct

import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.segment.offset_index import OffsetIndex, OffsetPosition, offset_index_bytes

BASE = 45
U32_MAX = 2**32 - 1

u32 = st.integers(0, U32_MAX)


ID = "AAECAwQFBgcICQoLDA0ODw"


def index_of(entries, base=BASE):
    """An index read from its file; entries are relative offset and position."""
    return OffsetIndex.from_bytes(base, pa.py_buffer(offset_index_bytes(entries, ID)), ID)


def sealed(entries):
    """Any bytes as an index file with a correct checksum."""
    return pa.py_buffer(entries + struct.pack("<I", crc32c(ID.encode() + entries)))


@st.composite
def entry_lists(draw):
    offsets = sorted(draw(st.sets(u32 | st.integers(0, 100), min_size=1, max_size=30)))
    positions = draw(st.sets(u32, min_size=len(offsets), max_size=len(offsets)))
    return list(zip(offsets, sorted(positions), strict=True))


class TestLookup:
    def test_of_what_is_there_and_of_what_lies_between_and_behind(self):
        index = index_of([(6, 1_000), (7, 2_000), (20, 3_000)])
        assert index.lookup(BASE + 5) is None
        assert index.lookup(BASE + 6) == OffsetPosition(BASE + 6, 1_000)
        assert index.lookup(BASE + 7) == OffsetPosition(BASE + 7, 2_000)
        assert index.lookup(BASE + 19) == OffsetPosition(BASE + 7, 2_000)
        assert index.lookup(BASE + 20) == OffsetPosition(BASE + 20, 3_000)
        assert index.lookup(2**62) == OffsetPosition(BASE + 20, 3_000)

    def test_before_the_base_offset_is_from_the_segments_start(self):
        assert index_of([(0, 8)]).lookup(BASE - 1) is None

    def test_of_an_entry_at_the_base_offset_itself(self):
        assert index_of([(0, 8)]).lookup(BASE) == OffsetPosition(BASE, 8)

    @pytest.mark.parametrize("base", [0, 2**40, 2**63 - 2**33])
    def test_of_the_largest_numbers_that_an_entry_holds(self, base):
        index = index_of([(U32_MAX - 1, U32_MAX - 1), (U32_MAX, U32_MAX)], base)
        assert index.lookup(base + U32_MAX - 2) is None
        assert index.lookup(base + U32_MAX - 1) == OffsetPosition(base + U32_MAX - 1, U32_MAX - 1)
        assert index.lookup(base + U32_MAX) == OffsetPosition(base + U32_MAX, U32_MAX)

    @given(entry_lists(), st.lists(st.integers(-10, U32_MAX + 10) | st.integers(0, 101)))
    def test_answers_as_a_sorted_list_does(self, entries, asked):
        index = index_of(entries)
        assert len(index) == len(entries)
        offsets = [offset for offset, _ in entries]
        for offset in [*asked, *offsets]:
            at = bisect.bisect_right(offsets, offset) - 1
            expected = OffsetPosition(BASE + offsets[at], entries[at][1]) if at >= 0 else None
            assert index.lookup(BASE + offset) == expected
            expected = (
                OffsetPosition(BASE + offsets[at + 1], entries[at + 1][1])
                if at + 1 < len(entries)
                else None
            )
            assert index.following(BASE + offset) == expected

    @given(entry_lists())
    def test_its_entries_and_the_last_of_them_are_those_it_was_made_of(self, entries):
        index = index_of(entries)
        expected = [OffsetPosition(BASE + offset, position) for offset, position in entries]
        assert list(index.entries()) == expected
        assert index.positions().tolist() == [position for _, position in entries]
        assert index.last() == expected[-1]


class TestFile:
    def test_an_entry_is_eight_bytes_little_endian_offset_then_position(self):
        data = offset_index_bytes([(1, 2), (0x01020304, 0x05060708)], ID)
        assert data[:-4] == bytes.fromhex("01000000 02000000 04030201 08070605")

    def test_it_ends_in_the_checksum_of_the_segments_append_id_and_the_entries(self):
        data = offset_index_bytes([(1, 2)], ID)
        assert data[-4:] == struct.pack("<I", crc32c(ID.encode() + data[:-4]))

    def test_no_entries_are_no_bytes(self):
        assert offset_index_bytes([], ID) == b""

    @pytest.mark.parametrize("entry", [(U32_MAX + 1, 0), (0, U32_MAX + 1), (-1, 0), (0, -1)])
    def test_a_number_that_does_not_fit_is_refused_rather_than_cut(self, entry):
        with pytest.raises(OverflowError):
            offset_index_bytes([entry], ID)

    @pytest.mark.parametrize("length", [*range(20), 21, 28])
    def test_any_other_length_is_damage(self, length):
        data = (offset_index_bytes([(1, 1), (2, 2)], ID) + bytes(20))[:length]
        with pytest.raises(ValueError, match=r"entries of 8 bytes|checksum"):
            OffsetIndex.from_bytes(BASE, pa.py_buffer(data), ID)

    def test_any_bit_is_seen_when_it_is_damaged(self):
        data = offset_index_bytes([(1, 1), (2, 200), (9, 3_000)], ID)
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ValueError, match="damaged, or was made for another file"):
                OffsetIndex.from_bytes(BASE, pa.py_buffer(bytes(damaged)), ID)

    def test_that_of_another_segment_is_refused_however_well_it_would_fit(self):
        data = pa.py_buffer(offset_index_bytes([(1, 1)], ID))
        with pytest.raises(ValueError, match="was made for another file"):
            OffsetIndex.from_bytes(BASE, data, ID[::-1])
        assert len(OffsetIndex.from_bytes(BASE, data, None)) == 1, "unless nobody knows"

    @pytest.mark.parametrize(
        ("entries", "field"),
        [
            ([(51, 0), (50, 1)], "relative_offset"),
            ([(51, 0), (51, 1)], "relative_offset"),
            ([(50, 1), (51, 1)], "position"),
            ([(50, 2), (51, 1)], "position"),
            ([(0, 0), (0, 0)], "relative_offset"),
            ([(1, 1), (U32_MAX, 2), (0, 3)], "relative_offset"),
        ],
    )
    def test_entries_that_do_not_increase_are_refused(self, entries, field):
        data = sealed(b"".join(struct.pack("<II", *entry) for entry in entries))
        with pytest.raises(ValueError, match=f"{field} does not strictly increase"):
            OffsetIndex.from_bytes(BASE, data, ID)
