"""The fetcher: bounded memory, fair turns, and hints that may be lost."""

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.fetch import fetch_loop as fetch_loop_module
from spark_log.consumer.fetch import fetcher as fetcher_module
from spark_log.consumer.fetch.fetch_loop import tail_probe_interval_ms
from spark_log.errors import AuthorizationError, StorageError
from spark_log.log.read.probe_interval import LOCAL_PROBES
from spark_log.storage.directory_watch import InotifyWatch, SilentWatch
from spark_log.util.clock import SYSTEM_CLOCK
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    append,
    log_of,
    numbered,
    poll_until,
    read_values,
)
from tests.waiting import wait_until


class LostHints(InotifyWatch):
    """A watch that promises hints and gives none."""

    def wait(self, timeout_ms):
        deadline = time.monotonic() + timeout_ms / 1000
        while (left := deadline - time.monotonic()) > 0:
            if not super().wait(left * 1000):
                break
        return set()


@pytest.fixture
def open_fetcher(root):
    opened = []

    def open_fetcher(watch=None, **settings):
        fetcher = Fetcher(
            Cluster(root).store,
            ConsumerConfig.parse(settings),
            watch=watch,
            now_ms=SYSTEM_CLOCK.monotonic_ms,
        )
        opened.append(fetcher)
        return fetcher

    yield open_fetcher
    for fetcher in opened:
        fetcher.close()


class TestHints:
    @pytest.mark.parametrize("kind", ["lost", "none"])
    def test_records_come_all_the_same_when_every_hint_is_dropped(
        self, root, open_consumer, monkeypatch, kind
    ):
        watch = {"lost": lambda store: LostHints(store.url), "none": lambda store: SilentWatch()}
        monkeypatch.setattr(fetcher_module, "watch_directories", watch[kind])
        consumer = open_consumer("t", "three")
        for start in range(0, 6, 2):
            append(root, numbered(start, start + 2))
            append(root, numbered(start, start + 2), to=THREE[2])
            found = poll_until(consumer, 4)
            assert [each.offset for each in found[T0]] == [start, start + 1]

    def test_a_hint_is_followed_at_once(self, root, open_consumer, monkeypatch):
        """Without the hint the next read would be in an hour."""
        monkeypatch.setattr(
            fetch_loop_module, "tail_probe_interval_ms", lambda *_, **__: 3_600_000.0
        )
        consumer = open_consumer("t")
        for start in range(0, 6, 2):  # the first append also creates the directory
            append(root, numbered(start, start + 2))
            assert read_values(consumer, 2) == numbered(start, start + 2)

    def test_looking_takes_as_little_of_a_core_for_many_partitions_as_for_few(self):
        def looks_a_second(partitions):
            interval_ms = tail_probe_interval_ms(
                LOCAL_PROBES, waited_ms=60_000, partitions=partitions, gives_hints=True
            )
            return partitions * 1000 / interval_ms

        assert looks_a_second(1) <= 10
        assert looks_a_second(1_000) <= 100


class TestMemory:
    def test_no_more_is_fetched_ahead_of_a_partition_than_it_may(self, root, open_fetcher):
        for _ in range(20):
            append(root, [b"x" * 1000] * 10)
        fetcher = open_fetcher(max_partition_fetch_bytes=25_000)
        fetcher.add(T0, log_of(root), 0)
        fetcher._begin()  # noqa: SLF001
        wait_until(lambda: fetcher._loop._is_sleeping)  # noqa: SLF001
        (cursor,) = fetcher._cursors.values()  # noqa: SLF001
        assert 25_000 <= cursor.held_bytes < 25_000 + 22_000
        seen = 0
        while seen < 200:
            taken = fetcher.collect_fetch(7, PATIENCE_MS)
            assert cursor.held_bytes < 25_000 + 22_000
            seen += sum(rows.count for rows in taken.rows)

    def test_nor_of_all_together(self, root, open_fetcher):
        for partition in THREE:
            for _ in range(10):
                append(root, [b"x" * 1000] * 10, to=partition)
        fetcher = open_fetcher(fetch_max_bytes=30_000)
        for partition in THREE:
            fetcher.add(partition, log_of(root, partition), 0)
        seen, most = 0, 0
        while seen < 300:
            taken = fetcher.collect_fetch(10, PATIENCE_MS)
            seen += sum(rows.count for rows in taken.rows)
            most = max(most, fetcher._buffer.held_bytes)  # noqa: SLF001
        # A turn that has begun may fetch max.partition.fetch.bytes.
        assert most < 30_000 + 1_048_576
        assert fetcher._buffer.held_bytes == 0  # noqa: SLF001
        assert fetcher._buffer.waiting_bytes == 0  # noqa: SLF001

    def test_small_segments_count_with_the_memory_that_they_take(self, root, open_fetcher):
        """A segment of one record takes 10 KB, for a value of one byte."""
        for _ in range(60):
            append(root, [b"x"])
        fetcher = open_fetcher(max_partition_fetch_bytes=100_000)
        fetcher.add(T0, log_of(root), 0)
        fetcher._begin()  # noqa: SLF001
        wait_until(lambda: fetcher._loop._is_sleeping)  # noqa: SLF001
        (cursor,) = fetcher._cursors.values()  # noqa: SLF001
        assert len(cursor.completed) == 10
        seen = 0
        while seen < 60:
            seen += sum(rows.count for rows in fetcher.collect_fetch(7, PATIENCE_MS).rows)

    def test_a_batch_larger_than_the_memory_is_fetched_all_the_same(self, root, open_fetcher):
        append(root, [b"x" * 100_000])
        append(root, [b"y"])
        fetcher = open_fetcher(fetch_max_bytes=0, max_partition_fetch_bytes=0)
        fetcher.add(T0, log_of(root), 0)
        assert (
            sum(rows.count for _ in range(2) for rows in fetcher.collect_fetch(1, PATIENCE_MS).rows)
            == 2
        )


class TestSeeking:
    def test_while_a_read_is_under_way_drops_what_that_brings(
        self, root, open_fetcher, monkeypatch
    ):
        append(root, numbered(0, 5))
        append(root, numbered(5, 8))
        log = log_of(root)
        reading, sought = threading.Event(), threading.Event()
        stream = log.stream

        def slow(offset, **options):
            if offset == 0:
                reading.set()
                assert sought.wait(PATIENCE_MS / 1000)
            return stream(offset, **options)

        monkeypatch.setattr(log, "stream", slow)
        fetcher = open_fetcher()
        fetcher.add(T0, log, 0)
        assert not fetcher.collect_fetch(None, 0)
        assert reading.wait(PATIENCE_MS / 1000)
        fetcher.seek(T0, 5)
        sought.set()
        taken = fetcher.collect_fetch(None, PATIENCE_MS)
        assert [rows.offsets().tolist() for rows in taken.rows] == [[5, 6, 7]]


def append_many(root, mark, count):
    for number in range(count):
        append(root, [f"{mark}:{number}".encode()])


class TestOthers:
    def test_appends_of_four_processes_are_all_seen_in_order(self, root, open_fetcher):
        """Real processes and a real directory: each record once, in the order of its process."""
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=append_many, args=(root, f"p{number}", 50))
            for number in range(4)
        ]
        fetcher = open_fetcher()
        fetcher.add(T0, log_of(root), 0)
        for process in processes:
            process.start()
        seen: list[str] = []
        while len(seen) < 200:
            fetch = fetcher.collect_fetch(None, PATIENCE_MS)
            assert fetch.rows, "a record that was appended is not seen"
            seen += [
                value.decode() for rows in fetch.rows for value in rows.column("value").to_pylist()
            ]
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
        for number in range(4):
            mine = [value for value in seen if value.startswith(f"p{number}")]
            assert mine == [f"p{number}:{at}" for at in range(50)]

    def test_a_thread_that_waits_is_woken_by_an_append(self, root, open_fetcher):
        fetcher = open_fetcher()
        fetcher.add(T0, log_of(root), 0)
        found = []
        thread = threading.Thread(
            target=lambda: found.extend(fetcher.collect_fetch(None, PATIENCE_MS).rows)
        )
        thread.start()
        append(root, [b"a"])
        thread.join()
        assert [rows.column("value").to_pylist() for rows in found] == [[b"a"]]


class TestFaults:
    def test_a_storage_that_fails_is_read_again(self, root, open_fetcher, monkeypatch, caplog):
        append(root, numbered(0, 5))
        log = log_of(root)
        failures = [StorageError("the test says no"), StorageError("and no")]
        stream = log.stream

        def failing(*arguments, **options):
            if failures:
                raise failures.pop()
            return stream(*arguments, **options)

        monkeypatch.setattr(log, "stream", failing)
        fetcher = open_fetcher(retry_backoff_ms=1)
        fetcher.add(T0, log, 0)
        taken = fetcher.collect_fetch(None, PATIENCE_MS)
        assert taken.rows[0].count == 5
        assert len([each for each in caplog.records if "retrying" in each.getMessage()]) == 1

    def test_a_refusal_is_told(self, root, open_fetcher, monkeypatch):
        log = log_of(root)

        def refused(*arguments, **options):
            raise AuthorizationError("no")

        monkeypatch.setattr(log, "stream", refused)
        fetcher = open_fetcher()
        fetcher.add(T0, log, 0)
        tp, error = fetcher.collect_fetch(None, PATIENCE_MS).failure
        assert (tp, str(error)) == (T0, "no")

    def test_a_thread_that_dies_is_told(self, root, open_fetcher, monkeypatch):
        watch = SilentWatch()
        monkeypatch.setattr(watch, "wait", lambda timeout_ms: 1 / 0)
        monkeypatch.setattr(fetcher_module, "watch_directories", lambda store: watch)
        fetcher = open_fetcher()
        with pytest.raises(ZeroDivisionError):
            fetcher.collect_fetch(None, PATIENCE_MS)


def is_locked(lock):
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


class NoticedInBetween(Fetcher):
    """The fetching thread sets the hint just after `consume_metadata_hint` read it.

    If the lock is free, the thread sets the hint at once; otherwise as soon as the lock is free.
    The scheduler would choose this moment once in many thousand times.
    """

    is_near = False
    has_to_wait = False

    @property
    def _has_hint(self):
        seen = self.__dict__["noticed"]
        if self.is_near:
            self.is_near = False
            with ThreadPoolExecutor(1) as another_thread:
                self.has_to_wait = another_thread.submit(is_locked, self._changed).result()
            if not self.has_to_wait:
                self.notice()
        return seen

    @_has_hint.setter
    def _has_hint(self, noticed):
        self.__dict__["noticed"] = noticed

    def notice(self):
        with self._changed:
            self._has_hint = True


def test_what_has_hint_while_one_looks_is_not_lost(root):
    fetcher = NoticedInBetween(
        Cluster(root).store, ConsumerConfig(), now_ms=SYSTEM_CLOCK.monotonic_ms
    )
    try:
        fetcher.is_near = True
        fetcher.consume_metadata_hint()
        if fetcher.has_to_wait:
            fetcher.notice()
        assert fetcher.consume_metadata_hint(), (
            "new partitions would stay unread for metadata.max.age.ms"
        )
        assert not fetcher.consume_metadata_hint()
    finally:
        fetcher.close()
