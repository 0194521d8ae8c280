"""Batches of several producers in one append: one segment, and each batch is decided alone."""

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import (
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend, LocalLog, LogAppendInfo, LogValidator
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from spark_log.log.segment import consecutive_batches, validated_batch
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.log.support import ANY_TIME, DIRECTORY, TOPIC_ID, done_but, failing, file_names, open_log
from tests.record.samples import numbered

LOST = UnknownOutcomeError("the answer was lost")


@pytest.fixture
def others(inner, clock):
    """Another process on the same files, whose calls are not hooked."""
    return open_log(inner, clock=clock)


def batch(producer_id=None, sequence=0, count=2, *, epoch=0, is_transactional=False):
    """Return a batch; ``producer_id`` None is a client that is not idempotent."""
    producer = None
    if producer_id is not None:
        producer = ProducerAppend(producer_id, epoch, sequence, is_transactional)
    return BatchAppend(numbered(sequence, count, mark=f"{producer_id}.{epoch}"), producer)


def append(log, *batches, epoch=0):
    """Append, and return the results: of offsets as pairs, of errors as their class."""

    def stage(chosen):
        return log.stager.stage_batches(chosen, "none", epoch)

    results = log.appender.append_batches(batches, stage).results
    return [
        (result.base_offset, result.last_offset) if isinstance(result, LogAppendInfo)
        else result and type(result)
        for result in results
    ]  # fmt: skip


def after(others_append):
    """A hook that lets another process append before the call."""

    def append_and_call(path, call):
        others_append()
        call()

    return append_and_call


def lost_after_a_merge(others):
    """A hook that makes the put, merges what was put, and loses the answer."""

    def put_and_merge(path, call):
        call()
        merge(others.files, others.observe(), 0, 1)
        raise LOST

    return put_and_merge


def values(log):
    return [
        value.decode() for each in log.scan(0) for value in each.records.column("value").to_pylist()
    ]


class TestOnePut:
    def test_has_the_batches_of_all_producers(self, log, store):
        assert append(log, batch(1), batch(2, count=3), batch()) == [(0, 1), (2, 4), (5, 6)]
        assert [name for name in file_names(store) if name.endswith(".log")] == [
            SegmentName(0).file_name
        ]
        assert len(values(log)) == 7

    def test_makes_one_arrow_batch_of_small_batches_with_a_header_for_each(self, log):
        append(log, batch(1), batch(2), batch(1, 2))
        reader = log.files.open(SegmentName(0))
        assert reader.batch_count == 1
        assert [
            (each.producer_id, each.base_sequence, each.base_offset_delta)
            for each in reader.headers(0)
        ] == [(1, 0, 0), (2, 0, 2), (1, 2, 4)]

    def test_is_followed_by_single_appends_of_the_producers(self, log, others):
        append(log, batch(1), batch(2))
        records = batch(2, 2)
        assert others.append(records.records, producer=records.producer).base_offset == 4
        assert append(log, batch(1, 2), batch(2, 2)) == [(6, 7), (4, 5)]

    def test_merges_and_splits_as_any_segment(self, log, others):
        append(log, batch(1), batch(2))
        append(log, batch(2, 2), batch(1, 2), batch())
        before = values(log)
        view = log.observe()
        merge(log.files, view, 0, 1)
        assert values(others) == before
        assert append(others, batch(1, 2), batch(2, 2), batch(1, 4)) == [(6, 7), (4, 5), (10, 11)]


class TestEachBatch:
    def test_that_is_in_the_log_gets_its_first_offsets_and_is_left_out(self, log):
        append(log, batch(1), batch(2))
        assert append(log, batch(2), batch(3), batch(1, 2)) == [(2, 3), (4, 5), (6, 7)]
        assert len(values(log)) == 8

    def test_that_leaves_a_gap_is_refused_alone(self, log):
        append(log, batch(1))
        assert append(log, batch(1, 5), batch(2)) == [OutOfOrderSequenceError, (2, 3)]

    def test_that_is_fenced_is_refused_alone(self, log):
        append(log, batch(1, epoch=1))
        assert append(log, batch(2), batch(1)) == [(2, 3), InvalidProducerEpochError]

    def test_that_does_not_belong_to_the_open_transaction_is_refused_alone(self, log):
        append(log, batch(1, is_transactional=True))
        assert append(log, batch(2), batch(1, 2)) == [(2, 3), InvalidTxnStateError]
        log.append_markers([EndTransactionMarker(1, 1, True)])
        assert append(log, batch(1, epoch=1), batch(2, 2)) == [(5, 6), (7, 8)]

    def test_that_follows_a_refused_one_is_decided_after_it(self, log):
        append(log, batch(1))
        results = append(log, batch(1, 5), batch(1, 7), batch(2))
        assert results == [OutOfOrderSequenceError, OutOfOrderSequenceError, (2, 3)]

    def test_that_follows_a_repeat_is_appended(self, log):
        append(log, batch(1))
        assert append(log, batch(1), batch(1, 2)) == [(0, 1), (2, 3)]

    def test_of_an_unknown_producer_may_have_any_sequence_number(self, log):
        assert append(log, batch(1, 70)) == [(0, 1)]

    def test_that_repeats_one_of_the_same_call_waits_for_the_next(self, log):
        assert append(log, batch(1), batch(1), batch(2)) == [(0, 1), None, (2, 3)]


class TestBatchesOfOneSegment:
    @pytest.mark.parametrize(
        ("batches", "chosen"),
        [
            ([batch(1), batch(1, 2), batch(1, 4)], [0, 1, 2]),
            ([batch(1), batch(2), batch(1, 2)], [0, 1, 2]),
            ([batch(1), batch(1)], [0]),
            ([batch(1), batch(1, 3)], [0]),
            ([batch(1), batch(1, 3), batch(1, 2)], [0]),
            ([batch(1), batch(1, epoch=1)], [0]),
            ([batch(1), batch(1, 2, is_transactional=True)], [0]),
            ([batch(), batch()], [0, 1]),
            ([batch(1, 2**31 - 2), batch(1, 0)], [0, 1]),
        ],
    )
    def test_follow_each_other_in_each_producers_sequence(self, batches, chosen):
        assert consecutive_batches(batches, range(len(batches))) == chosen


class TestAfterALostRace:
    def test_what_the_winner_has_is_not_put_again(self, log, others, store):
        append(log, batch(9))

        store.once("put_if_absent", after(lambda: append(others, batch(1))))
        assert append(log, batch(1), batch(2)) == [(2, 3), (4, 5)]
        assert len(values(log)) == 6

    def test_what_the_winner_fences_is_refused(self, log, others, store):
        append(log, batch(1))

        store.once("put_if_absent", after(lambda: append(others, batch(1, epoch=1))))
        assert append(log, batch(1, 2), batch(2)) == [InvalidProducerEpochError, (4, 5)]


class TestAfterALostAnswer:
    def test_what_was_put_is_found(self, log, store):
        append(log, batch(9))
        store.once("put_if_absent", done_but(LOST))
        assert append(log, batch(1), batch(), batch(2)) == [(2, 3), (4, 5), (6, 7)]
        assert len(values(log)) == 8

    def test_what_was_not_put_is_put(self, log, store):
        append(log, batch(9))
        store.once("put_if_absent", failing(LOST))
        assert append(log, batch(1), batch()) == [(2, 3), (4, 5)]

    def test_idempotent_batches_are_found_also_when_they_were_merged(self, log, others, store):
        append(log, batch(9))

        store.once("put_if_absent", lost_after_a_merge(others))
        assert append(log, batch(1), batch(2)) == [(2, 3), (4, 5)]

    def test_a_batch_without_a_producer_that_was_merged_has_an_unknown_outcome(
        self, log, others, store
    ):
        append(log, batch(9))

        store.once("put_if_absent", lost_after_a_merge(others))
        with pytest.raises(UnknownOutcomeError):
            append(log, batch(1), batch())


class TestAnInvalidBatch:
    def test_is_found_before_anything_is_staged(self, log, clock):
        validator = LogValidator(log.config, clock)
        with pytest.raises(InvalidRecordError):
            validated_batch(BatchAppend(batch(1).records.slice(0, 0)), validator)
        valid = batch(1)
        assert validated_batch(valid, validator) is valid


class TestABarrierThatAListingShows:
    """The log is listed again when a batch seems to leave a gap: its leader epoch may be newer."""

    @pytest.fixture
    def old(self, inner, clock):
        return with_epochs(inner, clock)

    @pytest.fixture(autouse=True)
    def _newer_leader(self, inner, clock, old):
        """Another process continues the producer's sequence, and begins the next epoch."""
        old.append_barrier(1, [0], [])
        assert append(old, batch(1), epoch=1) == [(1, 2)]
        newer = with_epochs(inner, clock)
        newer.append_barrier(1, [0], [])
        assert append(newer, batch(1, 2), epoch=1) == [(3, 4)]
        newer.append_barrier(2, [0], [])

    def test_fences_batches_of_the_epoch_before(self, old):
        with pytest.raises(FencedLeaderEpochError):
            append(old, batch(1, 4), epoch=1)

    def test_fences_a_single_append_of_the_epoch_before(self, old):
        sent = batch(1, 4)
        writer = old.stager.segment_writer(producer=sent.producer, leader_epoch=1)
        writer.write(sent.records)
        with pytest.raises(FencedLeaderEpochError):
            old.appender.append_segment(writer.finish())


def with_epochs(store, clock):
    """A log whose appends are checked against its leader epoch, as that of a replica."""
    return LocalLog(
        store,
        DIRECTORY,
        topic_id=TOPIC_ID,
        partition=0,
        config=TopicConfig.parse({"flush_on_append": False, **ANY_TIME}),
        clock=clock,
        has_leader_epochs=True,
    )
