"""Appends to a stripe: one put, each entry is decided alone, and lost answers are looked up."""

import threading
from collections.abc import Callable

import pytest

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry, free
from tests.log.stripe.support import Process, batch, expected, marker, shown
from tests.log.support import done_but, failing
from tests.record.samples import numbered

LOST = UnknownOutcomeError("the answer was lost")
DELAY_MS = 60_000


def puts(store):
    return [path.rpartition("/")[2] for path in store.called("put_if_absent")]


class TestOnePut:
    def test_orders_the_entries_of_many_partitions(self, process, store):
        entries = [batch(each, count=each + 1, producer_id=7) for each in (2, 0, 1)]
        assert process.append(*entries) == [(0, 2), (0, 0), (0, 1)]
        assert puts(store) == [f"{0:020d}.stripe"]
        assert process.append(batch(2, 3, producer_id=7)) == [(3, 3)]
        assert process.values(2) == expected(2, 0, 4, producer_id=7)

    def test_of_a_process_that_is_alone_is_all_that_it_sends(self, process, store):
        process.append(batch(0))
        store.calls.clear()
        for number in range(1, 20):
            process.append(batch(0, number), batch(1, number))
        assert [operation for operation, _ in store.calls if operation != "stage"] == [
            "put_if_absent"
        ] * 19

    def test_follows_a_listing_after_a_pause(self, process, store, clock):
        process.append(batch(0))
        clock.advance_ms(DELAY_MS)
        store.calls.clear()
        process.append(batch(0, 1))
        assert [operation for operation, _ in store.calls if operation != "stage"] == [
            "list",
            "open_buffer",
            "put_if_absent",
        ]

    def test_of_two_processes_each_takes_in_what_the_other_put(self, process, other):
        for number in range(5):
            assert process.append(batch(0, 2 * number)) == [(2 * number, 2 * number)]
            assert other.append(batch(0, 2 * number + 1)) == [(2 * number + 1,) * 2]
        assert process.values(0) == other.values(0) == expected(0, 0, 10)

    def test_that_loses_a_race_puts_the_same_bytes(self, process, other, store):
        process.append(batch(0))
        other.append(batch(0, 1))
        process.append(batch(0, 2))
        first = store.source
        assert puts(store)[-2:] == [f"{1:020d}.stripe", f"{2:020d}.stripe"]
        assert process.values(0) == expected(0, 0, 3)
        assert first is store.source


class TestEachEntry:
    def test_that_is_in_the_stripe_gets_its_first_offsets(self, process, other):
        other.append(batch(0, count=2, producer_id=7), batch(1, producer_id=7))
        assert process.append(batch(0, count=2, producer_id=7), batch(1, 1, producer_id=7)) == [
            (0, 1),
            (1, 1),
        ]

    def test_that_is_refused_is_left_out_and_the_others_are_put(self, process):
        process.append(batch(0, producer_id=7, epoch=1), batch(1, producer_id=8))
        assert process.append(
            batch(0, 1, producer_id=7),
            batch(1, 5, producer_id=8),
            batch(2, producer_id=9),
            batch(3),
        ) == [InvalidProducerEpochError, OutOfOrderSequenceError, (0, 0), (0, 0)]

    def test_that_the_topic_does_not_accept_is_left_out(self, memory_store, clock):
        process = Process(memory_store, clock, cleanup_policy="compact")
        assert process.append(batch(0), marker(1, 7, 1)) == [InvalidRecordError, (0, 0)]

    def test_that_does_not_follow_waits_for_the_next_object(self, process, store):
        assert process.append(
            batch(0, 0, 2, producer_id=7), batch(0, 0, 2, producer_id=7), batch(0, 2, producer_id=7)
        ) == [(0, 1), (0, 1), (2, 2)]
        assert process.append(batch(0, 3, producer_id=7), batch(0, 9, producer_id=7)) == [
            (3, 3),
            OutOfOrderSequenceError,
        ]

    def test_that_seems_to_leave_a_gap_is_decided_after_a_listing(self, process, other):
        process.append(batch(0, producer_id=7))
        other.append(batch(0, 1, producer_id=7))
        assert process.append(batch(0, 2, producer_id=7)) == [(2, 2)]


class TestMarkers:
    def test_are_entries_and_fence_the_transaction(self, process):
        process.append(*(batch(each, producer_id=7, transactional=True) for each in range(3)))
        assert process.append(*(marker(each, 7, 1) for each in range(3))) == [(1, 1)] * 3
        assert process.append(batch(0, 1, producer_id=7, transactional=True)) == [
            InvalidProducerEpochError
        ]

    def test_are_put_once(self, process, other):
        process.append(batch(0, producer_id=7, transactional=True))
        assert other.append(marker(0, 7, 1)) == [(1, 1)]
        assert process.append(marker(0, 7, 1), marker(1, 7, 1)) == [None, (0, 0)]

    def test_of_an_aborted_transaction_hide_its_records(self, process):
        process.append(batch(0, producer_id=7, transactional=True), batch(0, 5))
        assert process.values(0, committed=True) == []
        process.append(marker(0, 7, 1, committed=False))
        assert process.values(0, committed=True) == [(1, "0.None.0:5")]

    def test_come_before_the_next_transaction(self, process):
        process.append(batch(0, producer_id=7, transactional=True))
        assert process.append(batch(0, producer_id=7, epoch=1, transactional=True)) == [
            InvalidTxnStateError
        ]
        assert process.append(
            marker(0, 7, 1), batch(0, producer_id=7, epoch=1, transactional=True)
        ) == [(1, 1), (2, 2)]


class TestALostAnswer:
    @pytest.mark.parametrize("producer_id", [None, 7])
    def test_of_a_put_that_took_effect_is_found(self, process, store, producer_id):
        store.once("put_if_absent", done_but(LOST))
        assert process.append(batch(0, producer_id=producer_id)) == [(0, 0)]
        assert puts(store) == [f"{0:020d}.stripe"]

    @pytest.mark.parametrize("producer_id", [None, 7])
    def test_of_a_put_that_took_none_is_repeated(self, process, store, producer_id):
        store.once("put_if_absent", failing(LOST))
        assert process.append(batch(0, producer_id=producer_id)) == [(0, 0)]
        assert puts(store) == [f"{0:020d}.stripe"] * 2

    def test_of_a_put_that_arrives_during_the_next_one_counts_once(self, process, store):
        kept: list[Callable[[], None]] = []

        def late(path, call):
            kept[0]()  # the first put arrives now
            call()

        def first_is_lost(path, call):
            kept.append(call)
            store.once("put_if_absent", late)
            raise LOST

        store.once("put_if_absent", first_is_lost)
        assert process.append(batch(0)) == [(0, 0)]
        assert process.values(0) == expected(0, 0, 1)

    def test_is_unknown_if_the_object_went_home_unseen(self, process, store, other, clock):
        def put_and_go_home(path, call):
            call()
            other.append(batch(1, 1))
            other.take_home()
            clock.advance_ms(2 * DELAY_MS)
            free(other.directory)
            raise LOST

        store.once("put_if_absent", put_and_go_home)
        assert process.append(batch(0), batch(1, producer_id=7)) == [UnknownOutcomeError, (0, 0)]

    def test_is_unknown_if_the_stripe_cannot_be_read(self, process, store):
        store.once("put_if_absent", done_but(LOST))
        process.append(batch(5))
        store.once("put_if_absent", done_but(LOST))
        store.once("list", failing(StorageError("no answer")))
        assert process.append(batch(0, producer_id=7)) == [UnknownOutcomeError]
        assert process.append(batch(0, producer_id=7)) == [(0, 0)]

    def test_stays_unknown_when_the_next_try_fails(self, process, store):
        """The first put may arrive after the second one has failed."""

        def lose(path, call):
            store.once("put_if_absent", failing(StorageError("down")))
            raise LOST

        store.once("put_if_absent", lose)
        assert process.append(batch(0)) == [UnknownOutcomeError]

    def test_is_given_up_when_producers_may_be_forgotten(self, process, store, clock):
        def lose_late(path, call):
            clock.advance_ms(86_400_000)
            raise LOST

        store.on("put_if_absent", lose_late)
        assert process.append(batch(0, producer_id=7)) == [UnknownOutcomeError]
        assert len(puts(store)) == 1

    def test_is_given_up_after_ten(self, process, store):
        store.on("put_if_absent", failing(LOST))
        assert process.append(batch(0, producer_id=7)) == [UnknownOutcomeError]
        assert len(puts(store)) == 11


def test_a_put_that_fails_is_a_failure_of_its_entries(process, store):
    store.once("put_if_absent", failing(StorageError("down")))
    assert process.append(batch(0), batch(1)) == [StorageError] * 2
    assert process.append(batch(0), batch(1)) == [(0, 0)] * 2


def test_a_success_that_took_too_long_is_looked_up(process, other, store, clock):
    def stand_still(path, call):
        other.append(batch(0, 9))
        other.take_home()
        clock.advance_ms(2 * DELAY_MS)
        free(other.directory)
        call()  # the number is free again

    store.once("put_if_absent", stand_still)
    assert process.append(batch(0, producer_id=7)) == [(1, 1)]
    assert process.values(0) == [(0, "0.None.0:9"), (1, "0.7.0:0")]


def test_producers_expire_by_the_storages_time(memory_store, clock):
    config = {"producer_id_expiration_ms": 1_000_000}
    process = Process(memory_store, clock, **config)
    process.append(batch(0, producer_id=7))
    clock.advance_ms(900_000)
    process.append(batch(1))
    assert process.append(batch(0, 5, producer_id=7)) == [OutOfOrderSequenceError]
    clock.advance_ms(1_200_000)
    process.append(batch(1, 1))
    assert process.append(batch(0, 5, producer_id=7)) == [(1, 1)]


class TestThreads:
    def test_that_wait_share_a_put(self, process, store):
        first_put, may_end = threading.Event(), threading.Event()

        def slow(path, call):
            first_put.set()
            assert may_end.wait(30)
            call()

        store.once("put_if_absent", slow)
        results = {}

        def append(number):
            (result,) = process.group.append([batch(number, producer_id=number)])
            results[number] = shown(result)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
        threads[0].start()
        assert first_put.wait(30)
        for thread in threads[1:]:
            thread.start()
        while len(process.group._waiting) < 7:  # noqa: SLF001 - what they wait in
            threading.Event().wait(0.001)
        may_end.set()
        for thread in threads:
            thread.join(30)
        assert results == dict.fromkeys(range(8), (0, 0))
        assert len(puts(store)) == 2

    def test_get_each_their_own_results(self, process):
        process.group.append([batch(0, producer_id=7, epoch=1)])
        refused, taken = process.group.append([batch(0, 1, producer_id=7), batch(1)])
        assert (shown(refused), shown(taken)) == (InvalidProducerEpochError, (0, 0))

    def test_learn_when_the_leader_is_interrupted(self, process, store):
        first_put, may_end = threading.Event(), threading.Event()

        def interrupt(path, call):
            first_put.set()
            assert may_end.wait(30)
            raise KeyboardInterrupt

        store.once("put_if_absent", interrupt)
        caught, answers = [], []

        def lead():
            try:
                process.group.append([batch(0, producer_id=7)])
            except KeyboardInterrupt as error:
                caught.append(error)

        leader = threading.Thread(target=lead)
        leader.start()
        assert first_put.wait(30)
        follower = threading.Thread(
            target=lambda: answers.extend(process.group.append([batch(1, producer_id=7)]))
        )
        follower.start()
        may_end.set()
        leader.join(30)
        follower.join(30)
        assert caught
        assert [shown(each) for each in answers] == [(0, 0)]

    def test_a_batch_of_records_is_no_entry_of_another_partition(self, process):
        entries = [StripeEntry(each, BatchAppend(numbered(0, 1, mark="same"))) for each in (0, 1)]
        assert [shown(each) for each in process.group.append(entries)] == [(0, 0)] * 2
