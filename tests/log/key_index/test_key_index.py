"""The key index of a segment: written in bounded memory, damaged, and asked for any key."""

import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import NotFoundError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.key_index import format as key_index_format
from spark_log.log.key_index import rows as rows_module
from spark_log.log.key_index import writer as key_index_writer
from spark_log.log.key_index.format import MAX_STORED_BYTES
from spark_log.log.key_index.reader import KeyIndex
from spark_log.log.key_index.writer import KeyIndexWriter
from spark_log.record import murmur2_of_key, murmur2_of_keys
from spark_log.record.batch_header import BatchHeader
from spark_log.record.schema import OFFSET_DELTA_FIELD
from spark_log.storage.memory import MemoryStore
from tests.log.support import DIRECTORY, HookedStore
from tests.record.samples import header_of, headers, record_batch, row, rows_of

BASE = 1_000
NAME = SegmentName(BASE, BASE + 9_999, 1_000_001, is_parquet=True)
PATH = f"{DIRECTORY}/{NAME.key_index}"

segment_rows = st.fixed_dictionaries(
    {
        "key": st.none() | st.sampled_from([b"", b"a", b"b"]) | st.binary(max_size=3),
        "value": st.none() | st.binary(max_size=9) | st.just(b"x" * (MAX_STORED_BYTES + 1)),
        "headers": headers,
        "timestamp": st.integers(0, 2**40),
    }
)
segments = st.lists(st.lists(segment_rows, min_size=1, max_size=8), min_size=1, max_size=5)


@pytest.fixture
def small(monkeypatch):
    """Blocks of one hash, and temporary files for each batch."""
    monkeypatch.setattr(key_index_writer, "BLOCK_BYTES", 1)
    monkeypatch.setattr(key_index_writer, "_SPREAD_BYTES", 1)


def new_store():
    return MemoryStore(uuid.uuid4().hex)


def add(writer, rows, first, **fields):
    """Add one batch of consecutive offsets."""
    deltas = pa.array(range(first, first + len(rows)), pa.int32())
    records = record_batch(rows).append_column(OFFSET_DELTA_FIELD, deltas)
    last = first + len(rows) - 1
    header = header_of(rows, base_offset_delta=first, last_offset_delta=last, **fields)
    writer.add(records, [header])


def write(batches, store=None, *, append_id="one", **options):
    """Write the index of batches; return the store."""
    store = store or new_store()
    writer = KeyIndexWriter(store, DIRECTORY, NAME, **{"min_records": 0, **options})
    first = 0
    for rows in batches:
        add(writer, rows, first)
        first += len(rows)
    assert writer.put(append_id)
    writer.discard()
    return store


def index_of(store, append_id="one"):
    return KeyIndex(store, DIRECTORY, NAME, append_id)


def find(index, key, start_offset=0):
    return index.find(key, murmur2_of_key(key), start_offset)


class TestAnySegment:
    @given(segments, st.sampled_from([1, 2**26]), st.booleans(), st.sampled_from([1, 32_768]))
    def test_the_newest_record_of_each_key_is_found(self, batches, memory, is_mapped, block):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(key_index_writer, "BLOCK_BYTES", block)
            patch.setattr(key_index_writer, "_SPREAD_BYTES", 1)
            inner = write(batches, memory_bytes=memory)
        index = index_of(HookedStore(inner, is_mapped=is_mapped))
        rows = [each for batch in batches for each in batch]
        last = {each["key"]: BASE + at for at, each in enumerate(rows) if each["key"] is not None}
        assert index.record_count == sum(each["key"] is not None for each in rows)
        for key, offset in last.items():
            entry = find(index, key, BASE)
            assert entry.offset == offset
            if entry.record is None:
                assert len(rows[offset - BASE]["value"]) > MAX_STORED_BYTES
            else:
                assert rows_of(entry.record.records) == [rows[offset - BASE]]
                assert entry.record.offsets().tolist() == [offset]
            assert find(index, key, offset + 1) is None
        assert find(index, b"never written") is None


class TestRows:
    def test_keys_with_one_hash_are_told_apart(self, small, monkeypatch):
        def same(keys):
            return murmur2_of_keys(keys) * 0 + 7

        monkeypatch.setattr(rows_module, "murmur2_of_keys", same)
        rows = [row(b"%d" % at, key=b"key-%d" % at) for at in range(50)]
        index = index_of(write([rows[:30], rows[30:]]))
        for at in range(50):
            entry = index.find(b"key-%d" % at, 7, 0)
            assert entry.record.records.column("value").to_pylist() == [b"%d" % at]
        assert index.find(b"key-50", 7, 0) is None

    def test_control_records_and_null_keys_are_left_out(self):
        store = new_store()
        writer = KeyIndexWriter(store, DIRECTORY, NAME, min_records=0)
        add(writer, [row(b"marker", key=b"k")], 0, attributes=BatchHeader.CONTROL_BIT)
        add(writer, [row(b"value", key=None), row(b"value", key=b"other")], 1)
        writer.put("one")
        index = index_of(store)
        assert (index.record_count, find(index, b"k")) == (1, None)
        assert find(index, b"other").offset == BASE + 2

    def test_epoch_and_kind_of_timestamp_are_those_of_the_batch(self):
        store = new_store()
        writer = KeyIndexWriter(store, DIRECTORY, NAME, min_records=0)
        bit = BatchHeader.TIMESTAMP_TYPE_BIT
        add(writer, [row(key=b"a")], 0, leader_epoch=3)
        add(writer, [row(key=b"b")], 1, leader_epoch=4, attributes=bit)
        writer.put("one")
        found = [find(index_of(store), key).record for key in (b"a", b"b")]
        assert [(each.leader_epoch, each.timestamp_type) for each in found] == [(3, 0), (4, 1)]

    def test_a_small_segment_gets_no_index(self):
        store = new_store()
        writer = KeyIndexWriter(store, DIRECTORY, NAME)
        add(writer, [row(key=b"a")], 0)
        assert not writer.put("one")
        with pytest.raises(NotFoundError):
            index_of(store)

    def test_a_block_is_one_read(self):
        rows = [row(b"v" * 100, key=b"%06d" % at) for at in range(20_000)]
        store = HookedStore(write([rows]), is_mapped=False)
        index = index_of(store)
        assert len(store.calls) <= 2
        store.calls.clear()
        assert find(index, b"012345").offset == BASE + 12_345
        assert len(store.calls) == 1


class TestDamage:
    def test_an_index_of_another_segment_is_refused(self):
        store = write([[row(key=b"a")]])
        with pytest.raises(ValueError, match="of another segment"):
            index_of(store, "two")

    def test_each_damaged_byte_is_noticed(self):
        rows = [row(b"value", key=b"key-%d" % at) for at in range(20)]
        store = write([rows])
        whole = store.open_buffer(PATH).to_pybytes()
        for at in range(len(whole)):
            store.put(PATH, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ValueError, match=r".+"):
                [find(index_of(store), b"key-%d" % key) for key in range(20)]

    def test_each_cut_is_noticed(self):
        store = write([[row(key=b"a"), row(key=b"b")]])
        whole = store.open_buffer(PATH).to_pybytes()
        for end in range(len(whole)):
            store.put(PATH, whole[:end])
            with pytest.raises(ValueError, match=r".+"):
                index_of(store)

    def test_a_later_version_is_refused(self, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(key_index_format, "_VERSION", 2)
            store = write([[row(key=b"a")]])
        with pytest.raises(ValueError, match="version 2, expected 1"):
            index_of(store)

    def test_a_full_disk_for_temporary_files_costs_the_index_alone(self, monkeypatch, small):
        def full(schema, purpose):
            raise OSError("no space left")

        monkeypatch.setattr(key_index_writer, "TemporaryRows", full)
        store = new_store()
        writer = KeyIndexWriter(store, DIRECTORY, NAME, memory_bytes=1, min_records=0)
        add(writer, [row(key=b"a")], 0)
        with pytest.raises(OSError, match="no space left"):
            writer.put("one")
