"""An object of a stripe: any Arrow tool opens it, and it is checked when it is read."""

from dataclasses import replace
from uuid import uuid4

import polars
import pytest
from pyarrow import ipc

from spark_log.errors import CorruptRecordError
from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry, StripeObject
from spark_log.record import METADATA_KEY, RECORD_SCHEMA, EntryDirectory, SmallBatch, decode_headers
from spark_log.storage.memory import MemoryStore
from tests.log.stripe.support import STRIPE, Process, batch, marker
from tests.log.support import TOPIC_ID, HookedStore
from tests.record.samples import record_batch, row

PATH = f"{STRIPE}/{0:020d}.stripe"


@pytest.fixture
def data(other, memory_store):
    """The bytes of an object of three partitions."""
    other.append(
        batch(2, producer_id=7, count=2),
        batch(0, producer_id=7),
        marker(1, 8, 3, committed=False),
        batch(0, 1, 2, producer_id=7),
    )
    return memory_store.open_buffer(PATH)


def open_object(store, **changes):
    return StripeObject(store, PATH, 0, **{"topic_id": TOPIC_ID, "stripe": 0, **changes})


def test_arrow_and_polars_read_the_records(data):
    table = ipc.open_file(data).read_all()
    assert table.schema.equals(RECORD_SCHEMA)
    found = table.column("value").to_pylist()
    assert found[:3] == [b"0.7.0:0", b"0.7.0:1", b"0.7.0:2"]
    assert found[4:] == [b"2.7.0:0", b"2.7.0:1"]
    assert polars.read_ipc(data.to_pybytes())["value"].to_list() == found


def test_each_arrow_batch_has_the_headers_of_its_entries(data):
    file = ipc.open_file(data)
    _, metadata = file.get_batch_with_custom_metadata(0)
    headers = decode_headers(metadata[METADATA_KEY])
    assert [(each.producer_id, each.record_count) for each in headers] == [
        (7, 1),
        (7, 2),
        (8, 1),
        (7, 2),
    ]
    last, metadata = file.get_batch_with_custom_metadata(file.num_record_batches - 1)
    assert (last.num_rows, list(metadata)) == (0, [b"spark_log.entries"])


def test_a_small_object_is_read_by_one_request(data, memory_store):
    store = HookedStore(memory_store, is_mapped=False)
    found = open_object(store)
    for partition in (0, 1, 2):
        assert list(found.read(found.directory.entries_of(partition)))
    assert store.calls == [("read_tail", PATH)]


def test_of_a_large_object_the_directory_takes_one_request_and_a_partition_one(memory_store, clock):
    large = Process(memory_store, clock)
    entries = [batch(partition, count=12_000) for partition in range(8)]
    assert all(large.append(*entries))
    store = HookedStore(memory_store, is_mapped=False)
    found = open_object(store)
    assert store.calls == [("read_tail", PATH)]
    assert len(found.directory) == 8
    ((_, records),) = found.read(found.directory.entries_of(0))
    assert records.num_rows == 12_000
    assert store.calls == [("read_tail", PATH), ("read", PATH)]


@pytest.mark.parametrize("changes", [{"topic_id": "a" * 22}, {"stripe": 1}])
def test_the_object_of_another_stripe_is_refused(data, memory_store, changes):
    with pytest.raises(CorruptRecordError, match="is expected"):
        open_object(memory_store, **changes)


def test_a_segment_is_no_object(memory_store, other, data):
    other.take_home()
    name = f"{0:020d}-{2:020d}.1.log"
    content = memory_store.open_buffer(f"{STRIPE.partition('/')[0]}/flights-0/{name}")
    memory_store.put(PATH, content)
    with pytest.raises(CorruptRecordError, match="is expected"):
        open_object(memory_store)


def test_a_directory_that_does_not_fit_the_records_is_noticed(data, memory_store):
    found = open_object(memory_store)
    partitions, ordinals, headers = (
        found.directory.partitions,
        found.directory.ordinals,
        found.directory.headers,
    )
    right = EntryDirectory.of(partitions, ordinals, headers).encode()
    wrong = EntryDirectory.of(
        partitions, ordinals, [replace(headers[0], producer_id=9), *headers[1:]]
    ).encode()
    memory_store.put(PATH, data.to_pybytes().replace(right, wrong))
    damaged = open_object(memory_store)
    with pytest.raises(CorruptRecordError, match="not those of the directory"):
        list(damaged.read(range(4)))


def test_a_flipped_bit_in_a_record_is_noticed(data, memory_store):
    memory_store.put(PATH, data.to_pybytes().replace(b"2.7.0:1", b"2.7.0:2"))
    found = open_object(memory_store)
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(found.read(found.directory.entries_of(2)))


def test_the_records_of_small_entries_are_those_of_their_rows(memory_store, clock):
    """They are taken apart together; an entry that has to be Arrow's is left out."""
    contents = [
        [row(b"a", b"key"), row(b"b", b"")],
        [row(None)],
        [row(b"a"), row(None)],  # some null
        [row(bytes(20_000))],
    ]
    entries = [
        StripeEntry(partition, BatchAppend(record_batch(rows), None))
        for partition, rows in enumerate(contents)
    ]
    assert all(Process(memory_store, clock).append(*entries))
    found = open_object(memory_store)
    for partition, is_small in enumerate([True, True, False, False]):
        run = found.directory.entries_of(partition)
        small = found.small(run)
        assert (small is not None) == is_small
        if small is not None:
            assert small[0].records().equals(found.rows(run))
    with_headers = [row(b"a", headers=[("name", b"content")])]
    Process(memory_store, clock).append(
        *entries[:2], StripeEntry(2, BatchAppend(record_batch(with_headers), None))
    )
    other = StripeObject(
        memory_store, PATH.replace("00.stripe", "01.stripe"), 1, topic_id=TOPIC_ID, stripe=0
    )
    assert other.small(range(1)) is None
    assert other.rows(range(1)).equals(record_batch(contents[0]))


@pytest.mark.parametrize(
    "config", [{}, {"message_timestamp_type": "LogAppendTime"}, {"cleanup_policy": "compact"}]
)
def test_few_records_are_put_as_their_arrow_batches_are(clock, config):
    """The same object, and the same refusals: of a compacted topic a record without a key."""
    contents = [[row(b"a", b"key"), row(b"b", b"")], [row(None, b"k")], [row(b"c")]]
    found = []
    for is_small in (True, False):
        store = MemoryStore(f"few-{uuid4().hex}")
        entries = [
            StripeEntry(partition, BatchAppend(SmallBatch.of(each) if is_small else each))
            for partition, each in enumerate(map(record_batch, contents))
        ]
        results = Process(store, clock, **config).append(*entries)
        made = open_object(store)
        rows = [records.to_pydict() for _, records in made.read(range(len(made.directory)))]
        directory = made.directory
        found.append(
            (list(map(str, results)), rows, directory.headers, directory.partitions.tolist())
        )
    assert found[0] == found[1]
