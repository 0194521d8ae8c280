"""Compaction of transactions: the cases of Kafka's LogCleanerTest, on batches written by hand."""

import pytest

from spark_log.log.clean.compactor import compact
from spark_log.log.clean.generations import take_generation
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.verify.finding import LogFindingKind
from spark_log.log.verify.verifier import Verifier
from spark_log.record.batch_header import BatchHeader
from spark_log.record.control_record import ControlRecordType
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    Part,
    file_names,
    open_log,
    put_bytes,
    segment_bytes,
    values_of,
)
from tests.record.samples import row

SETTLED_MS = 61_000
RETENTION_MS = 86_400_000
FILLER = b"filler"


class TransactionalLog:
    """A compacted log that is written by transactional producers, each call one segment."""

    def __init__(self, store, clock):
        self.store = store
        self.clock = clock
        self.log = open_log(store, clock=clock, cleanup_policy="compact")
        self.end_offset = 0
        self.sequences = {}

    def send(self, producer_id, *keys, epoch=0, value=b"value"):
        """Append records of a transaction; the value of a tombstone is None."""
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + len(keys)
        self._put(
            [(key, value) for key in keys],
            attributes=BatchHeader.TRANSACTIONAL_BIT,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def commit(self, producer_id, epoch=0):
        self.mark(producer_id, epoch, ControlRecordType.COMMIT.key)

    def abort(self, producer_id, epoch=0):
        self.mark(producer_id, epoch, ControlRecordType.ABORT.key)

    def plain(self, *keys):
        """Append records outside of any transaction."""
        self._put([(key, b"plain") for key in keys])

    def mark(self, producer_id, epoch, key, *, attributes=BatchHeader.TRANSACTIONAL_BIT):
        if key == ControlRecordType.ABORT.key:
            attributes |= BatchHeader.ABORT_BIT
        self._put(
            [(key, b"\0\0\0\0\0\0")],
            attributes=attributes | BatchHeader.CONTROL_BIT,
            producer_id=producer_id,
            producer_epoch=epoch,
        )

    def _put(self, pairs, **fields):
        now_us = self.clock.time_us()
        part = Part([row(value, key=key, timestamp=now_us) for key, value in pairs], **fields)
        put_bytes(self.store, segment_bytes([[part]]), SegmentName(self.end_offset))
        self.end_offset += len(pairs)

    def clean(self, after_ms=SETTLED_MS):
        """Compact all records after that time has passed."""
        self.clock.advance_ms(after_ms)
        self.plain(FILLER)  # the last segment is never compacted
        self.log = open_log(self.store, clock=self.clock, cleanup_policy="compact")
        done = compact(self.log, now_us=self.clock.time_us())
        self.verify()
        return done

    def verify(self):
        found = [each for each in Verifier(self.log).findings() if each.is_problem]
        assert all(each.kind == LogFindingKind.SPENT_SEGMENT for each in found), found

    def clean_in_two_passes(self):
        """Compact twice: the first one sets delete horizons, which have passed at the second."""
        self.clean()
        self.clean(RETENTION_MS)

    def batches(self):
        """Return ``(last offset, record offsets, keys, header)`` of each batch except fillers."""
        found = []
        for segment in self.log.observe().live.segments:
            reader = self.log.files.open(segment.name)
            for ordinal in range(reader.batch_count):
                headers, records = reader.read_batch(ordinal)
                at = 0
                for header in headers:
                    rows = records.slice(at, header.record_count)
                    at += header.record_count
                    keys = rows.column("key").to_pylist()
                    first = reader.base_offset + header.base_offset_delta
                    offsets = list(range(first, first + len(keys)))
                    if reader.has_gaps:
                        deltas = rows.column("offset_delta").to_pylist()
                        offsets = [reader.base_offset + delta for delta in deltas]
                    last = reader.base_offset + header.last_offset_delta
                    is_filler = not header.is_transactional and (not keys or FILLER in keys)
                    if not is_filler:
                        found.append((last, offsets, keys, header))
        return found

    def offsets(self):
        """Return the offsets of all records, including markers."""
        return [offset for _, offsets, _, _ in self.batches() for offset in offsets]

    def last_offsets(self):
        """Return the last offsets of all batches, also of those without records."""
        return [last for last, _, _, _ in self.batches()]

    def keys(self):
        """Return the keys of user records."""
        return [
            key for _, _, keys, header in self.batches() if not header.is_control for key in keys
        ]


@pytest.fixture
def log(memory_store, clock):
    return TransactionalLog(memory_store, clock)


def test_aborted_records_are_removed_and_replace_nothing(log):
    log.send(1, b"1", b"2")
    log.send(2, b"2", b"3")
    log.send(1, b"3", b"4")
    log.abort(1)
    log.commit(2)
    log.send(1, b"2")
    log.commit(1)
    log.clean()
    assert log.keys() == [b"3", b"2"]
    assert log.offsets() == [3, 6, 7, 8, 9]


def test_an_aborted_tombstone_deletes_nothing(log):
    log.plain(b"1")
    log.send(1, b"1", value=None)
    log.abort(1)
    log.clean()
    log.clean_in_two_passes()
    assert log.keys() == [b"1"]


def test_a_committed_tombstone_is_kept_for_delete_retention_ms(log):
    log.plain(b"1")
    log.send(1, b"1", value=None)
    log.commit(1)
    log.send(1, b"2")
    log.commit(1)
    log.clean()
    assert log.offsets() == [1, 2, 3, 4]
    log.clean(RETENTION_MS)
    assert log.keys() == [b"2"]
    assert log.offsets() == [2, 3, 4], "its marker only now stands alone"
    log.clean_in_two_passes()
    assert log.offsets() == [3, 4]


class TestMarkers:
    def test_commit_markers_are_kept_for_delete_retention_ms_after_the_last_record(self, log):
        log.send(1, b"1")
        log.send(1, b"2", b"3")
        log.commit(1)
        log.send(1, b"2")
        log.commit(1)
        log.clean()
        assert log.keys() == [b"1", b"3", b"2"]
        assert log.offsets() == [0, 2, 3, 4, 5]
        log.send(1, b"1", b"3")
        log.commit(1)
        log.clean()
        assert log.keys() == [b"2", b"1", b"3"]
        assert log.offsets()[0] == 3, "there were records of it when this compaction began"
        log.clean()
        assert log.offsets()[0] == 3, "from now on its time runs"
        log.clean(RETENTION_MS - 1)
        assert log.offsets()[0] == 3
        log.clean()
        assert log.keys() == [b"2", b"1", b"3"]
        assert log.offsets()[0] == 4

    def test_abort_markers_are_kept_for_delete_retention_ms(self, log):
        log.send(1, b"1")
        log.send(1, b"2", b"3")
        log.abort(1)
        log.send(1, b"3")
        log.commit(1)
        log.clean()
        assert (log.keys(), log.offsets()) == ([b"3"], [3, 4, 5])
        log.clean_in_two_passes()
        assert (log.keys(), log.offsets()) == ([b"3"], [4, 5])

    def test_the_marker_of_an_empty_transaction_gets_a_delete_horizon(self, log):
        log.send(1, b"1")
        log.abort(1)
        log.send(1, b"2")
        log.send(1, b"2")
        log.commit(1)
        log.clean()
        assert (log.keys(), log.offsets()) == ([b"2"], [1, 3, 4])
        log.clean_in_two_passes()
        assert (log.keys(), log.offsets()) == ([b"2"], [3, 4])

    @pytest.mark.parametrize("decide", ["commit", "abort"])
    def test_a_marker_is_kept_while_an_empty_batch_has_producer_state(self, log, decide):
        log.send(1, b"2", b"3")
        getattr(log, decide)(1)
        log.plain(b"2", b"3")
        log.clean()
        for _ in range(2):
            assert log.keys() == [b"2", b"3"]
            assert log.offsets() == [2, 3, 4]
            assert log.last_offsets() == [1, 2, 4]
            log.clean_in_two_passes()
        log.send(1, b"1")
        log.commit(1)
        log.clean()
        assert 1 not in log.last_offsets(), "a later batch tells it now"
        assert 2 in log.offsets()
        log.clean_in_two_passes()
        assert 2 not in log.offsets()
        assert sorted(log.keys()) == [b"1", b"2", b"3"]

    def test_batches_of_other_producers_do_not_keep_a_marker(self, log):
        log.send(1, b"2", b"3")
        log.send(2, b"2", b"3")
        log.commit(2)
        log.plain(b"2", b"3")
        log.commit(1)
        log.clean()
        assert (log.offsets(), log.last_offsets()) == ([4, 5, 6, 7], [1, 3, 4, 6, 7])
        log.send(2, b"1")
        log.commit(2)
        log.clean()
        assert log.last_offsets() == [1, 4, 6, 7, *log.last_offsets()[-2:]]
        log.clean_in_two_passes()
        assert log.last_offsets() == [1, 6, 7, *log.last_offsets()[-2:]]

    def test_a_marker_stays_empty_if_only_it_has_the_epoch(self, log):
        log.commit(1, epoch=3)
        log.plain(b"2")
        log.clean()
        assert log.offsets() == [0, 1]
        log.clean(RETENTION_MS)
        for _ in range(2):
            assert log.offsets() == [1]
            assert log.last_offsets() == [0, 1]
            log.clean(RETENTION_MS)
        for name in file_names(log.store):
            if name.endswith(".snapshot"):
                log.store.delete(f"{DIRECTORY}/{name}")
        again = open_log(log.store, clock=log.clock)
        assert [(id_, entry.epoch) for id_, entry in again.producers().entries()] == [(1, 3)]

    def test_dirty_markers_get_a_new_delete_horizon(self, log):
        """As tombstones: an older compaction may have an older listing, with the records."""
        log.send(1, b"1")
        log.abort(1)
        log.send(1, b"2")
        log.commit(1)
        log.clean()
        log.clean()
        assert take_generation(log.log.files, log.log.observe()) is not None
        log.clean(RETENTION_MS)
        assert 1 in log.offsets()
        log.clean(RETENTION_MS)
        assert 1 not in log.offsets()

    def test_markers_replace_no_record_with_the_same_key(self, log):
        log.send(1, b"1")
        log.commit(1)
        log.send(2, ControlRecordType.COMMIT.key)
        log.commit(2)
        log.clean()
        assert log.offsets() == [0, 1, 2, 3]

    def test_markers_with_reused_sequence_numbers_are_removed(self, log):
        """Kafka's group coordinator begins each transaction with sequence number 0."""
        for key in (b"1", b"2"):
            log.sequences.clear()
            log.send(1, key)
            log.commit(1)
        log.plain(b"1")
        log.plain(b"2")
        log.clean()
        assert (log.offsets(), log.last_offsets()) == ([1, 3, 4, 5], [1, 2, 3, 4, 5])
        log.clean_in_two_passes()
        assert (log.offsets(), log.last_offsets()) == ([3, 4, 5], [2, 3, 4, 5])


class TestOverSeveralSegments:
    def test_a_committed_transaction_over_several_segments_is_kept(self, log):
        log.send(1, b"1")
        log.commit(1)
        log.clean()
        log.clean_in_two_passes()
        assert log.offsets() == log.last_offsets() == [0, 1]

    def test_an_aborted_transaction_over_several_segments_leaves_producer_state(self, log):
        log.send(1, b"1")
        log.abort(1)
        for _ in range(3):
            log.clean(RETENTION_MS)
            assert (log.offsets(), log.last_offsets()) == ([1], [0, 1])

    def test_transactions_cut_by_the_logs_start_are_decided_by_their_markers(self, log):
        log.send(1, b"1", b"2")
        log.send(1, b"3")
        log.abort(1)
        log.send(1, b"4")
        log.commit(1)
        move_log_start(log.log, 2)
        log.clean()
        assert (log.keys(), log.offsets()) == ([b"4"], [3, 4, 5])


class TestUndecided:
    def test_nothing_is_compacted_from_the_first_undecided_transaction_on(self, log):
        log.plain(b"0")
        log.plain(b"0")
        log.send(15, b"1", b"2")
        log.send(15, b"1")
        log.plain(b"0")
        assert log.clean().end_offset == 2
        assert log.offsets() == [1, 2, 3, 4, 5]
        assert log.clean().segments_written == 0
        log.abort(15)
        assert log.clean().end_offset == log.end_offset - 1
        assert log.keys() == [b"0"]

    def test_the_marker_may_be_after_the_cleanable_range(self, log):
        log.send(15, b"1", b"2")
        log.send(15, b"1")
        log.clock.advance_ms(SETTLED_MS)
        log.abort(15)  # the last segment
        log.log = open_log(log.store, clock=log.clock, cleanup_policy="compact")
        done = compact(log.log, now_us=log.clock.time_us())
        assert (done.end_offset, done.records_written) == (3, 0)
        assert (log.keys(), log.last_offsets()) == ([], [2, 3])

    def test_two_concurrent_transactions_are_distinguished(self, log):
        log.send(1, b"1", b"2")
        log.send(2, b"2", b"3")
        log.send(1, b"3", b"4")
        log.commit(1)
        log.commit(2)
        log.send(1, b"2", b"3")
        log.abort(1)
        log.send(2, b"4", b"5")
        log.send(1, b"5", b"6")
        log.commit(1)
        log.abort(2)
        log.send(2, b"6", b"7")
        log.commit(2)
        log.clean()
        assert log.offsets() == [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19]
        log.clean_in_two_passes()
        assert log.offsets() == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]

    def test_a_control_batch_that_is_not_a_marker_decides_nothing(self, log):
        log.send(1, b"1")
        log.mark(1, 0, b"\0\0\0\3", attributes=0)
        assert log.clean().segments_written == 0
        log.abort(1)
        log.clean()
        log.clean_in_two_passes()
        assert log.offsets() == [1, 3], "it is kept for ever"


def test_the_last_sequence_number_of_an_aborted_transaction_is_kept(log):
    log.send(1, b"1")
    log.send(1, b"2", b"3")
    log.abort(1)
    log.clean()
    assert (log.keys(), log.offsets(), log.last_offsets()) == ([], [3], [2, 3])
    ((_, entry),) = log.log.producers().entries()
    assert entry.next_sequence == 3
    log.send(1, b"1", b"5")
    log.commit(1)
    log.clean()
    assert 2 not in log.last_offsets()
    assert log.keys() == [b"1", b"5"]


class TestSnapshotsOfBefore:
    """A snapshot may tell of what a compaction has removed since; that is no problem."""

    def test_tell_of_a_transaction_that_was_open_then(self, log):
        log.send(1, b"1")
        log.plain(b"2")
        log.log.snapshots.write()
        log.abort(1, epoch=1)
        log.clean()
        assert log.keys() == [b"2"]

    def test_tell_of_a_producer_whose_batches_are_gone(self, log):
        log.send(1, b"1")
        log.log.snapshots.write()
        log.abort(1, epoch=1)  # the last segment
        log.clock.advance_ms(SETTLED_MS)
        log.log = open_log(log.store, clock=log.clock, cleanup_policy="compact")
        compact(log.log, now_us=log.clock.time_us())
        assert log.keys() == []
        log.verify()

    def test_tell_of_a_marker_that_is_gone(self, log):
        log.send(1, b"1")
        log.abort(1, epoch=1)
        log.plain(b"2")
        log.log.snapshots.write()
        log.send(1, b"3", epoch=1)
        log.abort(1, epoch=2)
        for _ in range(3):
            log.clock.advance_ms(SETTLED_MS)
            log.plain(FILLER)
            settings = {"cleanup_policy": "compact", "delete_retention_ms": 1000}
            log.log = open_log(log.store, clock=log.clock, **settings)
            compact(log.log, now_us=log.clock.time_us())
        assert 1 not in log.offsets()
        log.verify()


def test_a_reader_of_older_segments_leaves_out_what_a_compaction_removes_meanwhile(log):
    """Its snapshot is that of the compacted log, which has the same name as the one before."""
    log.plain(b"1")
    log.send(1, b"2", b"3")
    log.abort(1, epoch=1)
    log.plain(b"4")
    log.plain(FILLER)
    log.log.snapshots.write()
    log.clock.advance_ms(SETTLED_MS)
    store = HookedStore(log.store)

    def compact_first(path, call):
        compact(log.log, now_us=log.clock.time_us())
        log.log.snapshots.write()
        return call()

    store.once("open_buffer", compact_first)
    reader = open_log(store, clock=log.clock, cleanup_policy="compact")
    found = values_of(reader.scan(0, None, isolation_level="read_committed"))
    assert [offset for offset, _ in found] == [0, 4, 5]
    assert log.keys() == [b"1", b"4"], "the compaction has removed the aborted records"


@pytest.mark.parametrize("decide", ["commit", "abort"])
@pytest.mark.parametrize("goes_on", [True, False], ids=["goes-on", "ends"])
def test_a_reader_that_stood_still_while_markers_were_removed(log, decide, goes_on):
    """It has held records of an open transaction back, and the next marker is not their one."""
    log.plain(b"0")
    log.send(1, b"1", b"2")
    reader = open_log(log.store, clock=log.clock, cleanup_policy="compact")
    position, found = 0, []

    def read():
        nonlocal position
        for batch, following in reader.stream(position, isolation_level="read_committed"):
            position = following
            if batch is not None and not batch.is_control:
                found.extend(batch.offsets().tolist())

    read()
    assert found == [0]
    getattr(log, decide)(1, epoch=1)
    if goes_on:
        log.send(1, b"3", epoch=1)
        log.commit(1, epoch=2)
    log.plain(b"1", b"2", b"0")
    for after_ms in (SETTLED_MS, RETENTION_MS, RETENTION_MS):
        log.clean(after_ms)
    log.log.snapshots.write()
    fresh = open_log(log.store, clock=log.clock, cleanup_policy="compact")
    expected = values_of(fresh.scan(0, None, isolation_level="read_committed"))
    found.clear()
    read()
    assert found == [offset for offset, _ in expected]
    assert (3 in log.offsets()) is not goes_on, "the marker was removed"
