"""A consumer whose client id has a quota pauses, without losing or reordering records."""

import threading
from functools import partial

import pytest

from spark_log import Admin
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.fetch import fetcher as fetcher_module
from spark_log.metadata.quotas import UNLIMITED
from spark_log.storage.directory_watch import SilentWatch
from spark_log.types import TopicPartition
from spark_log.util.clock import ManualClock
from tests.consumer.support import (
    PATIENCE_MS,
    T0,
    THREE,
    ClockWatch,
    append,
    log_of,
    numbered,
    poll_until,
    values_of,
)
from tests.waiting import wait_until


class HeldWatch(SilentWatch):
    """A watch that waits until it is woken, whatever its timeout, and counts how often that was."""

    def __init__(self):
        super().__init__()
        self.is_waiting = threading.Event()
        self.wakes = 0

    def wait(self, timeout_ms):
        if timeout_ms > 0:
            self.is_waiting.set()
            super().wait(PATIENCE_MS)
            self.is_waiting.clear()
        return set()

    def wake(self):
        self.wakes += 1
        super().wake()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def open_fetcher(root, clock):
    opened = []

    def open_fetcher(watch, bytes_per_second, **settings):
        config = ConsumerConfig.parse(settings)
        fetcher = Fetcher(Cluster(root).store, config, watch=watch, now_ms=clock.monotonic_ms)
        fetcher.set_quota(bytes_per_second)
        opened.append(fetcher)
        return fetcher

    yield open_fetcher
    for fetcher in opened:
        fetcher.close()


def limit(root, bytes_per_second, client_id="reader"):
    Admin(root).alter_client_quotas({client_id: {"consumer_byte_rate": bytes_per_second}})


def fetch_all(fetcher, count):
    """Collect ``count`` rows; return their offsets by partition, and their size in bytes."""
    offsets: dict[TopicPartition, list[int]] = {}
    size_bytes, seen = 0, 0
    while seen < count:
        taken = fetcher.collect_fetch(None, PATIENCE_MS)
        assert taken, f"only {offsets} came"
        for rows in taken.rows:
            offsets.setdefault(rows.partition, []).extend(rows.offsets().tolist())
            size_bytes += rows.batch.records.nbytes
            seen += rows.count
    return offsets, size_bytes


def noted_fetches(fetcher):
    """Return a list that gets, for each turn, whether the client was throttled when it began."""
    loop = fetcher._loop  # noqa: SLF001
    begun, fetch = [], loop._fetch  # noqa: SLF001

    def noted(cursor):
        begun.append(loop._is_throttled())  # noqa: SLF001
        fetch(cursor)

    loop._fetch = noted  # noqa: SLF001
    return begun


def is_throttled(consumer, expected):
    return (throttle_ms(consumer)[1] > 0) == expected


def throttle_ms(source):
    metrics = source.metrics() if isinstance(source, Fetcher) else fetched(source)
    return metrics["fetch-throttle-time-avg"], metrics["fetch-throttle-time-max"]


def fetched(consumer):
    return consumer.metrics()["consumer-fetch-manager-metrics"]


class TestPauses:
    def test_the_long_run_is_at_the_quota_and_every_record_there_in_order(
        self, root, open_fetcher, clock
    ):
        for _ in range(40):
            for partition in THREE:
                append(root, [b"x" * 1_000] * 5, to=partition)
        watch = ClockWatch(clock)
        fetcher = open_fetcher(watch, 10_000)
        for partition in THREE:
            fetcher.add(partition, log_of(root, partition), 0)
        began_ms = clock.monotonic_ms()
        offsets, size_bytes = fetch_all(fetcher, 600)
        fetcher.close()
        assert offsets == {partition: list(range(200)) for partition in THREE}
        seconds = size_bytes / 10_000 - 11
        assert seconds > 40
        passed_ms = clock.monotonic_ms() - began_ms
        assert passed_ms >= (seconds - 1.6) * 1_000  # a turn: one second's bytes, or one batch
        average_ms, most_ms = throttle_ms(fetcher)
        assert 0 < average_ms <= most_ms <= 2_000

    def test_without_one_it_does_not_wait(self, root, open_fetcher, clock):
        for _ in range(20):
            append(root, [b"x" * 1_000] * 5)
        fetcher = open_fetcher(ClockWatch(clock), UNLIMITED)
        fetcher.add(T0, log_of(root), 0)
        fetch_all(fetcher, 100)
        assert throttle_ms(fetcher) == (0, 0)

    def test_hints_do_not_get_around_it(self, root, open_fetcher, clock):
        for partition in THREE:
            append(root, [b"x" * 1_000] * 20, to=partition)
        watch = ClockWatch(clock)
        fetcher = open_fetcher(watch, 1_000)
        begun = noted_fetches(fetcher)
        for partition in THREE:
            fetcher.add(partition, log_of(root, partition), 0)
        watch.hints = [log_of(root, partition).directory for partition in THREE] * 3
        fetch_all(fetcher, 60)
        fetcher.close()
        assert not any(begun)

    def test_of_partitions_that_are_due_together_all_but_one_wait(self, root, open_fetcher, clock):
        for partition in THREE:
            append(root, [b"x" * 1_000] * 20, to=partition)
        fetcher = open_fetcher(ClockWatch(clock), 1_000)
        begun = noted_fetches(fetcher)
        for partition in THREE:
            fetcher.add(partition, log_of(root, partition), 0)
        loop, cursors = fetcher._loop, fetcher._cursors  # noqa: SLF001
        due = loop._due  # noqa: SLF001
        loop._due = lambda: [*due(), *cursors.values()]  # noqa: SLF001
        fetch_all(fetcher, 60)
        fetcher.close()
        assert not any(begun)


class TestChanges:
    @pytest.mark.parametrize("changed", [10**9, UNLIMITED])
    def test_another_one_ends_the_pause_at_once(self, root, open_fetcher, changed):
        append(root, [b"x" * 1_000] * 100)
        append(root, numbered(0, 5))
        watch = HeldWatch()
        fetcher = open_fetcher(watch, 1)
        fetcher.add(T0, log_of(root), 0)
        fetch_all(fetcher, 100)
        wait_until(watch.is_waiting.is_set)
        assert not fetcher.collect_fetch(None, 0)
        wakes = watch.wakes
        fetcher.set_quota(1)
        assert watch.wakes == wakes
        fetcher.set_quota(changed)
        assert fetch_all(fetcher, 5)[0] == {T0: list(range(100, 105))}

    def test_it_can_be_closed_while_it_waits(self, root, open_fetcher):
        append(root, [b"x" * 1_000] * 100)
        watch = HeldWatch()
        fetcher = open_fetcher(watch, 1)
        fetcher.add(T0, log_of(root), 0)
        fetch_all(fetcher, 100)
        wait_until(watch.is_waiting.is_set)
        closing = threading.Thread(target=fetcher.close)
        closing.start()
        closing.join(PATIENCE_MS / 2_000)
        assert not closing.is_alive()


class TestConsumer:
    def test_goes_by_its_client_id_from_the_next_look_at_the_metadata_on(
        self, root, open_consumer, clock, monkeypatch
    ):
        monkeypatch.setattr(fetcher_module, "watch_directories", lambda _: ClockWatch(clock))
        limit(root, 1, client_id="another")
        config = {"clock": clock, "client_id": "reader", "metadata_max_age_ms": 2**31 - 1}
        consumer = open_consumer("t", **config)
        append(root, [b"x" * 1_000] * 10)
        poll_until(consumer, 10)
        assert throttle_ms(consumer) == (0, 0)
        limit(root, 100)
        append(root, [b"y" * 1_000] * 10)
        poll_until(consumer, 10)
        assert throttle_ms(consumer) == (0, 0)
        clock.advance_ms(2**31)
        consumer.poll()
        append(root, [b"z" * 1_000] * 10)
        found = poll_until(consumer, 10)
        assert values_of(found) == [b"z" * 1_000] * 10
        # The turn is counted after its records were handed out.
        wait_until(lambda: throttle_ms(consumer)[1] > 80_000)

    def test_the_default_counts_for_all_that_have_none_of_their_own(
        self, root, open_consumer, clock, monkeypatch
    ):
        monkeypatch.setattr(fetcher_module, "watch_directories", lambda _: ClockWatch(clock))
        limit(root, 100, client_id=None)
        limit(root, 10**9, client_id="reader")
        append(root, [b"x" * 1_000] * 10)
        for client_id, waits in (("", True), ("another", True), ("reader", False)):
            consumer = open_consumer("t", clock=clock, client_id=client_id)
            poll_until(consumer, 10)
            wait_until(partial(is_throttled, consumer, waits))
