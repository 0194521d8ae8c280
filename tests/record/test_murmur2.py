"""Murmur2: a key has the same partition as with Kafka's clients."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.record.murmur2 import _LONG_WORDS, murmur2_of_keys, partition_for_keys

LONG_BYTES = 4 * _LONG_WORDS


def scalar_murmur2(data):
    """Murmur2, one key and one byte at a time."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    result = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        result = (result * multiplier & mask) ^ word
    if whole < len(data):
        result = (result ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    result = (result ^ result >> 13) * multiplier & mask
    return result ^ result >> 15


keys = st.none() | st.one_of(
    st.binary(max_size=20),
    st.text(max_size=8).map(str.encode),
    st.builds(
        lambda length, seed: (seed * (length // len(seed) + 1))[:length],
        st.integers(LONG_BYTES - 9, LONG_BYTES + 9),
        st.binary(min_size=1, max_size=9),
    ),
)


class TestMurmur2:
    @pytest.mark.parametrize(
        ("key", "signed"),
        [
            (b"21", -973932308),
            (b"foobar", -790332482),
            (b"a-little-bit-long-string", -985981536),
            (b"a-little-bit-longer-string", -1486304829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            (b"abc", 479470107),
        ],
    )
    def test_kafkas_own_examples(self, key, signed):
        assert murmur2_of_keys(pa.array([key])).astype(np.int32).tolist() == [signed]
        assert scalar_murmur2(key) == signed & 0xFFFFFFFF

    @given(st.lists(keys, max_size=30))
    def test_a_column_is_hashed_as_its_keys_one_by_one(self, column):
        hashes = murmur2_of_keys(pa.array(column, pa.binary()))
        assert hashes.dtype == np.uint32
        assert hashes.tolist() == [scalar_murmur2(key or b"") for key in column]

    @given(st.lists(st.none() | st.text(max_size=12), max_size=30))
    def test_strings_are_hashed_as_their_utf_8(self, column):
        hashes = murmur2_of_keys(pa.array(column, pa.string()))
        assert hashes.tolist() == [scalar_murmur2((key or "").encode()) for key in column]

    @given(st.lists(keys, min_size=1, max_size=12), st.data())
    def test_a_slice_is_hashed_as_if_it_were_alone(self, column, data):
        first = data.draw(st.integers(0, len(column)))
        count = data.draw(st.integers(0, len(column) - first))
        part = pa.array(column, pa.binary()).slice(first, count)
        expected = [scalar_murmur2(key or b"") for key in column[first : first + count]]
        assert murmur2_of_keys(part).tolist() == expected

    @pytest.mark.parametrize("length", [*range(9), *range(LONG_BYTES - 5, LONG_BYTES + 6), 100_003])
    def test_every_length_has_its_own_path_to_the_same_hash(self, length):
        key = bytes(np.arange(length, dtype=np.uint64).astype(np.uint8))
        column = pa.array([b"x", key, b"", key, b"yy"], pa.binary())
        expected = [scalar_murmur2(key) for key in column.to_pylist()]
        assert murmur2_of_keys(column).tolist() == expected

    def test_a_null_that_owns_bytes_is_hashed_as_empty(self):
        offsets = pa.py_buffer(np.array([0, 3, 9, 12], "<i4"))
        buffers = [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"onehiddentwo")]
        column = pa.Array.from_buffers(pa.binary(), 3, buffers)
        assert column.to_pylist() == [b"one", None, b"two"]
        expected = [scalar_murmur2(key or b"") for key in column.to_pylist()]
        assert murmur2_of_keys(column).tolist() == expected

    @pytest.mark.parametrize("column", [[], [None], [None, None], [b""], [b"", None]])
    def test_columns_without_a_single_byte(self, column):
        hashes = murmur2_of_keys(pa.array(column, pa.binary()))
        assert hashes.tolist() == [scalar_murmur2(b"")] * len(column)


class TestPartitionForKeys:
    @given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 2**31 - 1))
    def test_the_partition_is_the_positive_hash_modulo_their_number(self, column, num_partitions):
        partitions = partition_for_keys(pa.array(column, pa.binary()), num_partitions)
        assert partitions.dtype == np.int32
        expected = [(scalar_murmur2(key) & 0x7FFFFFFF) % num_partitions for key in column]
        assert partitions.tolist() == expected

    def test_a_negative_hash_loses_its_sign_as_in_to_positive(self):
        # Kafka: (-973932308 & 0x7fffffff) % 100. The absolute value would give 8.
        assert partition_for_keys(pa.array([b"21"]), 100).tolist() == [1173551340 % 100]

    def test_one_partition_takes_all(self):
        column = pa.array([f"key {number}".encode() for number in range(100)])
        assert set(partition_for_keys(column, 1).tolist()) == {0}

    def test_keys_spread_over_all_partitions(self):
        column = pa.array([f"key {number}".encode() for number in range(1_000)])
        counts = np.bincount(partition_for_keys(column, 7), minlength=7)
        assert counts.min() > 100
