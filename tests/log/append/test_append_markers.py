"""Transactional appends and markers: each marker is put once, and fences what is older."""

import logging

import pyarrow as pa
import pytest

from spark_log.errors import (
    AlreadyExistsError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.record.batch_header import BatchHeader
from spark_log.record.control_record import ControlRecordType
from tests.log.support import DIRECTORY, done_but, failing, file_names, free, open_log
from tests.record.samples import numbered

LOST = UnknownOutcomeError("the answer was lost")
DOWN = StorageError("the storage does not answer")
DATA = BatchHeader.TRANSACTIONAL_BIT
COMMIT = DATA | BatchHeader.CONTROL_BIT
ABORT = COMMIT | BatchHeader.ABORT_BIT


@pytest.fixture
def others(inner, clock):
    """Another process on the same files, whose calls are not hooked."""
    return open_log(inner, clock=clock)


def send(log, producer_id=7, epoch=0, sequence=0, count=2, *, is_transactional=True):
    """Append records of the producer's transaction."""
    producer = ProducerAppend(producer_id, epoch, sequence, is_transactional)
    return log.append(numbered(sequence, count, mark=f"{producer_id}.{epoch}"), producer=producer)


def commit(producer_id=7, epoch=1):
    return EndTransactionMarker(producer_id, epoch, True)


def abort(producer_id=7, epoch=1):
    return EndTransactionMarker(producer_id, epoch, False)


def headers(log):
    """``[(offset, producer id, epoch, attributes), …]`` of all batches of the log."""
    found = []
    for segment in log.observe().live.segments:
        reader = log.files.open(segment.name)
        for _, each in reader.all_headers():
            found += [
                (
                    reader.base_offset + header.base_offset_delta,
                    header.producer_id,
                    header.producer_epoch,
                    header.attributes,
                )
                for header in each
            ]
    return found


def entry_of(log, producer_id=7):
    return dict(log.producers().entries())[producer_id]


class TestBatches:
    def test_records_of_a_transaction_are_marked_as_transactional(self, log):
        send(log)
        send(log, producer_id=8, is_transactional=False)
        assert headers(log) == [(0, 7, 0, DATA), (2, 8, 0, 0)]

    def test_markers_are_one_segment_with_a_control_batch_each(self, store, log):
        send(log)
        store.calls.clear()
        assert log.append_markers([commit(7), abort(8)]) == LogAppendInfo(2, 3)
        assert store.called("put_if_absent") == [f"{DIRECTORY}/{SegmentName(2).file_name}"]
        assert headers(log)[1:] == [(2, 7, 1, COMMIT), (3, 8, 1, ABORT)]

    def test_key_and_value_of_a_marker_are_kafkas(self, log):
        log.append_markers([commit(7), abort(8)])
        _, records = log.files.open(SegmentName(0)).read_batch(0)
        assert records.column("key").to_pylist() == [
            ControlRecordType.COMMIT.key,
            ControlRecordType.ABORT.key,
        ]
        assert records.column("value").to_pylist() == [b"\0\0\0\0\0\0"] * 2
        assert records.column("headers").null_count == 2

    def test_readers_pass_markers(self, log):
        send(log)
        log.append_markers([commit()])
        batches, following = log.read(0)
        assert ([batch.base_offset for batch in batches], following) == ([0], 3)

    def test_a_marker_fits_a_topic_that_refuses_its_time_and_keyless_records(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", max_message_bytes=1)
        assert log.append_markers([commit()]) == LogAppendInfo(0, 0)

    @pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (2**63, 0), (7, -1), (7, 2**15)])
    def test_a_marker_fits_the_header(self, producer_id, epoch):
        with pytest.raises(ValueError, match="are expected"):
            EndTransactionMarker(producer_id, epoch, True)


class TestOnce:
    def test_a_marker_is_put_once(self, store, log):
        send(log)
        assert log.append_markers([commit()]) is not None
        store.calls.clear()
        assert log.append_markers([commit()]) is None
        assert store.called("put_if_absent") == store.called("list") == []

    def test_a_process_that_knows_nothing_finds_it(self, log, others):
        send(log)
        others.append_markers([commit()])
        assert log.append_markers([commit()]) is None
        assert log.observe().log_end_offset == 3

    def test_only_missing_markers_are_put(self, log, others):
        others.append_markers([abort(8), abort(9, epoch=4)])
        assert log.append_markers([commit(7), abort(8), abort(9, epoch=3)]) == LogAppendInfo(2, 2)
        assert [each[1:3] for each in headers(log)] == [(8, 1), (9, 4), (7, 1)]

    def test_a_marker_is_not_put_behind_records_of_the_next_transaction(self, log, others):
        send(log)
        log.append_markers([commit()])
        send(log, epoch=1)
        assert others.append_markers([commit()]) is None
        assert entry_of(log).first_transaction_offset == 3

    def test_a_marker_without_records_is_put(self, log):
        assert log.append_markers([abort()]) == LogAppendInfo(0, 0)
        assert entry_of(log).epoch == 1

    def test_another_process_puts_the_same_markers_first(self, store, log, others):
        send(log)

        def race(path, call):
            others.append_markers([commit(7), commit(8)])
            return call()

        store.once("put_if_absent", race)
        assert log.append_markers([commit(7), commit(8)]) is None
        assert len(headers(log)) == 3

    def test_another_process_puts_some_of_them_first(self, store, log, others):
        send(log)

        def race(path, call):
            others.append_markers([commit(8)])
            return call()

        store.once("put_if_absent", race)
        assert log.append_markers([commit(7), commit(8)]) == LogAppendInfo(3, 3)
        assert [each[1] for each in headers(log)] == [7, 8, 7]

    def test_another_append_comes_first(self, store, log, others):
        send(log)

        def race(path, call):
            others.append(numbered(0, 5))
            return call()

        store.once("put_if_absent", race)
        assert log.append_markers([commit()]) == LogAppendInfo(7, 7)

    def test_nothing_stays_staged(self, store, log):
        send(log)
        log.append_markers([commit()])
        log.append_markers([commit()])
        assert [name for name in file_names(store) if not name.endswith(".log")] == []


class TestLostAnswers:
    def test_a_marker_that_landed_is_found(self, store, log):
        send(log)
        store.once("put_if_absent", done_but(LOST))
        assert log.append_markers([commit()]) is None
        assert len(headers(log)) == 2

    def test_the_log_messages_do_not_tell_that_a_marker_that_landed_is_missing(
        self, store, log, caplog
    ):
        send(log)
        store.once("put_if_absent", done_but(LOST))
        with caplog.at_level(logging.DEBUG, "spark_log.log.append"):
            log.append_markers([commit()])
        assert "the next check tells whether its markers or its barrier are in the log" in (
            caplog.text
        )
        assert "is not in the log" not in caplog.text

    def test_a_marker_that_did_not_land_is_put_again(self, store, log):
        send(log)
        store.once("put_if_absent", failing(LOST))
        assert log.append_markers([commit()]) == LogAppendInfo(2, 2)

    def test_it_landed_and_was_merged(self, store, log, others):
        send(log)

        def landed(path, call):
            call()
            others.append(numbered(0, 1))
            view = others.observe()
            merge(others.files, view, 0, 2)
            free(store, *(each.name for each in view.live.segments))
            raise LOST

        store.once("put_if_absent", landed)
        assert log.append_markers([commit(), abort(8)]) is None
        assert [each[1] for each in headers(log)] == [7, 7, 8, -1]

    def test_the_storage_does_not_answer_the_search(self, store, log):
        send(log)
        store.once("put_if_absent", done_but(LOST))
        store.once("list", failing(DOWN))
        with pytest.raises(UnknownOutcomeError):
            log.append_markers([commit()])
        assert log.append_markers([commit()]) is None

    def test_nothing_was_put(self, store, log):
        send(log)
        store.once("put_if_absent", failing(DOWN))
        with pytest.raises(StorageError) as error:
            log.append_markers([commit()])
        assert not isinstance(error.value, UnknownOutcomeError)

    def test_a_name_that_cannot_be_read_is_searched_for(self, store, log, others):
        send(log)

        def taken(path, call):
            others.append_markers([commit()])
            raise AlreadyExistsError("taken", path=path)

        store.once("put_if_absent", taken)
        store.once("open_buffer", failing(DOWN))
        assert log.append_markers([commit()]) is None

    def test_what_others_put_is_synced_before_it_is_told(self, store, clock, others):
        log = open_log(store, clock=clock, flush_on_append=True)
        others.append_markers([commit()])
        log.append_markers([commit()])
        assert store.called("sync") == [DIRECTORY]


class TestFencing:
    def test_a_zombies_late_batch_is_refused_behind_its_marker(self, log, others):
        send(log)
        others.append_markers([abort()])
        with pytest.raises(InvalidProducerEpochError) as error:
            send(log, sequence=2)
        assert (error.value.producer_epoch, error.value.current_epoch) == (0, 1)
        assert log.observe().log_end_offset == 3

    def test_a_zombies_first_batch_is_refused_behind_its_marker(self, log, others):
        others.append_markers([abort()])
        with pytest.raises(InvalidProducerEpochError):
            send(log)

    def test_the_next_transaction_begins_in_the_markers_epoch(self, log, others):
        for epoch in range(3):
            assert send(log, epoch=epoch).base_offset == 3 * epoch
            others.append_markers([commit(epoch=epoch + 1)])
        with pytest.raises(OutOfOrderSequenceError):
            send(log, epoch=3, sequence=2)

    def test_a_retry_behind_the_marker_is_not_appended_again(self, store, log, others):
        def landed(path, call):
            call()
            others.append_markers([commit()])
            raise LOST

        store.once("put_if_absent", landed)
        assert send(log) == LogAppendInfo(0, 1)

    @pytest.mark.parametrize(("epoch", "is_transactional"), [(1, True), (1, False), (0, False)])
    def test_nothing_else_of_the_producer_is_appended_to_an_open_transaction(
        self, log, epoch, is_transactional
    ):
        send(log)
        sequence = 0 if epoch else 2
        with pytest.raises(InvalidTxnStateError, match="is open since offset 0"):
            send(log, epoch=epoch, sequence=sequence, is_transactional=is_transactional)
        assert log.observe().log_end_offset == 2

    def test_after_the_marker_it_may_append_without_a_transaction(self, log):
        send(log)
        log.append_markers([commit()])
        send(log, epoch=1, is_transactional=False)


class TestState:
    def test_a_transaction_is_open_from_its_first_record_to_its_marker(self, log, others):
        log.append(numbered(0, 3))
        send(log)
        send(log, sequence=2)
        assert entry_of(log).first_transaction_offset == 3
        assert entry_of(others).first_transaction_offset == 3
        others.append_markers([commit()])
        entry = entry_of(log)
        assert (entry.epoch, entry.runs, entry.first_transaction_offset) == (1, (), None)

    def test_an_open_transaction_does_not_expire(self, log, clock):
        send(log)
        send(log, producer_id=8, is_transactional=False)
        state = log.producers()
        expired = state.without_expired(now_us=2**62, expiration_ms=1)
        assert [producer_id for producer_id, _ in expired.entries()] == [7]
        with pytest.raises(InvalidTxnStateError):
            expired.check(
                ProducerAppend(7, 1, 0, True), now_us=2**62, expiration_ms=1, where="here"
            )

    def test_an_own_append_of_markers_leaves_what_a_replay_gives(self, log, others):
        for producer_id in (7, 8, 9):
            send(log, producer_id=producer_id)
        log.append_markers([commit(7), abort(8), commit(9)])
        for each in (7, 8, 9):
            send(log, producer_id=each, epoch=1)  # checked against the state of the own append
            assert entry_of(log, each).runs == entry_of(others, each).runs
        assert isinstance(log.producers().offset, int)


def test_a_merge_keeps_markers_and_transactional_batches(log):
    send(log)
    send(log, sequence=2)
    log.append_markers([abort(7), commit(8)])
    before = headers(log)
    view = log.observe()
    merge(log.files, view, 0, len(view.live.segments) - 1)
    assert headers(log) == before
    _, records = log.files.open(log.observe().live.segments[0].name).read_batch(0)
    assert pa.compute.count_distinct(records.column("key")).as_py() == 2
