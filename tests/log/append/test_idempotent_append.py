"""Idempotent appends: retried ones are in the log once, after any error, merge or restart."""

import pytest

from spark_log.errors import (
    AlreadyExistsError,
    InvalidProducerEpochError,
    LogEndOffsetMismatchError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo
from spark_log.log.files.file_names import SegmentName, snapshot_name
from spark_log.log.log_start import move_log_start
from spark_log.log.producers import producer_state
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite.merger import merge
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    ShiftedClock,
    done_but,
    failing,
    file_names,
    free,
    move_start,
    open_log,
    values,
)
from tests.record.samples import numbered

HALF_DELAY_MS = 30_000
LOST = UnknownOutcomeError("the answer was lost")
DOWN = StorageError("the storage does not answer")


@pytest.fixture
def others(inner, clock):
    """Another process on the same files, whose calls are not hooked."""
    return open_log(inner, clock=clock)


def append(log, sequence, count=2, *, epoch=0, producer_id=7, **condition):
    """Append the producer's records of these sequence numbers."""
    producer = ProducerAppend(producer_id, epoch, sequence)
    mark = f"{producer_id}.{epoch}"
    return log.append(numbered(sequence, count, mark=mark), producer=producer, **condition)


def mine(offset, sequence, count=2, *, epoch=0, producer_id=7):
    """The records of `append` as they are read from an offset on."""
    mark = f"{producer_id}.{epoch}"
    return [(offset + at, f"{mark}:{sequence + at}".encode()) for at in range(count)]


def append_theirs(others, count):
    others.append(numbered(0, count, mark="theirs"))


def merge_all(log):
    """Merge the whole log into one segment that keeps all batch headers."""
    view = log.observe()
    merge(log.files, view, 0, len(view.live.segments) - 1)


def theirs(first, last):
    return [(offset, f"theirs:{offset - first}".encode()) for offset in range(first, last)]


class TestTwoHandlesOfOneProducer:
    """A producer may move to another process, and back."""

    def test_each_may_continue_where_the_other_ended(self, log, others):
        for sequence in range(0, 12, 4):
            append(log, sequence)
            append(others, sequence + 2)
        assert values(others) == [pair for at in range(0, 12, 2) for pair in mine(at, at)]

    def test_a_gap_is_refused_after_a_listing_of_the_others_appends(self, store, log, others):
        append(log, 0)
        append(others, 2)
        store.calls.clear()
        with pytest.raises(OutOfOrderSequenceError, match="but 4 comes next"):
            append(log, 5)
        assert store.called("list") == [DIRECTORY]
        assert append(log, 4) == LogAppendInfo(4, 5)


class TestRepeat:
    def test_answers_with_the_first_ones_offsets_and_appends_nothing(self, log, others):
        append_theirs(others, 3)
        assert append(log, 0) == append(log, 0) == LogAppendInfo(3, 4)
        assert append(log, 2) == LogAppendInfo(5, 6)
        assert append(log, 0) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3, 0) + mine(5, 2)

    def test_by_another_process_does_too(self, log, others):
        append(log, 0)
        append_theirs(others, 1)
        assert append(others, 0) == LogAppendInfo(0, 1)
        assert append(others, 2) == LogAppendInfo(3, 4)
        assert append(log, 2) == LogAppendInfo(3, 4)

    def test_costs_no_listing_once_the_producers_are_known(self, store, log):
        append(log, 0)
        store.calls.clear()
        append(log, 2)
        append(log, 2)
        assert store.called("list") == []
        assert len(store.called("put_if_absent")) == 1

    def test_of_many_batches_is_known_by_its_first_record(self, log, others):
        producer = ProducerAppend(7, 0, 0)
        batches = [numbered(at, 1) for at in range(40)]
        assert log.append(batches, producer=producer) == LogAppendInfo(0, 39)
        assert others.append(batches, producer=producer) == LogAppendInfo(0, 39)
        assert append(others, 40) == LogAppendInfo(40, 41)

    def test_is_known_after_the_merge_of_all_and_the_loss_of_every_snapshot(
        self, inner, clock, log, others
    ):
        for sequence in (0, 2, 4):
            append(log, sequence)
            append_theirs(others, 1)
        merge_all(others)
        free(inner, *(SegmentName(base) for base in (0, 2, 3, 5, 6, 8)))
        fresh = open_log(inner, clock=clock)
        assert [append(fresh, sequence).base_offset for sequence in (0, 2, 4)] == [0, 3, 6]
        assert append(fresh, 6) == LogAppendInfo(9, 10)

    def test_is_known_from_a_snapshot_when_its_records_were_deleted(self, inner, clock, log):
        append(log, 0)
        log.snapshots.write()
        move_start(inner, 2, 2)
        free(inner, SegmentName(0))
        fresh = open_log(inner, clock=clock)
        assert append(fresh, 0) == LogAppendInfo(0, 1)
        assert append(fresh, 2) == LogAppendInfo(2, 3)

    def test_of_a_conditional_append_answers_though_the_log_has_moved_on(self, log, others):
        append(log, 0, expected_end_offset=0)
        append_theirs(others, 1)
        assert append(log, 0, expected_end_offset=0) == LogAppendInfo(0, 1)
        assert append(others, 0, expected_end_offset=0) == LogAppendInfo(0, 1)
        with pytest.raises(LogEndOffsetMismatchError):
            append(log, 2, expected_end_offset=2)
        assert append(log, 2, expected_end_offset=3) == LogAppendInfo(3, 4)


class TestRefused:
    @pytest.mark.parametrize("sequence", [1, 3, 2**31 - 1])
    def test_a_gap_and_nothing_is_appended(self, inner, log, sequence):
        append(log, 0)
        before = file_names(inner)
        with pytest.raises(OutOfOrderSequenceError):
            append(log, sequence)
        assert file_names(inner) == before
        append(log, 2)

    def test_an_old_epoch_also_by_a_writer_that_does_not_know_the_new_one(self, log, others):
        append(log, 0)
        append(others, 0, epoch=1)
        with pytest.raises(InvalidProducerEpochError):
            append(log, 2)
        assert values(others) == mine(0, 0) + mine(2, 0, epoch=1)

    def test_a_producer_whose_newer_epoch_won_the_name(self, store, log, others):
        """State before put: the winner's headers are replayed before the next put."""
        append(log, 0)

        def come_first(path, call):
            append(others, 0, epoch=1)
            call()

        store.once("put_if_absent", come_first)
        with pytest.raises(InvalidProducerEpochError):
            append(log, 2)
        assert values(others) == mine(0, 0) + mine(2, 0, epoch=1)


class TestLostAnswer:
    @pytest.mark.parametrize("lose", [failing(LOST), done_but(LOST)])
    def test_is_resolved_at_once(self, store, log, others, lose):
        append_theirs(others, 3)
        store.once("put_if_absent", lose)
        assert append(log, 0) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3, 0)
        assert append(log, 2) == LogAppendInfo(5, 6)

    @pytest.mark.parametrize("lose", [failing(LOST), done_but(LOST)])
    def test_is_resolved_by_a_retry_when_the_store_is_back(self, store, log, others, lose):
        append(log, 0)
        store.once("put_if_absent", lose)
        store.on("list", failing(DOWN))
        with pytest.raises(UnknownOutcomeError) as caught:
            append(log, 2)
        assert caught.value.retriable
        with pytest.raises(StorageError, match="does not answer"):
            append(log, 2)
        store.hooks.clear()
        assert append(log, 2) == LogAppendInfo(2, 3)
        assert values(others) == mine(0, 0) + mine(2, 2)

    def test_of_an_append_that_was_merged_and_deleted_meanwhile_is_success(
        self, store, inner, log, others
    ):
        """Without a producer the outcome would be unknown; here the merged headers show it."""

        def lose(path, call):
            call()
            append_theirs(others, 3)
            merge_all(others)
            free(inner, SegmentName(0), SegmentName(2))
            raise LOST

        store.once("put_if_absent", lose)
        assert append(log, 0) == LogAppendInfo(0, 1)
        assert values(others) == mine(0, 0) + theirs(2, 5)

    def test_of_an_append_that_retention_deleted_meanwhile_is_success(
        self, store, inner, log, others
    ):
        def lose(path, call):
            call()
            others.snapshots.write()
            move_start(inner, 2, 2)
            free(inner, SegmentName(0))
            raise LOST

        store.once("put_if_absent", lose)
        assert append(log, 0) == LogAppendInfo(0, 1)
        assert append(log, 2) == LogAppendInfo(2, 3)
        assert values(others) == mine(2, 2)

    def test_that_an_earlier_try_in_other_bytes_has_the_name_is_success(self, store, log, others):
        """The same records were staged again, by this or another process."""
        late = []

        def delay(path, call):
            late.append((path, store.source.read_back().to_pybytes()))
            store.on("list", failing(DOWN))
            raise LOST

        store.once("put_if_absent", delay)
        with pytest.raises(UnknownOutcomeError):
            append(log, 0)
        store.hooks.clear()

        def deliver_first(path, call):
            store.inner.put_if_absent(*late[0])
            call()

        store.once("put_if_absent", deliver_first)
        assert append(log, 0) == LogAppendInfo(0, 1)
        assert values(others) == mine(0, 0)

    @pytest.mark.parametrize("lose", [done_but(LOST), done_but(AlreadyExistsError("exists"))])
    def test_of_a_producer_that_was_fenced_at_once_is_found_by_its_offset(
        self, store, clock, log, others, lose
    ):
        """The producer state has the newer epoch alone; the append may still be in the log."""
        append(log, 0)

        def lose_and_be_fenced(path, call):
            try:
                lose(path, call)
            finally:
                append(others, 0, epoch=1)
                clock.advance_ms(HALF_DELAY_MS)

        store.once("put_if_absent", lose_and_be_fenced)
        assert append(log, 2) == LogAppendInfo(2, 3)
        with pytest.raises(InvalidProducerEpochError):
            append(log, 4)
        assert values(others) == mine(0, 0) + mine(2, 2) + mine(4, 0, epoch=1)

    def test_of_a_fenced_producer_that_is_not_in_the_log_is_a_refusal(self, store, log, others):
        append(log, 0)

        def be_fenced_and_lose(path, call):
            append(others, 0, epoch=1)
            raise LOST

        store.once("put_if_absent", be_fenced_and_lose)
        with pytest.raises(InvalidProducerEpochError):
            append(log, 2)
        assert values(others) == mine(0, 0) + mine(2, 0, epoch=1)

    def test_of_a_fenced_producer_whose_segment_was_rewritten_stays_unknown(
        self, store, inner, log, others
    ):
        append(log, 0)

        def lose_and_be_fenced(path, call):
            call()
            append(others, 0, epoch=1)
            merge_all(others)
            raise LOST

        store.once("put_if_absent", lose_and_be_fenced)
        with pytest.raises(UnknownOutcomeError):
            append(log, 2)
        assert values(others) == mine(0, 0) + mine(2, 2) + mine(4, 0, epoch=1)


class TestLateSuccess:
    def test_under_a_name_that_was_freed_is_put_again_at_the_logs_end(
        self, store, inner, clock, log, others
    ):
        append(log, 0)

        def be_very_late(path, call):
            append_theirs(others, 3)
            merge_all(others)
            free(inner, SegmentName(0), SegmentName(2))
            clock.advance_ms(10 * HALF_DELAY_MS)
            call()

        store.once("put_if_absent", be_very_late)
        assert append(log, 2) == LogAppendInfo(5, 6)
        assert SegmentName(2).file_name in file_names(inner), "void, and nobody's business"
        assert values(others) == mine(0, 0) + theirs(2, 5) + mine(5, 2)

    def test_a_lost_race_does_not_make_the_listing_any_newer(
        self, store, inner, clock, log, others
    ):
        """Two pauses, each shorter than half the delay, are longer together."""
        append(log, 0)

        def lose_slowly(path, call):
            append_theirs(others, 3)
            append_theirs(others, 2)
            merge_all(others)
            clock.advance_ms(HALF_DELAY_MS - 1)
            store.once("put_if_absent", be_late_again)
            call()

        def be_late_again(path, call):
            clock.advance_ms(HALF_DELAY_MS - 1)
            free(inner, SegmentName(0), SegmentName(2), SegmentName(5))
            call()

        store.once("put_if_absent", lose_slowly)
        assert append(log, 2) == LogAppendInfo(7, 8)
        assert values(others) == mine(0, 0) + theirs(2, 5) + theirs(5, 7) + mine(7, 2)

    def test_of_a_put_that_says_the_name_is_taken_by_oneself(self, store, log, others):
        store.once("put_if_absent", done_but(AlreadyExistsError("exists")))
        assert append(log, 0) == LogAppendInfo(0, 1)
        assert values(others) == mine(0, 0)


class TestForgotten:
    def test_is_a_producer_that_was_silent_for_a_day(self, clock, log, others):
        append(log, 0)
        clock.advance_ms(86_400_000)
        append_theirs(others, 1)  # shows the storage's time
        clock.advance_ms(HALF_DELAY_MS)
        assert append(log, 40) == LogAppendInfo(3, 4)

    def test_is_no_producer_as_long_as_the_storage_shows_no_newer_file(self, clock, log):
        append(log, 0)
        clock.advance_ms(86_400_000)
        with pytest.raises(OutOfOrderSequenceError):
            append(log, 40)

    def test_is_not_in_a_snapshot(self, clock, log):
        append(log, 0)
        clock.advance_ms(86_400_000)
        append(log, 0, producer_id=8)
        kept = [producer_id for producer_id, _ in log.snapshots.write().producers.entries()]
        assert kept == [8]

    def test_is_nothing_while_an_answer_is_outstanding(self, store, inner, clock, log, others):
        """Half a day after the append began, the log may soon forget its producer."""

        def lose(path, call):
            call()
            clock.advance_ms(43_200_000)
            raise LOST

        store.once("put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError):
            append(log, 0)
        assert append(log, 0) == LogAppendInfo(0, 1)
        assert values(others) == mine(0, 0)


class TestSnapshotLost:
    """Behind a moved log start: only the snapshot has the producers of deleted records."""

    @pytest.fixture
    def deleted(self, inner, log):
        """A log in which one producer's append was deleted; another producer's is left."""
        append(log, 0)
        append(log, 0, producer_id=8)
        move_log_start(log, 2)
        free(inner, SegmentName(0))
        (name,) = (name for name in file_names(inner) if name.endswith(".snapshot"))
        return f"{DIRECTORY}/{name}"

    @pytest.mark.parametrize("how", ["damaged", "gone", "too old"])
    def test_an_unknown_producer_is_logged_and_counted(self, inner, clock, deleted, how, caplog):
        if how == "damaged":
            inner.put(deleted, b"damaged")
        else:
            inner.delete(deleted)
        if how == "too old":
            snapshot = Snapshot(1, (), ProducerState(1))
            data = snapshot.to_buffer(topic_id=TOPIC_ID, partition=0)
            inner.put(f"{DIRECTORY}/{snapshot_name(1)}", data)
        fresh = open_log(inner, clock=clock)
        with caplog.at_level("WARNING", "spark_log.util.suppressed"):
            assert append(fresh, 0).base_offset == 4  # appended again: its producer is unknown
            assert append(open_log(inner, clock=clock), 2).base_offset == 6
        assert fresh.suppressed.counts()["reading of producers"] == 1
        (line,) = (each for each in caplog.messages if "reading of producers" in each)
        assert (
            "starts at offset 2, and no snapshot of this offset or a later one can be read" in line
        )

    def test_a_producer_with_records_in_the_log_is_known(self, inner, clock, deleted):
        inner.put(deleted, b"damaged")
        fresh = open_log(inner, clock=clock)
        assert append(fresh, 0, producer_id=8) == LogAppendInfo(2, 3)
        with pytest.raises(OutOfOrderSequenceError):
            append(fresh, 6, producer_id=8)

    def test_a_valid_older_one_is_used_without_a_warning(self, inner, clock, log, deleted):
        append(log, 2)
        newest = log.snapshots.write()
        inner.put(f"{DIRECTORY}/{snapshot_name(newest.offset)}", b"damaged")
        fresh = open_log(inner, clock=clock)
        assert append(fresh, 0) == LogAppendInfo(0, 1)
        assert fresh.suppressed.counts() == {"snapshot": 1}

    def test_nothing_is_said_where_nothing_was_deleted(self, inner, clock, log):
        append(log, 0)
        newest = log.snapshots.write()
        inner.put(f"{DIRECTORY}/{snapshot_name(newest.offset)}", b"damaged")
        fresh = open_log(inner, clock=clock)
        assert append(fresh, 0) == LogAppendInfo(0, 1)
        assert fresh.suppressed.counts() == {"snapshot": 1}


@pytest.mark.parametrize("days", [2, 8, -2])
class TestWrongClock:
    """One machine's clock is days wrong: producers expire neither early nor never."""

    def test_of_a_snapshot_writer_forgets_no_producer(self, inner, clock, log, days):
        append(log, 0)
        wrong = open_log(inner, clock=ShiftedClock(clock, days=days))
        wrong.snapshots.write()
        move_log_start(wrong, 2)  # only the snapshot has the producer now
        again = open_log(inner, clock=clock)
        assert append(again, 0) == LogAppendInfo(0, 1)

    def test_of_an_appender_forgets_no_producer(self, inner, clock, log, days):
        wrong = open_log(inner, clock=ShiftedClock(clock, days=days))
        append(wrong, 0, producer_id=8)  # loads the log's end and its producers
        append(log, 0)
        append_theirs(log, 1)
        with pytest.raises(OutOfOrderSequenceError):
            append(wrong, 40)  # the other append won a race
        clock.advance_ms(HALF_DELAY_MS)
        with pytest.raises(OutOfOrderSequenceError):
            append(wrong, 40)  # a listing showed the other append
        append(wrong, 0, producer_id=9)
        with pytest.raises(OutOfOrderSequenceError):
            append(wrong, 40, producer_id=9)  # its own append
        again = open_log(inner, clock=ShiftedClock(clock, days=days))
        with pytest.raises(OutOfOrderSequenceError):
            append(again, 40)  # found by the first listing

    def test_that_jumps_forgets_no_producer(self, inner, clock, days):
        jumping = ShiftedClock(clock)
        log = open_log(inner, clock=jumping)
        append(log, 0)
        jumping.shift(days=days)
        with pytest.raises(OutOfOrderSequenceError):
            append(log, 40)
        assert append(log, 0) == LogAppendInfo(0, 1)

    def test_forgets_a_producer_that_was_silent_for_a_day_of_the_storages(self, inner, clock, days):
        log = open_log(inner, clock=ShiftedClock(clock, days=days))
        append(log, 0)
        append(log, 0, producer_id=8)
        clock.advance_ms(43_200_000)
        append(log, 2, producer_id=8)
        clock.advance_ms(43_200_000)
        append_theirs(open_log(inner, clock=clock), 1)
        kept = [producer_id for producer_id, _ in log.snapshots.write().producers.entries()]
        assert kept == [8]


class TestProducerState:
    def test_is_correct_beside_appends_without_a_producer(self, log, others):
        append(log, 0)
        append_theirs(log, 3)
        append_theirs(others, 2)
        append_theirs(log, 1)
        assert append(log, 2) == LogAppendInfo(8, 9)
        assert append(log, 2) == LogAppendInfo(8, 9)

    def test_is_kept_in_the_directory_of_the_partition(self, inner, log):
        append(log, 0)
        assert all(file.path.startswith(DIRECTORY) for file in inner.list(DIRECTORY))


class TestManyProducers:
    """An appender that runs for months meets ever new producers: each has a random id."""

    def test_those_that_have_expired_are_forgotten(self, monkeypatch):
        monkeypatch.setattr(producer_state, "_MIN_GROWTH", 4)
        clock = ManualClock()
        log = open_log(
            MemoryStore(f"expiring-{id(clock)}", clock),
            clock=clock,
            merge_tail_segments=0,
            snapshot_interval_segments=4,
            producer_id_expiration_ms=10_000,
        )
        for number in range(100):
            log.append(numbered(number, 1), producer=ProducerAppend(number, 0, 0))
            clock.advance_ms(1_000)
        producers = log.appender._state._producers  # noqa: SLF001
        assert len(list(producers.entries())) < 50
        again = log.append(numbered(99, 1), producer=ProducerAppend(99, 0, 0))
        assert (again.base_offset, again.is_duplicate) == (99, True)
        assert len(values(log)) == 100

    def test_those_that_have_not_expired_are_kept(self, store, monkeypatch):
        monkeypatch.setattr(producer_state, "_MIN_GROWTH", 4)
        log = open_log(store, snapshot_interval_segments=4)
        for number in range(40):
            log.append(numbered(number, 1), producer=ProducerAppend(number, 0, 0))
        for number in range(40):
            again = log.append(numbered(number, 1), producer=ProducerAppend(number, 0, 0))
            assert (again.base_offset, again.is_duplicate) == (number, True)

    def test_aborted_transactions_are_not_kept_for_appends(self, store):
        log = open_log(store)
        for epoch in range(20):
            append = ProducerAppend(7, epoch, 0, is_transactional=True)
            log.append(numbered(epoch, 1), producer=append)
            log.append_markers([EndTransactionMarker(7, epoch + 1, is_committed=False)])
        producers = log.appender._state._producers  # noqa: SLF001
        assert producers.transactions.aborted_count == 0
