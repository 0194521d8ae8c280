"""The fetcher on an object store: its threads, which read partitions that have more at once."""

import threading

import pytest

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.types import TopicPartition
from spark_log.util.clock import SYSTEM_CLOCK
from tests.consumer.fetch.test_idle_consumer import IdleConsumer
from tests.consumer.support import PATIENCE_MS
from tests.log.support import HookedStore
from tests.record.samples import numbered
from tests.waiting import wait_until

PARTITIONS, SEGMENTS = 6, 20


@pytest.fixture
def logs(memory_store, clock):
    """Logs of many small segments, as their writers have them."""
    consumer = IdleConsumer(memory_store, clock, 0)
    logs = [consumer.log(number) for number in range(PARTITIONS)]
    for log in logs:
        for _ in range(SEGMENTS):
            log.append(numbered(0, 1))
    return logs


@pytest.fixture
def open_fetcher(memory_store, clock, logs):
    opened = []

    def open_fetcher(**settings):
        store = HookedStore(memory_store, is_mapped=False)
        config = ConsumerConfig.parse(settings)
        fetcher = Fetcher(store, config, now_ms=SYSTEM_CLOCK.monotonic_ms)
        opened.append(fetcher)
        consumer = IdleConsumer(memory_store, clock, 0)
        for number in range(PARTITIONS):
            fetcher.add(TopicPartition("t", number), consumer.log(number, store), 0)
        return fetcher, store

    yield open_fetcher
    for fetcher in opened:
        fetcher.close()


@pytest.mark.parametrize("max_partition_fetch_bytes", [1, 1_048_576])
def test_each_record_is_read_once_and_in_order(open_fetcher, max_partition_fetch_bytes):
    fetcher, _ = open_fetcher(max_partition_fetch_bytes=max_partition_fetch_bytes)
    seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    while sum(map(len, seen.values())) < PARTITIONS * SEGMENTS:
        fetch = fetcher.collect_fetch(7, PATIENCE_MS)
        assert fetch.rows
        for rows in fetch.rows:
            seen[rows.partition.partition] += rows.offsets().tolist()
    assert list(seen.values()) == [list(range(SEGMENTS))] * PARTITIONS


def test_a_request_that_hangs_keeps_only_its_own_partition_back(open_fetcher):
    fetcher, store = open_fetcher()
    answered = threading.Event()

    def hang(path, call):
        if "/t-0/" in path:
            assert answered.wait(PATIENCE_MS / 1000)
        return call()

    for operation in ("read", "read_tail", "open_buffer", "list", "head"):
        store.on(operation, hang)
    seen = dict.fromkeys(range(PARTITIONS), 0)
    while sum(seen.values()) < (PARTITIONS - 1) * SEGMENTS:
        for rows in fetcher.collect_fetch(None, PATIENCE_MS).rows:
            seen[rows.partition.partition] += rows.count
    assert seen[0] == 0
    answered.set()
    while seen[0] < SEGMENTS:
        seen[0] += sum(rows.count for rows in fetcher.collect_fetch(None, PATIENCE_MS).rows)


def test_an_error_that_ends_such_a_thread_is_told(open_fetcher):
    fetcher, store = open_fetcher()

    def end(path, call):
        raise SystemExit

    store.on("list", end)
    with pytest.raises(SystemExit):
        fetcher.collect_fetch(None, PATIENCE_MS)


def test_no_thread_is_left_when_all_is_read(open_fetcher):
    fetcher, _ = open_fetcher(client_id="left")
    seen = 0
    while seen < PARTITIONS * SEGMENTS:
        seen += sum(rows.count for rows in fetcher.collect_fetch(None, PATIENCE_MS).rows)
    names = {"spark-log-fetcher-left-beside"}
    wait_until(lambda: not names & {each.name for each in threading.enumerate()})
