"""Lookups of metadata that several threads share."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from spark_log import StorageTimeoutError
from spark_log.producer.send.metadata_lookup import MetadataLookup
from spark_log.util.clock import ManualClock
from tests.waiting import wait_until


class Reads:
    """A cluster whose reads end when the test lets them; each returns its number, or raises."""

    def __init__(self):
        self.clock = ManualClock()
        self.begun = 0
        self.took_ms = 0
        self.errors: dict[int, Exception] = {}
        self._may_end = threading.Semaphore(0)

    def image(self):
        self.begun += 1
        number = self.begun
        self._may_end.acquire()
        self.clock.advance_ms(self.took_ms)
        if number in self.errors:
            raise self.errors[number]
        return number

    def end(self, count=1):
        self._may_end.release(count)


@pytest.fixture
def reads():
    return Reads()


@pytest.fixture
def lookup(reads):
    return MetadataLookup(reads)


def waiting(lookup):
    return len(lookup._changed._waiters)  # noqa: SLF001 - how many threads wait


def test_calls_that_overlap_share_the_next_read_but_not_one_that_began_before(reads, lookup):
    with ThreadPoolExecutor(10) as pool:
        first = pool.submit(lookup.image)
        wait_until(lambda: reads.begun == 1)
        others = [pool.submit(lookup.image) for _ in range(9)]
        wait_until(lambda: waiting(lookup) == 9)
        reads.end()
        assert first.result(60) == 1
        wait_until(lambda: reads.begun == 2)
        reads.end()
        assert [each.result(60) for each in others] == [2] * 9
    assert reads.begun == 2


def test_a_read_does_not_wait_for_the_answer_of_a_slow_one(reads, lookup):
    reads.end()
    assert lookup.image() == 1, "now it is known how long a read takes"
    with ThreadPoolExecutor(10) as pool:
        slow = pool.submit(lookup.image)
        wait_until(lambda: reads.begun == 2)
        others = [pool.submit(lookup.image) for _ in range(9)]
        wait_until(lambda: reads.begun > 2)
        assert not slow.done()
        reads.end(10)
        assert min(each.result(60) for each in others) > 2
        assert slow.result(60) == 2


def test_calls_that_come_while_a_read_waits_to_begin_share_it(reads, lookup):
    reads.took_ms = 240_000
    reads.end()
    lookup.image()
    with ThreadPoolExecutor(10) as pool:
        slow = pool.submit(lookup.image)
        wait_until(lambda: reads.begun == 2)
        others = [pool.submit(lookup.image) for _ in range(9)]
        wait_until(lambda: waiting(lookup) == 9)
        reads.end(2)
        assert slow.result(60) == 2
        assert [each.result(60) for each in others] == [3] * 9


def test_a_call_after_a_read_reads_again(reads, lookup):
    reads.end(2)
    assert [lookup.image(), lookup.image()] == [1, 2]


def test_an_error_is_that_of_the_thread_that_read_and_the_others_read_again(reads, lookup):
    reads.errors[2] = StorageTimeoutError("slow")
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(lookup.image)
        wait_until(lambda: reads.begun == 1)
        others = [pool.submit(lookup.image) for _ in range(2)]
        wait_until(lambda: waiting(lookup) == 2)
        reads.end(3)
        assert first.result(60) == 1
        errors = [each.exception(60) for each in others]
    assert [type(each) for each in errors].count(StorageTimeoutError) == 1
    assert errors.count(None) == 1
    assert reads.begun == 3


def test_on_a_local_file_system_a_call_does_not_wait_for_the_read_of_another(reads, lookup):
    reads.store = SimpleNamespace(is_local=True)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(lookup.recent_image) for _ in range(2)]
        wait_until(lambda: reads.begun == 2)  # neither has ended
        reads.end(2)
        assert sorted(call.result(60) for call in calls) == [1, 2]
