"""Missing and invalid indexes: rebuilt from batch headers, and written."""

import pytest

from spark_log.errors import StorageError
from spark_log.log.files.file_names import SegmentName
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    Part,
    failing,
    put_bytes,
    put_segment,
    segment_bytes,
    segment_reader,
    values_of,
)
from tests.record.samples import START_US, numbered, record_batch, row

NAME = SegmentName(0)
INDEX, TIME_INDEX = (f"{DIRECTORY}/{name}" for name in (NAME.index, NAME.time_index))
COUNT = 40


@pytest.fixture(params=[True, False], ids=["mapped", "ranged"])
def store(request, memory_store):
    store = HookedStore(memory_store, is_mapped=request.param)
    batches = [
        record_batch([row(b"v" * 900, timestamp=START_US + (at * 7) % 30)]) for at in range(COUNT)
    ]
    put_segment(store, batches)
    return store


def contents(store):
    return [store.inner.open_buffer(path).to_pybytes() for path in (INDEX, TIME_INDEX)]


def search(store):
    return segment_reader(store).offset_for_time(START_US + 25, 0)


@pytest.mark.parametrize("broken", [INDEX, TIME_INDEX])
@pytest.mark.parametrize(
    "breaks",
    [
        lambda own: b"",
        lambda own: own[:-1],
        lambda own: bytes(len(own)),
        lambda own: bytes([own[0] ^ 1]) + own[1:],
        lambda own: None,
    ],
    ids=["empty", "short", "zeros", "damaged", "missing"],
)
def test_a_search_by_time_makes_them_again_and_they_are_what_the_writer_made(store, broken, breaks):
    written, found = contents(store), search(store)
    content = breaks(store.inner.open_buffer(broken).to_pybytes())
    if content is None:
        store.inner.delete(broken)
    else:
        store.inner.put(broken, content)
    assert search(store) == found
    assert contents(store) == written
    store.calls.clear()
    assert search(store) == found
    assert store.called("put") == []


def test_on_a_mapped_file_a_search_by_offset_does_so_too(memory_store):
    store = HookedStore(memory_store)
    put_segment(store, [numbered(at, 1, value_bytes=900) for at in range(COUNT)])
    written = contents(store)
    memory_store.delete(INDEX)
    assert next(segment_reader(store).read(COUNT - 1)).base_offset == COUNT - 1
    assert contents(store) == written


def test_on_an_object_store_a_search_by_offset_looks_at_few_headers_instead(memory_store):
    store = HookedStore(memory_store, is_mapped=False)
    batches = (numbered(at, 1, value_bytes=50_000) for at in range(256))
    put_segment(store, batches, indexes=False)
    store.calls.clear()
    assert next(segment_reader(store).read(100)).base_offset == 100
    assert len(store.called("read")) <= 8 + 1
    assert store.called("put") == []


def test_two_halves_of_different_pairs_are_not_believed(store):
    """Indexes of different intervals have other batches between entries: answers would be wrong."""
    found, dense = search(store), contents(store)
    store.inner.delete(f"{DIRECTORY}/{NAME.file_name}")
    batches = [
        record_batch([row(b"v" * 900, timestamp=START_US + (at * 7) % 30)]) for at in range(COUNT)
    ]
    put_segment(store, batches, index_interval_bytes=10_000)
    sparse = contents(store)
    for mixed in ((dense[0], sparse[1]), (sparse[0], dense[1])):
        store.inner.put(INDEX, mixed[0])
        store.inner.put(TIME_INDEX, mixed[1])
        assert search(store) == found


def test_a_reader_that_may_not_write_answers_all_the_same(store):
    found = search(store)
    store.inner.delete(TIME_INDEX)
    store.on("put", failing(StorageError("read only")))
    assert search(store) == found
    assert store.called("put") != []


def test_an_index_that_cannot_be_read_is_as_if_it_were_not_there(store):
    found = search(store)
    inner = store.inner.open_buffer

    def refuse(path, call):
        if path == INDEX:
            raise StorageError("permission denied")
        return inner(path)

    store.on("open_buffer", refuse)
    assert search(store) == found


def test_a_damaged_batch_elsewhere_does_not_keep_others_from_being_found(memory_store):
    store = HookedStore(memory_store)
    reader = put_segment(store, [numbered(at, 1, value_bytes=900) for at in range(COUNT)])
    memory_store.delete(INDEX)
    content = bytearray(memory_store.open_buffer(reader.path).to_pybytes())
    header = content.index(b"spark_log.batch", reader.position(COUNT - 1))
    content[header : header + 5] = b"SPARK"
    memory_store.put(reader.path, bytes(content))
    assert values_of(segment_reader(store).read(3, 5))[0][0] == 3
    assert segment_reader(store).offset_for_time(START_US + 4_000, 0) == (4, START_US + 4_000)


def test_a_small_segment_does_without(memory_store):
    store = HookedStore(memory_store)
    put_segment(store, [numbered(at, 1) for at in range(5)], index_interval_bytes=0)
    store.calls.clear()
    reader = segment_reader(store)
    assert reader.offset_for_time(START_US + 3_000, 0) == (3, START_US + 3_000)
    assert next(reader.read(4)).base_offset == 4
    assert store.called("open_buffer") == [reader.path]


def test_control_records_do_not_count(memory_store):
    """Their timestamps may be later than all others, and no lookup returns them."""
    store = HookedStore(memory_store)
    marker = Part([row(b"marker", timestamp=START_US + 10**9)], attributes=1 << 5)
    users = [[Part([row(b"v" * 900, timestamp=START_US + at)])] for at in range(20)]
    put_bytes(store, segment_bytes([[marker], *users]))
    assert segment_reader(store).offset_for_time(START_US + 15, 0) == (16, START_US + 15)
    assert contents(store), "made, so that the next search finds by them"
    assert segment_reader(store).offset_for_time(START_US + 15, 0) == (16, START_US + 15)
    assert segment_reader(store).offset_for_time(START_US + 10**9, 0) is None
