"""What is open and what was aborted, by headers and by snapshots."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from spark_log.log import (
    OpenTransaction,
    TransactionIndex,
)
from spark_log.log.files.file_names import snapshot_name
from spark_log.log.log_start import move_log_start
from spark_log.log.producers.transaction_index import AbortedTransaction
from spark_log.log.rewrite.merger import merge
from spark_log.log.snapshot.snapshot import SNAPSHOT_SCHEMA, Snapshot
from spark_log.record import (
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
    encode_headers,
    header_array,
    packed_headers,
)
from tests.log.support import DIRECTORY, TOPIC_ID, file_names, open_log
from tests.record.samples import numbered


@pytest.fixture
def others(inner, clock):
    """Another process, which knows nothing yet."""
    return open_log(inner, clock=clock)


def send(log, producer_id=7, epoch=0, sequence=0, count=2):
    producer = ProducerAppend(producer_id, epoch, sequence, is_transactional=True)
    return log.append(numbered(sequence, count, mark=f"{producer_id}.{epoch}"), producer=producer)


def end(log, producer_id=7, epoch=1, *, commits=False):
    return log.append_markers([EndTransactionMarker(producer_id, epoch, commits)])


def merge_all(log):
    view = log.observe()
    return merge(log.files, view, 0, len(view.live.segments) - 1)


def snapshot_of(store, offset):
    data = store.open_buffer(f"{DIRECTORY}/{snapshot_name(offset)}")
    return Snapshot.from_buffer(data, topic_id=TOPIC_ID, partition=0)


class TestByHeaders:
    def test_an_empty_log_is_stable_at_its_end(self, log):
        index = log.transactions()
        assert (index.last_stable_offset, index.open, index.aborted) == (0, (), ())

    def test_open_ones_are_in_the_order_of_their_first_offsets(self, log, others):
        send(log, 9)
        send(log, 7)
        send(log, 8)
        send(log, 9, sequence=2)
        assert others.transactions().open == (
            OpenTransaction(9, 0, 0),
            OpenTransaction(7, 0, 2),
            OpenTransaction(8, 0, 4),
        )
        assert others.transactions().last_stable_offset == 0
        end(log, 9)
        assert others.transactions().last_stable_offset == 2
        end(log, 8)
        assert others.transactions().last_stable_offset == 2
        end(log, 7, commits=True)
        assert others.transactions().last_stable_offset == others.observe().log_end_offset == 11

    def test_aborted_ones_are_listed_with_their_markers(self, log, others):
        send(log, 7)
        send(log, 8)
        end(log, 8)
        end(log, 7)
        send(log, 7, epoch=1)
        end(log, 7, epoch=2, commits=True)
        index = others.transactions()
        assert index.aborted == (AbortedTransaction(8, 2, 4), AbortedTransaction(7, 0, 5))
        assert others.transactions().last_stable_offset == 9

    def test_plain_records_and_lone_markers_open_and_abort_nothing(self, log):
        log.append(numbered(0, 3))
        end(log, 7)
        index = log.transactions()
        assert (index.last_stable_offset, index.open, index.aborted) == (4, (), ())

    def test_the_index_of_a_view_ends_with_the_view(self, log, others):
        send(log)
        view = others.observe()
        end(log)
        assert others.transactions(view).last_stable_offset == 0
        assert others.transactions().last_stable_offset == 3

    def test_it_costs_the_requests_of_the_producers(self, store, log, inner, clock):
        send(log)
        end(log)
        log.snapshots.write()
        send(log, epoch=1)
        calls = []
        for ask in ("producers", "transactions"):
            store.calls.clear()
            getattr(open_log(store, clock=clock), ask)()
            calls.append(list(store.calls))
        assert calls[0] == calls[1]


class TestSnapshots:
    def test_an_open_transaction_is_in_the_snapshot(self, store, log, others):
        send(log, 8)
        send(log, 7)
        end(log, 8)
        log.snapshots.write()
        producers = snapshot_of(store, 5).producers
        assert producers.transactions.open == (OpenTransaction(7, 0, 2),)
        assert dict(producers.entries())[7].first_transaction_offset == 2
        end(log, 7)
        index = others.transactions()
        assert (index.open, index.last_stable_offset) == ((), 6)
        assert AbortedTransaction(7, 2, 5) in index.aborted

    def test_one_that_lies_in_several_segments_is_listed(self, store, log):
        send(log)
        end(log)
        log.snapshots.write()
        listed = snapshot_of(store, 3).producers.transactions
        assert (listed.aborted, listed.unlisted) == ((AbortedTransaction(7, 0, 2),), ())

    def test_those_that_lie_in_one_segment_are_one_range(self, store, log):
        for epoch in range(5):
            send(log, epoch=epoch)
            end(log, epoch=epoch + 1)
        merge_all(log)
        send(log, 8)
        end(log, 8)
        log.snapshots.write()
        listed = snapshot_of(store, 18).producers.transactions
        assert listed.aborted == (AbortedTransaction(8, 15, 17),)
        assert listed.unlisted == ((0, 15),)

    def test_a_segment_without_aborted_ones_is_no_range(self, store, log):
        send(log)
        end(log, commits=True)
        merge_all(log)
        log.snapshots.write()
        assert snapshot_of(store, 3).producers.transactions.unlisted == ()

    def test_ranges_of_merged_segments_become_one(self):
        index = TransactionIndex(40, unlisted=[(0, 10), (10, 20), (30, 40)])
        index.compact([0, 20, 35, 40])
        assert index.unlisted == ((0, 20), (30, 40)), "the second is cut, and stays"

    def test_one_below_the_logs_start_is_dropped(self, store, log):
        send(log)
        end(log)
        send(log, epoch=1)
        end(log, epoch=2)
        move_log_start(log, 4)
        log.snapshots.write()
        assert log.transactions().aborted == (AbortedTransaction(7, 3, 5),)

    def test_an_open_one_stays_open_when_its_records_are_deleted(self, log, others):
        send(log)
        log.append(numbered(0, 4))
        move_log_start(log, 3)
        index = others.transactions()
        assert index.open == (OpenTransaction(7, 0, 0),)
        assert index.last_stable_offset == 3, "nothing before the log's start can be read"
        end(others)
        assert others.transactions().last_stable_offset == 7

    def test_a_snapshot_of_an_earlier_version_says_nothing(self, store, log, inner, clock):
        """Its reader reads all headers; what the snapshot says of producers still counts."""
        send(log, 7)
        send(log, 8)
        end(log, 8)
        log.snapshots.write()
        name = f"{DIRECTORY}/{snapshot_name(5)}"
        file = ipc.open_file(inner.open_buffer(name))
        batch, metadata = file.get_batch_with_custom_metadata(0)
        metadata = {"spark_log.append_ids": metadata["spark_log.append_ids"]}
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, SNAPSHOT_SCHEMA.with_metadata(file.schema.metadata)) as writer:
            writer.write_batch(batch, custom_metadata=metadata)
        inner.put(name, sink.getvalue())
        again = open_log(inner, clock=clock)
        index = again.transactions()
        assert index.open == (OpenTransaction(7, 0, 0),)
        assert index.aborted == (AbortedTransaction(8, 2, 4),)
        assert not again.producers().transactions.is_complete
        again.snapshots.write()
        assert snapshot_of(inner, 5).producers.transactions.open == index.open

    def test_damaged_transactions_damage_the_snapshot(self, store, log):
        send(log)
        log.snapshots.write()
        path = f"{DIRECTORY}/{snapshot_name(2)}"
        data = store.open_buffer(path).to_pybytes()
        assert data.count(b'"open":[[7,0,0]]') == 1
        store.put(path, data.replace(b'"open":[[7,0,0]]', b'"open":[[7,0,1]]'))
        with pytest.raises(ValueError, match="checksum of its transactions"):
            snapshot_of(store, 2)
        assert open_log(store).transactions().last_stable_offset == 0

    def test_without_any_snapshot_the_headers_say_the_same(self, store, log, others):
        for epoch in range(4):
            send(log, epoch=epoch)
            end(log, epoch=epoch + 1, commits=epoch % 2 == 0)
        send(log, 8)
        log.snapshots.write()
        expected = others.transactions()
        for name in file_names(store):
            if name.endswith(".snapshot"):
                store.delete(f"{DIRECTORY}/{name}")
        found = open_log(store).transactions()
        assert (found.open, found.aborted) == (expected.open, expected.aborted)


def test_an_appender_keeps_no_list_of_aborted_ones():
    index = TransactionIndex(5, aborted=[AbortedTransaction(7, 0, 2)], unlisted=[(2, 4)])
    index.forget_aborted()
    assert (index.aborted, index.unlisted, index.offset) == ((), (), 5)


TRANSACTIONAL, CONTROL, ABORT = (
    BatchHeader.TRANSACTIONAL_BIT,
    BatchHeader.CONTROL_BIT,
    BatchHeader.ABORT_BIT,
)
batches = st.tuples(
    st.sampled_from([-1, 7, 8]),
    st.sampled_from(
        [
            0,
            TRANSACTIONAL,
            TRANSACTIONAL,
            CONTROL,
            CONTROL | ABORT,
            TRANSACTIONAL | CONTROL,
            TRANSACTIONAL | CONTROL | ABORT,
            TRANSACTIONAL | ABORT,
        ]
    ),
    st.integers(1, 3),
)


def headers_of(batches):
    """Headers of a log from offset 0 on: producer id, attributes, and number of records of each."""
    found, offset = [], 0
    for producer_id, attributes, count in batches:
        last = offset + count - 1
        found.append(BatchHeader(offset, last, 0, attributes, 0, 0, 0, producer_id, 0, 0, count))
        offset += count
    return found


def moved(header, by):
    first, last = header.base_offset_delta - by, header.last_offset_delta - by
    return dataclasses.replace(header, base_offset_delta=first, last_offset_delta=last)


@given(st.lists(batches, min_size=1, max_size=24), st.data())
def test_a_range_is_listed_as_by_a_replay_of_its_headers(log_batches, data):
    """However the range lies in segments now, which may overlap after rewrites."""
    headers = headers_of(log_batches)
    at = st.integers(0, len(headers) - 1)
    start = data.draw(at)
    replayed = TransactionIndex(headers[start].base_offset_delta)
    replayed.replay(0, headers)
    segments, behind = [], 0
    while behind < len(headers):
        first = data.draw(st.integers(0, behind))
        behind = data.draw(st.integers(behind + 1, len(headers)))
        base = headers[first].base_offset_delta
        part = [moved(header, base) for header in headers[first:behind]]
        segments.append((base, header_array(packed_headers(encode_headers(part)))))
    unlisted = headers[start].base_offset_delta, headers[-1].last_offset_delta + 1
    index = TransactionIndex(unlisted[1], unlisted=[unlisted])
    index.list_range(unlisted, segments)
    for header in headers[start:]:
        at_offset = header, header.base_offset_delta
        assert index.is_aborted(*at_offset) == replayed.is_aborted(*at_offset)
    assert index.unlisted == ()
