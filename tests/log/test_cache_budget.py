"""One budget for the caches of all logs: what was used longest ago is dropped first."""

import gc
import threading
import tracemalloc

import pytest

from spark_log.config import TopicConfig
from spark_log.log import LocalLog, MergeExecutor
from spark_log.log.cache_budget import LOG_CACHES, CacheBudget, LogCache
from spark_log.log.rewrite.recent_batches import RECENT_BATCHES
from spark_log.record import ProducerAppend
from tests.log.support import ANY_TIME, TOPIC_ID, open_log, values
from tests.record.samples import numbered


class Cache(LogCache):
    def __init__(self, budget):
        self.share = budget.share(self)
        self.drops = 0

    def drop(self):
        self.drops += 1


@pytest.fixture
def budget():
    return CacheBudget(100)


class TestCacheBudget:
    def test_drops_what_was_used_longest_ago(self, budget):
        caches = [Cache(budget) for _ in range(3)]
        for each in caches:
            each.share.hold(40)
        assert [each.drops for each in caches] == [1, 0, 0]
        caches[1].share.hold(40)
        caches[0].share.hold(40)
        assert [each.drops for each in caches] == [1, 0, 1]
        assert budget.held_bytes == 80

    def test_counts_what_a_cache_holds_now_and_not_each_use(self, budget):
        cache = Cache(budget)
        for size_bytes in (10, 90, 50):
            cache.share.hold(size_bytes)
        assert (budget.held_bytes, cache.drops) == (50, 0)

    def test_a_cache_that_alone_holds_too_much_is_dropped_too(self, budget):
        other, cache = Cache(budget), Cache(budget)
        other.share.hold(40)
        cache.share.hold(101)
        assert (other.drops, cache.drops, budget.held_bytes) == (1, 1, 0)
        assert not cache.share.fits(101)

    def test_a_cache_that_is_gone_is_not_counted(self, budget):
        cache = Cache(budget)
        cache.share.hold(40)
        del cache
        gc.collect()
        assert budget.held_bytes == 0

    def test_any_threads_may_hold(self, budget):
        caches = [Cache(budget) for _ in range(8)]

        def use(first):
            for turn in range(2_000):
                caches[(first + turn) % 8].share.hold(turn % 30)

        threads = [threading.Thread(target=use, args=(at,)) for at in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert budget.held_bytes == sum(each.share.size_bytes for each in caches) <= 100


def log_in(store, directory, clock, merge_executor=None):
    config = TopicConfig.parse({"flush_on_append": False, **ANY_TIME})
    return LocalLog(
        store,
        directory,
        topic_id=TOPIC_ID,
        partition=0,
        config=config,
        clock=clock,
        merge_executor=merge_executor,
    )


class TestLogs:
    """All logs of a process share `LOG_CACHES`."""

    def test_are_right_when_nothing_is_kept(self, store, clock, monkeypatch):
        monkeypatch.setattr(LOG_CACHES, "limit_bytes", 0)
        log = open_log(store, clock=clock, merge_tail_segments=4, snapshot_interval_segments=4)
        reader, committed = open_log(store, clock=clock), open_log(store, clock=clock)
        read, read_committed = Follower(reader), Follower(committed, "read_committed")
        for first in range(0, 60, 2):
            log.append(numbered(first, 2))
            assert read.read() == read_committed.read() == [first, first + 1]
        assert len(values(open_log(store, clock=clock))) == 60
        assert LOG_CACHES.held_bytes == 0

    def test_hold_no_more_than_the_budget_together(self, store, clock, monkeypatch):
        monkeypatch.setattr(LOG_CACHES, "limit_bytes", 50_000)
        logs = [log_in(store, f"d-{number}", clock) for number in range(20)]
        for first in range(60):
            for log in logs:
                log.append(numbered(first, 1))
                assert LOG_CACHES.held_bytes <= 50_000
        assert all(len(values(log)) == 60 for log in logs)
        assert LOG_CACHES.held_bytes <= 50_000


class TestRecentBatches:
    def test_hold_no_more_than_their_budget_together(self, store, clock, monkeypatch):
        monkeypatch.setattr(RECENT_BATCHES, "limit_bytes", 20_000)
        logs = [log_in(store, f"d-{number}", clock) for number in range(20)]
        for first in range(60):
            for log in logs:
                log.append(numbered(first, 1))
                assert RECENT_BATCHES.held_bytes <= 20_000
        assert all(len(values(log)) == 60 for log in logs)


class TestAppender:
    def test_keeps_few_bytes_for_an_append_while_its_merges_wait(
        self, memory_store, clock, monkeypatch
    ):
        """A process of 1,000 partitions keeps those of 150,000 appends (990 bytes each before).

        The records of recent appends have a budget of their own.
        """
        monkeypatch.setattr(RECENT_BATCHES, "limit_bytes", 0)
        waiting = []

        def run_later(merge):
            waiting.append(merge)
            return True

        logs = [log_in(memory_store, f"d-{at}", clock, MergeExecutor(run_later)) for at in range(8)]
        append_to(logs, range(10))
        gc.collect()
        tracemalloc.start()
        try:
            append_to(logs, range(10, 160))
            gc.collect()
            files = "*/spark_log/storage/*", "*/spark_log/record/arrow_template.py"  # in the store
            kept = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(inclusive=False, filename_pattern=each) for each in files]
            )
        finally:
            tracemalloc.stop()
        assert len(waiting) == 8
        assert sum(each.size for each in kept.statistics("filename")) / (8 * 150) < 500

    def test_keeps_no_more_the_longer_a_merge_is_late(self, memory_store, clock):
        waiting = []

        def run_later(merge):
            waiting.append(merge)
            return True

        log = open_log(
            memory_store,
            clock=clock,
            merge_tail_segments=4,
            run_merge=run_later,
        )
        for number in range(200):
            log.append(numbered(number, 1))
            assert len(log.appender.derived.merger._tail) <= 16  # noqa: SLF001
        for number in range(200, 400):
            log.append(numbered(number, 1))
            while waiting:
                waiting.pop()()
        assert len(log.observe().live.segments) < 20
        assert [offset for offset, _ in values(log)] == list(range(400))


def append_to(logs, numbers):
    for number in numbers:
        for log in logs:
            log.append(numbered(number, 1), producer=ProducerAppend(7, 0, number))


class Follower:
    """Reads what is new in a log."""

    def __init__(self, log, isolation_level="read_uncommitted"):
        self._log = log
        self._level = isolation_level
        self._offset = 0

    def read(self):
        found = []
        for batch, offset in self._log.stream(self._offset, isolation_level=self._level):
            self._offset = offset
            if batch is not None:
                found += batch.offsets().tolist()
        return found
