"""The time index: Kafka's TimeIndexTest, and a scan over all records as the judge."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.time_index import TimeIndex, time_index_bytes

BASE = 45
U32_MAX = 2**32 - 1
I64 = (-(2**63), 2**63 - 1)


def index_of(entries, base=BASE):
    """An index as it comes out of its file; entries are timestamp and relative offset."""
    return TimeIndex.from_bytes(base, pa.py_buffer(time_index_bytes(entries)))


class TestLookup:
    def test_in_an_empty_index_is_the_segments_start(self):
        assert len(index_of([])) == 0
        assert index_of([]).lookup(100) == BASE

    def test_below_between_and_at_entries(self):
        index = index_of([(10 * number, 10 * number) for number in range(1, 30)])
        assert len(index) == 29
        assert index.lookup(9) == BASE
        assert index.lookup(25) == BASE + 20
        assert index.lookup(30) == BASE + 30
        assert index.lookup(10_000) == BASE + 290

    def test_of_the_largest_and_smallest_numbers_that_an_entry_holds(self):
        index = index_of([(I64[0], 0), (0, 1), (I64[1], U32_MAX)], 2**40)
        assert index.lookup(I64[0]) == 2**40
        assert index.lookup(-1) == 2**40
        assert index.lookup(I64[1] - 1) == 2**40 + 1
        assert index.lookup(I64[1]) == 2**40 + U32_MAX

    @given(
        st.lists(st.integers(-50, 50), min_size=1, max_size=40),
        st.lists(st.booleans(), min_size=40, max_size=40),
        st.integers(-60, 60),
    )
    def test_no_record_at_or_after_a_time_comes_before_the_answer(self, times, indexed, asked):
        """Entries as a writer makes them: at some batches, the largest so far and where it was."""
        entries = []
        for behind in range(1, len(times)):
            largest = max(times[:behind])
            if indexed[behind] and (not entries or largest > entries[-1][0]):
                entries.append((largest, times.index(largest)))
        answer = index_of(entries, base=0).lookup(asked)
        first = next((at for at, time in enumerate(times) if time >= asked), len(times))
        assert answer <= first
        at_or_before = [offset for time, offset in entries if time <= asked]
        assert answer == max(at_or_before, default=0), "it is the closest that the entries allow"


class TestFile:
    def test_an_entry_is_twelve_bytes_little_endian_timestamp_then_offset(self):
        assert time_index_bytes([(1, 2), (0x0102030405060708, 0x090A0B0C)]) == bytes.fromhex(
            "0100000000000000 02000000 0807060504030201 0c0b0a09"
        )

    @pytest.mark.parametrize("entry", [(0, U32_MAX + 1), (0, -1), (2**63, 0)])
    def test_a_number_that_does_not_fit_is_refused_rather_than_cut(self, entry):
        with pytest.raises(OverflowError):
            time_index_bytes([entry])

    @pytest.mark.parametrize("length", [1, 8, 11, 13, 23])
    def test_a_part_of_an_entry_is_damage(self, length):
        data = time_index_bytes([(1, 1), (2, 2)])[:length]
        with pytest.raises(ValueError, match="not a whole number of 12-byte entries"):
            TimeIndex.from_bytes(BASE, pa.py_buffer(data))

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
    def test_entries_that_do_not_increase_are_damage(self, entries, field):
        data = b"".join(struct.pack("<qI", *entry) for entry in entries)
        with pytest.raises(ValueError, match=f"{field} does not strictly increase"):
            TimeIndex.from_bytes(BASE, pa.py_buffer(data))

    def test_extreme_timestamps_do_increase(self):
        """Their difference does not fit into 64 bits."""
        assert len(index_of([(I64[0], 0), (I64[1], 1)])) == 2
