"""The key index of a segment: built in bounded memory, damaged, and asked for any key."""

import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import NotFoundError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.key_index import format as key_index_format
from spark_log.log.key_index import writer as key_index_writer
from spark_log.log.key_index.format import pack, unpack, unpack_one
from spark_log.log.key_index.reader import KeyIndex
from spark_log.log.key_index.writer import KeyIndexWriter
from spark_log.log.segment import PAGE_DTYPE
from spark_log.record import murmur2_of_key, murmur2_of_keys
from spark_log.record.batch_header import BatchHeader
from spark_log.storage.memory import MemoryStore
from tests.log.support import DIRECTORY, HookedStore
from tests.record.samples import header_of, row

NAME = SegmentName(1_000, 10_999, 1_000_001, is_parquet=True)
PATH = f"{DIRECTORY}/{NAME.key_index}"
PAGES = np.array([(2, 0, 0, 10, 4, 100), (2, 0, 10, 7, 104, 90)], PAGE_DTYPE)

some_keys = st.none() | st.sampled_from([b"", b"a", b"b"]) | st.binary(max_size=3)
segments = st.lists(st.lists(some_keys, min_size=1, max_size=8), min_size=1, max_size=5)


@pytest.fixture
def small(monkeypatch):
    """Blocks of two entries, and temporary files for each batch."""
    for module in (key_index_format, key_index_writer):
        monkeypatch.setattr(module, "BLOCK_ROWS", 2)
    monkeypatch.setattr(key_index_writer, "_SPREAD_BYTES", 1)


def new_store():
    return MemoryStore(uuid.uuid4().hex)


def add(writer, keys, **fields):
    writer.add(pa.array(keys, pa.binary()), [header_of([row(key=key) for key in keys], **fields)])


def put(writer, append_id="one", pages=PAGES):
    store = new_store()
    writer.put(store, DIRECTORY, NAME, append_id, pages)
    writer.discard()
    return store


def write(batches, append_id="one", **options):
    """Write the index of batches of keys; return the store."""
    writer = KeyIndexWriter(**options)
    for keys in batches:
        add(writer, keys)
    return put(writer, append_id)


def index_of(store, append_id="one"):
    return KeyIndex.open(store, DIRECTORY, NAME, append_id)


def rows(index, key):
    return list(index.rows(murmur2_of_key(key)))


class TestAnySegment:
    @given(segments, st.sampled_from([1, 2**26]), st.booleans(), st.sampled_from([1, 3, 2_048]))
    def test_all_rows_of_each_key_are_found(self, batches, memory, is_mapped, block):
        with pytest.MonkeyPatch.context() as patch:
            for module in (key_index_format, key_index_writer):
                patch.setattr(module, "BLOCK_ROWS", block)
            patch.setattr(key_index_writer, "_SPREAD_BYTES", 1)
            inner = write(batches, memory_bytes=memory)
            index = index_of(HookedStore(inner, is_mapped=is_mapped))
            keys = [each for batch in batches for each in batch]
            assert (index.row_count, index.record_count) == (
                len(keys),
                sum(key is not None for key in keys),
            )
            for key in {key for key in keys if key is not None}:
                found = rows(index, key)
                assert found == sorted(found, reverse=True)
                same = murmur2_of_key(key)
                assert found == [
                    at
                    for at, each in reversed(list(enumerate(keys)))
                    if each is not None and murmur2_of_key(each) == same
                ]
            assert rows(index, b"never written") == []
            assert np.array_equal(index.tables.pages, PAGES)

    @given(st.lists(st.integers(0, 2**20 - 1), min_size=1), st.integers(20, 32))
    def test_packed_numbers_are_read_again(self, numbers, bits):
        data = pack(np.array(numbers, np.uint32), bits)
        assert unpack(data, len(numbers), bits).tolist() == numbers
        assert [unpack_one(data, at, bits) for at in range(len(numbers))] == numbers


class TestEntries:
    def test_rows_of_one_hash_in_many_blocks_are_found(self, small):
        index = index_of(write([[b"hot"] * 20, [b"other", b"hot"]], memory_bytes=1))
        assert rows(index, b"hot") == [21, *range(19, -1, -1)]
        assert rows(index, b"other") == [20]

    def test_control_records_and_null_keys_are_left_out(self):
        writer = KeyIndexWriter()
        add(writer, [b"k"], attributes=BatchHeader.CONTROL_BIT)
        add(writer, [None, b"other"])
        index = index_of(put(writer))
        assert (index.row_count, index.record_count) == (2, 1)
        assert (rows(index, b"k"), rows(index, b"other")) == ([], [1])

    def test_epoch_and_kind_of_timestamp_are_those_of_the_batch(self):
        writer = KeyIndexWriter()
        add(writer, [b"a", None], leader_epoch=3)
        add(writer, [b"b"], leader_epoch=3)
        add(writer, [b"c"], leader_epoch=4, attributes=BatchHeader.TIMESTAMP_TYPE_BIT)
        index = index_of(put(writer))
        assert [index.run_of(at) for at in range(4)] == [(3, 0), (3, 0), (3, 0), (4, 1)]
        assert len(index.tables.runs) == 2

    def test_a_segment_without_keys_has_an_index_without_blocks(self):
        index = index_of(write([[None] * 5]))
        assert (index.row_count, index.record_count, rows(index, b"")) == (5, 0, [])

    def test_a_block_is_one_read_and_the_index_is_small(self):
        count = 40_000
        store = HookedStore(write([[b"%06d" % at for at in range(count)]]), is_mapped=False)
        index = index_of(store)
        assert len(store.calls) == 1
        store.calls.clear()
        assert rows(index, b"012345") == [12_345]
        assert len(store.calls) == 1
        assert store.inner.head(PATH).size_bytes < 5 * count

    def test_an_index_in_memory_is_that_of_storage(self):
        keys = pa.array([b"%d" % at for at in range(5_000)])
        writer = KeyIndexWriter()
        writer.add(keys, [header_of([row()] * 5_000)])
        index = KeyIndex.of_buffer(writer.build("one", PAGES))
        assert rows(index, b"4321") == [4_321]
        assert index.memory_bytes > 5_000 * 4
        assert murmur2_of_keys(keys).size == index.record_count


class TestDamage:
    def test_an_index_of_another_segment_is_refused(self):
        store = write([[b"a"]])
        with pytest.raises(ValueError, match="of another segment"):
            index_of(store, "two")

    def test_each_damaged_byte_is_noticed(self):
        keys = [b"key-%d" % at for at in range(20)]
        store = write([keys])
        whole = store.open_buffer(PATH).to_pybytes()
        for at in range(len(whole)):
            store.put(PATH, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ValueError, match=r".+"):
                [rows(index_of(store), key) for key in keys]

    @pytest.mark.parametrize("is_mapped", [True, False])
    def test_each_cut_is_noticed(self, is_mapped):
        store = write([[b"a", b"b"]])
        whole = store.open_buffer(PATH).to_pybytes()
        for end in range(len(whole)):
            store.put(PATH, whole[:end])
            with pytest.raises(ValueError, match=r".+"):
                index_of(HookedStore(store, is_mapped=is_mapped))

    @pytest.mark.parametrize("version", [1, 3])
    def test_another_version_is_refused(self, monkeypatch, version):
        with monkeypatch.context() as patch:
            patch.setattr(key_index_format, "_VERSION", version)
            store = write([[b"a"]])
        with pytest.raises(ValueError, match=f"version {version}, expected 2"):
            index_of(store)

    def test_a_missing_index_is_not_found(self):
        with pytest.raises(NotFoundError):
            index_of(new_store())

    def test_a_full_disk_for_temporary_files_costs_the_index_alone(self, monkeypatch, small):
        def full(schema, purpose):
            raise OSError("no space left")

        monkeypatch.setattr(key_index_writer, "TemporaryRows", full)
        writer = KeyIndexWriter(memory_bytes=1)
        add(writer, [b"a"])
        with pytest.raises(OSError, match="no space left"):
            put(writer)
