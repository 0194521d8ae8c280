"""The append protocol: answers are lost, names are taken and freed, and time passes.

An acknowledged append is in the live log once, at the returned offsets. A refused append is not in
it and never will be. Any other append has an unknown outcome (protocol A5).
"""

import errno
import os
import stat

import pytest

from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    LogEndOffsetMismatchError,
    LogTruncatedError,
    NotFoundError,
    StorageError,
    StorageFullError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo
from spark_log.log.append import appender
from spark_log.log.files.file_names import SegmentName
from spark_log.record import ProducerAppend
from spark_log.util.clock import ManualClock
from tests.log.support import (
    DIRECTORY,
    done_but,
    failing,
    file_names,
    free,
    free_plain,
    merge,
    move_start,
    open_log,
    put_segment,
    values,
)
from tests.record.samples import numbered

HALF_DELAY_MS = 30_000

LOST = UnknownOutcomeError("the answer was lost")
DOWN = StorageError("the storage does not answer")


@pytest.fixture
def others(inner):
    """Another writer of the same files, whose calls are not hooked."""
    return open_log(inner)


def mine(first, count=2):
    return [(first + at, f"mine:{at}".encode()) for at in range(count)]


def theirs(first, last):
    return [(offset, f"theirs:{offset - first}".encode()) for offset in range(first, last)]


def append(log, **condition):
    return log.append(numbered(0, 2, mark="mine"), **condition)


def append_theirs(others, count):
    others.append(numbered(0, count, mark="theirs"))


# --- lost races ----------------------------------------------------------------------------------


class TestLostRace:
    def test_the_same_bytes_go_under_the_next_name(self, store, log, others):
        def come_first(path, call):
            append_theirs(others, 3)
            call()

        store.once("put_if_absent", come_first)
        assert append(log) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3)
        assert store.called("stage") == [], "few records are staged in memory"
        assert store.called("put_if_absent") == [
            f"{DIRECTORY}/{SegmentName(base).file_name}" for base in (0, 3)
        ]

    def test_however_often_it_is_lost(self, store, log, others):
        races = iter(range(1, 30))

        def come_first(path, call):
            count = next(races, None)
            if count:
                append_theirs(others, count)
            call()

        store.on("put_if_absent", come_first)
        total = sum(range(1, 30))
        assert append(log) == LogAppendInfo(total, total + 1)
        assert values(others)[-2:] == mine(total)

    def test_the_end_is_read_from_the_winner_and_not_listed_again(self, store, log, others):
        append(log)
        append_theirs(others, 3)
        store.calls.clear()
        assert append(log) == LogAppendInfo(5, 6)
        assert store.called("list") == []

    def test_a_winner_with_equal_records_is_not_taken_for_ones_own(self, store, log, others):
        others.append(numbered(0, 2, mark="mine"))
        assert append(log) == LogAppendInfo(2, 3)
        assert values(others) == mine(0) + mine(2, 2)

    def test_a_winner_that_was_deleted_leaves_an_unknown_outcome(
        self, store, inner, clock, log, others
    ):
        """It was merged and later deleted before its headers could be read."""
        append(log)

        def come_first(path, call):
            append_theirs(others, 3)
            with pytest.raises(AlreadyExistsError) as taken:
                call()
            merge(inner, 0, 5)
            free(inner, SegmentName(0), SegmentName(2))
            clock.advance_ms(3 * HALF_DELAY_MS)
            raise taken.value

        store.once("put_if_absent", come_first)
        with pytest.raises(UnknownOutcomeError):
            append(log)
        assert append(log) == LogAppendInfo(5, 6)

    def test_to_a_late_file_does_not_hide_that_our_own_put_stood_there_before(
        self, store, inner, clock, log, others
    ):
        """The first put was late, merged and deleted; then another writer's put arrived."""
        delivered = []

        def in_flight(path, call):
            delivered.append(call)
            raise LOST

        def after_all_that(path, call):
            delivered[0]()
            merge(inner, 0, 2)
            free(inner, SegmentName(0))
            put_segment(inner, [numbered(0, 4, mark="theirs")], SegmentName(0))
            clock.advance_ms(3 * HALF_DELAY_MS)
            call()

        hooks = iter([in_flight, after_all_that])

        def one_after_the_other(path, call):
            next(hooks)(path, call)

        store.on("put_if_absent", one_after_the_other)
        with pytest.raises(UnknownOutcomeError):
            append(log)
        assert values(others) == mine(0), "not appended a second time"

    def test_a_damaged_winner_is_an_error_and_nothing_is_appended(self, store, inner, log):
        append(log)
        inner.put_if_absent(f"{DIRECTORY}/{SegmentName(2).file_name}", b"damaged")
        with pytest.raises(CorruptRecordError):
            append(log)
        assert file_names(inner) == [SegmentName(0).file_name, SegmentName(2).file_name]


class TestCatchingUp:
    """A writer that is slower than others does not try each name that they have taken."""

    COUNT = 100
    PRODUCER = ProducerAppend(7, 0, 0)

    @pytest.fixture(params=[None, PRODUCER], ids=["plain", "idempotent"])
    def producer(self, request):
        return request.param

    @pytest.fixture
    def behind(self, log, others, producer):
        """A log that has appended before, and does not know the later appends of others."""
        log.append(numbered(0, 2, mark="mine"), producer=producer)
        for _ in range(self.COUNT):
            append_theirs(others, 1)
        return log

    def go_on(self, log, producer):
        following = producer and ProducerAppend(7, 0, 2)
        return log.append(numbered(0, 2, mark="mine"), producer=following)

    def puts(self, store):
        return len(store.called("put_if_absent"))

    def test_takes_few_tries_however_many_came_first(self, store, others, behind, producer):
        store.calls.clear()
        assert self.go_on(behind, producer) == LogAppendInfo(102, 103)
        assert self.puts(store) == 2  # one that loses, and the one behind all of them
        assert len(store.called("list")) == 1
        assert values(others)[-2:] == mine(102)

    def test_passes_others_before_its_put_as_long_as_it_meets_some(self, store, log, others):
        puts = []
        for came_first in (0, 3, 3, 3, 0, 3):
            for _ in range(came_first):
                append_theirs(others, 1)
            store.calls.clear()
            log.append(numbered(0, 2, mark="mine"))
            puts.append(self.puts(store))
        assert puts == [1, 2, 1, 1, 1, 2]
        assert store.called("list") == []

    def test_continues_name_by_name_behind_segments_that_the_listing_lacks(
        self, store, others, behind, producer
    ):
        store.once("list", lambda path, call: [*call()[:70], *call()[74:80]])
        store.calls.clear()
        assert self.go_on(behind, producer) == LogAppendInfo(102, 103)
        assert values(others)[-2:] == mine(102)

    def test_replays_the_producers_of_all_segments_that_it_passes(self, store, log, others):
        log.append(numbered(0, 2), producer=self.PRODUCER)
        for sequence in range(30):
            others.append(numbered(0, 1), producer=ProducerAppend(8, 0, sequence))
        self.go_on(log, self.PRODUCER)
        store.calls.clear()
        repeat = ProducerAppend(8, 0, 29)
        assert log.append(numbered(0, 1), producer=repeat) == LogAppendInfo(31, 31)
        assert store.called("list") == store.called("put_if_absent") == []

    def test_that_takes_longer_than_a_listing_is_valid_lists_the_log(
        self, store, inner, clock, others, behind, producer
    ):
        """The observed files may have been deleted, and their names taken by late puts."""

        def take_long(path, call):
            found = call()
            merge(inner, 0, 102)
            free_plain(inner, 1_000)
            put_segment(inner, [numbered(0, 40, mark="void")], SegmentName(101))
            clock.advance_ms(HALF_DELAY_MS)
            return found

        store.once("list", take_long)
        assert self.go_on(behind, producer) == LogAppendInfo(102, 103)
        assert values(others)[-2:] == mine(102)
        assert SegmentName(141).file_name not in file_names(inner)

    def test_lists_again_if_observed_segments_were_merged_and_deleted(
        self, store, inner, others, behind, producer
    ):
        def free_the_last(path, call):
            found = call()
            merge(inner, 0, 102)
            free_plain(inner, 1_000)
            return found

        store.once("list", free_the_last)
        assert self.go_on(behind, producer) == LogAppendInfo(102, 103)
        assert values(others)[-2:] == mine(102)


# --- unknown outcomes ----------------------------------------------------------------------------


class TestLostAnswer:
    def test_of_a_put_that_took_effect_is_success_with_its_offsets(self, store, log, others):
        append_theirs(others, 3)
        store.once("put_if_absent", done_but(LOST))
        assert append(log) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3)
        assert append(log) == LogAppendInfo(5, 6)

    def test_of_a_put_that_took_no_effect_is_put_again(self, store, log, others):
        append_theirs(others, 3)
        store.once("put_if_absent", failing(LOST))
        assert append(log) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3)

    def test_of_a_put_that_took_effect_before_others_appended_more(self, store, log, others):
        def lose(path, call):
            call()
            append_theirs(others, 3)
            raise LOST

        store.once("put_if_absent", lose)
        assert append(log) == LogAppendInfo(0, 1)
        assert values(others) == mine(0) + theirs(2, 5)
        assert append(log) == LogAppendInfo(5, 6)

    def test_of_a_put_that_took_no_effect_while_others_took_the_name(self, store, log, others):
        def lose(path, call):
            append_theirs(others, 3)
            raise LOST

        store.once("put_if_absent", lose)
        assert append(log) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3)

    def test_of_a_put_that_takes_effect_only_after_it_was_looked_for(self, store, log, others):
        late = []

        def delay(path, call):
            late.append(call)
            store.once("put_if_absent", deliver_first)
            raise LOST

        def deliver_first(path, call):
            late[0]()
            call()

        store.once("put_if_absent", delay)
        assert append(log) == LogAppendInfo(0, 1)
        assert values(others) == mine(0)

    def test_of_several_puts_in_a_row(self, store, log, others):
        answers = iter([failing(LOST), failing(LOST), done_but(LOST)])

        def answer(path, call):
            next(answers)(path, call)

        store.on("put_if_absent", answer)
        assert append(log) == LogAppendInfo(0, 1)
        assert values(others) == mine(0)

    def test_that_says_the_name_is_taken_by_oneself_is_success(self, store, log, others):
        """HTTP clients retry a request by themselves, and then find the effect of the first one."""
        store.once("put_if_absent", done_but(AlreadyExistsError("exists")))
        assert append(log) == LogAppendInfo(0, 1)
        assert values(others) == mine(0)

    @pytest.mark.parametrize("error", [DOWN, UnknownOutcomeError("timed out")])
    @pytest.mark.parametrize(("lose", "count"), [(failing(LOST), 2), (done_but(LOST), 4)])
    def test_is_not_success_while_the_store_does_not_answer(
        self, store, log, others, lose, count, error
    ):
        append(log)
        store.once("put_if_absent", lose)
        store.on("list", failing(error))
        with pytest.raises(UnknownOutcomeError):
            append(log)
        store.hooks.clear()
        assert len(values(others)) == count
        assert append(log) == LogAppendInfo(count, count + 1), "and then the handle goes on"

    def test_whose_file_was_merged_before_it_was_looked_for_stays_unknown(
        self, store, inner, log, others
    ):
        def lose(path, call):
            call()
            append_theirs(others, 3)
            merge(inner, 0, 5)
            raise LOST

        store.once("put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError, match="merged"):
            append(log)
        assert values(others) == mine(0) + theirs(2, 5)

    def test_whose_offset_retention_deleted_before_it_was_looked_for_stays_unknown(
        self, store, inner, log, others
    ):
        """It may have been in the log and read: another put would append it twice."""

        def lose(path, call):
            call()
            append_theirs(others, 3)
            move_start(inner, 2, 2)
            free(inner, SegmentName(0))
            raise LOST

        store.once("put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError):
            append(log)
        assert values(others) == theirs(2, 5)

    def test_is_not_unknown_because_names_that_were_surely_lost_were_merged(
        self, store, inner, log, others
    ):
        """The winner of a name is known from its headers; only the last answer was lost."""
        races = iter([3, 4])

        def come_first(path, call):
            count = next(races, None)
            if count is not None:
                append_theirs(others, count)
                call()
                return
            call()
            merge(inner, 0, 7)
            raise LOST

        store.on("put_if_absent", come_first)
        assert append(log) == LogAppendInfo(7, 8)

    def test_that_never_ends_is_an_unknown_outcome_too(self, store, log, monkeypatch):
        monkeypatch.setattr(appender, "_MAX_RACES", 20)
        store.on("put_if_absent", failing(LOST))
        with pytest.raises(UnknownOutcomeError):
            append(log)

    @pytest.mark.parametrize("error", [DOWN, StorageFullError("full"), NotFoundError("gone")])
    def test_is_not_turned_into_a_failure_by_what_fails_next(self, store, log, others, error):
        """A put that was not found may still be delivered."""
        late = []

        def delay(path, call):
            late.append((path, store.source.read_back().to_pybytes()))
            store.on("put_if_absent", failing(error))
            raise LOST

        store.once("put_if_absent", delay)
        with pytest.raises(UnknownOutcomeError):
            append(log)
        others.files.store.put_if_absent(*late[0])
        assert values(others) == mine(0), "so 'nothing was appended' would have been wrong"

    @pytest.mark.parametrize("seen_by", ["the look", "the next put"])
    def test_is_forgotten_once_another_has_the_name(self, store, log, others, seen_by):
        """The put can have no effect any more: a later error means that nothing was appended."""

        def lose(path, call):
            if seen_by == "the look":
                append_theirs(others, 3)
                store.on("put_if_absent", failing(StorageFullError("full")))
            else:
                store.once("put_if_absent", come_first)
            raise LOST

        def come_first(path, call):
            append_theirs(others, 3)
            store.on("put_if_absent", failing(StorageFullError("full")))
            call()

        store.once("put_if_absent", lose)
        with pytest.raises(StorageFullError):
            append(log)
        assert values(others) == theirs(0, 3)

    def test_of_a_taken_name_whose_winner_cannot_be_read_is_looked_for(self, store, log, others):
        """The winner may be the append itself, if the client has retried the request."""
        store.once("put_if_absent", done_but(AlreadyExistsError("exists")))
        store.once("open_buffer", failing(DOWN))
        assert append(log) == LogAppendInfo(0, 1)
        assert values(others) == mine(0)

    def test_while_the_log_is_damaged_is_unknown(self, store, inner, log, others):
        def lose(path, call):
            call()
            inner.put(f"{DIRECTORY}/{SegmentName(2).file_name}", b"damaged")
            raise LOST

        store.once("put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError):
            append(log)


class TestConditionalLostAnswer:
    def test_of_a_put_that_took_effect_is_success(self, store, log, others):
        append_theirs(others, 3)
        store.once("put_if_absent", done_but(LOST))
        assert append(log, expected_end_offset=3) == LogAppendInfo(3, 4)
        assert values(others) == theirs(0, 3) + mine(3)

    def test_of_a_put_that_took_no_effect_is_put_again(self, store, log, others):
        store.once("put_if_absent", failing(LOST))
        assert append(log, expected_end_offset=0) == LogAppendInfo(0, 1)
        assert values(others) == mine(0)

    def test_of_a_put_that_took_no_effect_while_others_took_the_name(self, store, log, others):
        def lose(path, call):
            append_theirs(others, 3)
            raise LOST

        store.once("put_if_absent", lose)
        with pytest.raises(LogEndOffsetMismatchError):
            append(log, expected_end_offset=0)
        assert values(others) == theirs(0, 3)


# --- time ----------------------------------------------------------------------------------------


class TestLateSuccess:
    @pytest.mark.parametrize(
        ("late_ms", "looks"), [(0, 0), (HALF_DELAY_MS - 1, 0), (HALF_DELAY_MS, 1)]
    )
    def test_is_final_only_within_half_the_delay(self, store, clock, log, others, late_ms, looks):
        append(log)

        def be_late(path, call):
            call()
            clock.advance_ms(late_ms)

        store.once("put_if_absent", be_late)
        store.calls.clear()
        assert append(log) == LogAppendInfo(2, 3)
        assert len(store.called("list")) == looks
        assert values(others) == mine(0) + mine(2)

    def test_counts_from_the_listing_and_not_from_the_put(self, store, clock, log):
        append(log)
        clock.advance_ms(HALF_DELAY_MS - 10)

        def be_late(path, call):
            call()
            clock.advance_ms(20)

        store.once("put_if_absent", be_late)
        store.calls.clear()
        assert append(log) == LogAppendInfo(2, 3)
        assert store.called("list"), "30,010 ms have passed since anyone looked"

    def test_under_a_name_that_was_merged_away_meanwhile_is_not_acknowledged_there(
        self, store, inner, clock, log, others
    ):
        append(log)

        def be_very_late(path, call):
            append_theirs(others, 3)
            merge(inner, 0, 5)
            free(inner, SegmentName(0), SegmentName(2))
            clock.advance_ms(10 * HALF_DELAY_MS)
            call()

        store.once("put_if_absent", be_very_late)
        with pytest.raises(UnknownOutcomeError):
            append(log)
        assert SegmentName(2).file_name in file_names(inner), "void, and nobody's business"
        assert values(others) == mine(0) + theirs(2, 5)
        assert append(log) == LogAppendInfo(5, 6)

    def test_under_a_name_that_retention_freed_meanwhile_is_not_acknowledged_there(
        self, store, inner, clock, log, others
    ):
        append(log)

        def be_very_late(path, call):
            append_theirs(others, 3)
            move_start(inner, 5, 5)
            free(inner, SegmentName(0), SegmentName(2))
            clock.advance_ms(10 * HALF_DELAY_MS)
            call()

        store.once("put_if_absent", be_very_late)
        try:
            info = append(log)
        except UnknownOutcomeError:
            assert values(others) == []
        else:
            assert info == LogAppendInfo(5, 6)
            assert values(others) == mine(5)

    def test_a_lost_race_that_took_long_lists_the_log(self, store, inner, clock, log, others):
        append(log)

        def lose_slowly(path, call):
            append_theirs(others, 3)
            try:
                call()
            finally:
                clock.advance_ms(HALF_DELAY_MS)

        store.once("put_if_absent", lose_slowly)
        store.calls.clear()
        assert append(log) == LogAppendInfo(5, 6)
        assert store.called("list")

    @pytest.mark.parametrize("producer", [None, ProducerAppend(7, 0, 0)])
    def test_a_winner_that_is_spent_itself_does_not_tell_which_name_is_next(
        self, store, inner, clock, log, others, producer
    ):
        """The file that took the name is covered and not deleted yet; the next name is free."""
        append(log)

        def lose_slowly(path, call):
            append_theirs(others, 3)
            append_theirs(others, 2)
            merge(inner, 0, 7)
            free(inner, SegmentName(0), SegmentName(5))
            clock.advance_ms(3 * HALF_DELAY_MS)
            call()

        store.once("put_if_absent", lose_slowly)
        if producer is None:
            with pytest.raises(UnknownOutcomeError, match="merged or deleted"):
                append(log)  # that the first file there was of another writer is not known any more
            assert values(others) == mine(0) + theirs(2, 5) + theirs(5, 7)
        else:
            assert append(log, producer=producer) == LogAppendInfo(7, 8)
            assert values(others) == mine(0) + theirs(2, 5) + theirs(5, 7) + mine(7)

    def test_a_taken_name_whose_winner_may_not_be_the_first_stays_unknown(
        self, store, inner, clock, log, others
    ):
        """The client sent the put twice, and the second answer is that the name is taken."""
        append_theirs(others, 2)

        def stand_and_be_replaced(path, call):
            call()
            merge(inner, 0, 4)
            free_plain(inner, 1_000)
            put_segment(inner, [numbered(0, 3, mark="void")], SegmentName(2))
            clock.advance_ms(2 * HALF_DELAY_MS)
            raise AlreadyExistsError("it is there", path=path)

        store.once("put_if_absent", stand_and_be_replaced)
        with pytest.raises(UnknownOutcomeError, match="merged or deleted"):
            append(log)
        assert values(others) == theirs(0, 2) + mine(2)

    def test_a_writer_that_was_idle_lists_before_it_puts(self, store, inner, clock, log, others):
        """Otherwise its file would get a name that was merged, and its outcome would be unknown."""
        append(log)
        append_theirs(others, 3)
        merge(inner, 0, 5)
        free(inner, SegmentName(0), SegmentName(2))
        clock.advance_ms(10 * HALF_DELAY_MS)
        assert append(log) == LogAppendInfo(5, 6)
        assert values(others) == mine(0) + theirs(2, 5) + mine(5)

    @pytest.mark.parametrize("sleeps_at", range(1, 12))
    def test_a_pause_at_any_read_of_the_clock_acknowledges_nothing_that_is_not_live(
        self, store, inner, sleeps_at
    ):
        """The process sleeps; others append, merge and delete; it wakes up and continues."""
        others = open_log(inner)

        def spend_every_name():
            append_theirs(others, 4)
            end = others.observe().log_end_offset
            move_start(inner, end, end)
            free(inner, *filter(None, map(SegmentName.parse, file_names(inner))))
            append_theirs(others, 2)

        put_live: list[str] = []

        def put(path, call):
            call()
            live = [segment.file.path for segment in others.observe().live.segments]
            put_live.extend(name for name in live if name == path)

        store.on("put_if_absent", put)
        log = open_log(store, clock=SleepyClock(sleeps_at, spend_every_name))
        for number in range(3):
            append_theirs(others, 1)
            try:
                base_offset = log.append(numbered(number, 1)).base_offset
            except UnknownOutcomeError:
                continue
            assert f"{DIRECTORY}/{SegmentName(base_offset).file_name}" in put_live

    def test_a_log_that_cannot_be_listed_in_time_takes_no_append(self, store, clock, log, others):
        def take_long(path, call):
            clock.advance_ms(HALF_DELAY_MS)
            return call()

        store.on("list", take_long)
        with pytest.raises(StorageTimeoutError, match="more than 30000 ms") as caught:
            append(log)
        assert caught.value.retriable
        assert values(others) == []
        store.hooks.clear()
        assert append(log) == LogAppendInfo(0, 1)

    def test_with_no_delay_at_all_every_append_lists(self, inner, clock):
        log = open_log(inner, clock=clock, file_delete_delay_ms=0)
        for number in range(3):
            assert append(log) == LogAppendInfo(2 * number, 2 * number + 1)
        assert values(log) == mine(0) + mine(2) + mine(4)


class SleepyClock(ManualClock):
    """A clock after whose n-th reading the process sleeps for an hour."""

    def __init__(self, sleeps_at, meanwhile):
        super().__init__()
        self.sleeps_at = sleeps_at
        self.meanwhile = meanwhile
        self.readings = 0

    def monotonic_ms(self):
        now_ms = super().monotonic_ms()
        self.readings += 1
        if self.readings == self.sleeps_at:
            self.meanwhile()
            self.advance_ms(3_600_000)
        return now_ms


# --- a real disk ---------------------------------------------------------------------------------


class TestOnDisk:
    def test_an_append_that_is_not_durable_is_not_acknowledged(self, local_store, monkeypatch):
        """The file is visible, but its name may be lost by a power cut."""
        log = open_log(local_store, flush_on_append=True)
        append(log)
        real = os.fsync

        def fsync(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, "broken")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(UnknownOutcomeError):
            append(log)

    def test_an_answer_that_nfs_lost_is_success(self, local_store, monkeypatch):
        real = os.link

        def link_and_lose_the_answer(source, target):
            real(source, target)
            raise FileExistsError(errno.EEXIST, "exists")

        monkeypatch.setattr(os, "link", link_and_lose_the_answer)
        log = open_log(local_store)
        assert [append(log).base_offset for _ in range(3)] == [0, 2, 4]
        assert values(log) == mine(0) + mine(2) + mine(4)

    def test_a_directory_that_is_deleted_meanwhile_is_an_error_of_ours(
        self, local_store, monkeypatch
    ):
        log = open_log(local_store)
        append(log)
        writer = log.stager.segment_writer()
        writer.write(numbered(0, 1))
        segment = writer.finish()
        local_store.delete_directory(DIRECTORY)
        with pytest.raises(LogTruncatedError):
            log.appender.append_segment(segment)
