"""The last record of each key, in memory or on disk, compared with a dictionary."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.clean import offset_map
from spark_log.log.clean.offset_map import OffsetMap
from spark_log.record.temporary_rows import TemporaryRows

KEYS = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([b"a" * 40, b"b" * 1200]))


def last_rows(chunks):
    """Return the last row of each key, as the model."""
    last, row = {}, 0
    for keys in chunks:
        for key in keys:
            if key is not None:
                last[key] = row
            row += 1
    return set(last.values())


def kept_rows(chunks, *, memory_bytes):
    row_count = sum(map(len, chunks))
    key_bytes = sum(len(key or b"") for keys in chunks for key in keys)
    with OffsetMap(row_count, key_bytes, memory_bytes=memory_bytes) as latest:
        for keys in chunks:
            latest.add(pa.array(keys, pa.binary()))
        return set(np.flatnonzero(latest.is_latest(0, row_count)).tolist())


@given(chunks=st.lists(st.lists(KEYS, max_size=30), max_size=6))
@pytest.mark.parametrize("memory_bytes", [2**20, 200])
def test_the_map_gives_the_same_rows_as_a_dictionary(memory_bytes, chunks):
    assert kept_rows(chunks, memory_bytes=memory_bytes) == last_rows(chunks)


@given(chunks=st.lists(st.lists(KEYS, max_size=30), max_size=6))
def test_keys_with_the_same_hash_are_distinguished(chunks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_map, "murmur2_of_keys", lambda keys: np.zeros(len(keys), np.uint32))
        assert kept_rows(chunks, memory_bytes=2**20) == last_rows(chunks)
        assert kept_rows(chunks, memory_bytes=200) == last_rows(chunks)


def test_rows_that_are_not_included_replace_nothing():
    with OffsetMap(3, 3, memory_bytes=2**20) as latest:
        latest.add(pa.array([b"a"], pa.binary()))
        latest.add(pa.array([b"a"], pa.binary()), include=False)
        latest.add(pa.array([None], pa.binary()))
        assert latest.is_latest(0, 3).tolist() == [True, False, False]


class TestMemory:
    KEYS = 4_000
    MEMORY_BYTES = 65_536

    @pytest.fixture
    def seen(self, monkeypatch):
        """Record how many bytes of keys are in memory at once."""
        seen = []
        find = offset_map._last_of_each  # noqa: SLF001 - its memory

        def noted(keys, hashes):
            seen.append(keys.nbytes)
            return find(keys, hashes)

        monkeypatch.setattr(offset_map, "_last_of_each", noted)
        return seen

    @pytest.mark.parametrize("told_bytes", [0, 10**6, 10**8])
    def test_memory_is_bounded_if_keys_are_larger_than_expected(self, seen, told_bytes):
        """As in compressed files."""
        keys = [b"%08d" % (number % self.KEYS) * 50 for number in range(2 * self.KEYS)]
        with OffsetMap(1, told_bytes, memory_bytes=self.MEMORY_BYTES) as latest:
            for first in range(0, len(keys), 100):
                latest.add(pa.array(keys[first : first + 100], pa.binary()))
                assert sum(each.nbytes for each in latest._pieces) <= self.MEMORY_BYTES  # noqa: SLF001
            kept = latest.is_latest(0, len(keys))
        assert np.flatnonzero(kept).tolist() == list(range(self.KEYS, 2 * self.KEYS))
        assert max(seen) <= 2 * self.MEMORY_BYTES

    def test_small_parts_of_keys_are_written_to_files_together(self, monkeypatch):
        written = []
        write = TemporaryRows.write

        def noted(bucket, rows):
            written.append(rows.num_rows)
            write(bucket, rows)

        monkeypatch.setattr(TemporaryRows, "write", noted)
        keys = [b"%08d" % number for number in range(2_000)]
        with OffsetMap(2_000, 10 * 2**20, memory_bytes=2**20) as latest:
            for first in range(0, 2_000, 10):
                latest.add(pa.array(keys[first : first + 10], pa.binary()))
            assert latest.is_latest(0, 2_000).all()
        assert len(written) <= 11
        assert sum(written) == 2_000


def test_any_range_of_rows_can_be_read():
    keys = [[b"%d" % (number % 17) for number in range(100)]]
    expected = last_rows(keys)
    with OffsetMap(100, 200, memory_bytes=2**20) as latest:
        latest.add(pa.array(keys[0], pa.binary()))
        for first in range(0, 100, 7):
            kept = latest.is_latest(first, min(11, 100 - first))
            assert [first + index for index in np.flatnonzero(kept)] == sorted(
                row for row in expected if first <= row < first + 11
            )


def test_no_temporary_file_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with OffsetMap(2, 2, memory_bytes=1) as latest:
        latest.add(pa.array([b"a", b"b", b"a"], pa.binary()))
        assert list(tmp_path.iterdir()) == []
        assert latest.is_latest(0, 3).tolist() == [False, True, True]
        assert list(tmp_path.iterdir()) == [], "a process that is killed here leaves none"
