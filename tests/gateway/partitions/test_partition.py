"""One partition: which appends wake its readers, and where they find the batches."""

import asyncio

import pytest

from spark_log.gateway.partitions.partition import GatewayPartition
from spark_log.gateway.partitions.partition_logs import Appended, LogRead
from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult
from spark_log.gateway.partitions.tail_cache import CacheBudget, CachedBatch
from spark_log.gateway.partitions.waiting_fetch import WaitingFetch
from spark_log.record import EndTransactionMarker
from tests.gateway.partitions.test_partitions import SlowReads, settle


class CachingLogs:
    """Logs whose appends are cached whole, and which cannot be read."""

    is_compacted = False
    is_quick = False
    has_due_snapshot = False

    def append(self, produced):
        for each in produced:
            each.result = ProduceResult(base_offset=0)
        return Appended(0, 1, False, (CachedBatch(0, 1, b"as the client sent it", 2),))


class CompactedLogs(CachingLogs):
    """Logs of a compacted topic, from which a cleaner has removed what was appended."""

    is_compacted = True

    def read(self, offset, max_bytes, isolation_level, known_end, has_time):
        return LogRead([b"after the compaction"], known_end, True, False)


def partition_of(logs, run_blocking, clock_ms=lambda: 0.0, run_short=None):
    return GatewayPartition(
        "flights",
        "id",
        0,
        logs,
        run_blocking=run_blocking,
        budget=CacheBudget(1000),
        clock_ms=clock_ms,
        run_short=run_short,
    )


@pytest.mark.parametrize(
    ("is_quick", "batches", "expected"),
    [
        (True, [ProducedBatch(memoryview(bytes(40_000)))], "short"),
        (False, [ProducedBatch(memoryview(b"synced"))], "blocking"),
        (True, [ProducedBatch(memoryview(bytes(40_000)))] * 2, "blocking"),
        (True, [ProducedBatch(memoryview(b""), transactional_id="id")], "blocking"),
    ],
    ids=["few bytes", "waits for the storage", "many bytes", "in a transaction"],
)
def test_an_append_that_waits_for_nothing_is_a_short_call(is_quick, batches, expected):
    async def test():
        runs = []

        async def run_short(call, *arguments):
            runs.append("short")
            return call(*arguments)

        async def run_blocking(call, *arguments):
            runs.append("blocking")
            return call(*arguments)

        logs = CachingLogs()
        logs.is_quick = is_quick
        partition = partition_of(logs, run_blocking, run_short=run_short)
        await asyncio.gather(*[partition.append(each) for each in batches])
        assert runs == [expected]

    asyncio.run(test())


class SnapshotLogs(CachingLogs):
    """Logs whose first append makes a snapshot due."""

    def __init__(self):
        self.calls: list[str] = []

    def append(self, produced):
        self.calls += [bytes(each.data).decode() for each in produced]
        self.has_due_snapshot = len(self.calls) == 1
        return super().append(produced)

    def write_snapshot(self):
        self.calls.append("snapshot")
        self.has_due_snapshot = False


def test_a_snapshot_is_written_after_the_answer_and_before_the_next_append():
    async def test():
        logs, may_write = SnapshotLogs(), asyncio.Event()

        async def run(call, *arguments):
            if call == logs.write_snapshot:
                await may_write.wait()
            return call(*arguments)

        partition = partition_of(logs, run)
        await partition.append(ProducedBatch(memoryview(b"first")))
        second = partition.append(ProducedBatch(memoryview(b"second")))
        await settle()
        assert logs.calls == ["first"]
        may_write.set()
        await second
        assert logs.calls == ["first", "snapshot", "second"]

    asyncio.run(test())


def test_a_compacted_topic_is_read_from_the_log_some_seconds_after_an_append():
    async def test():
        now_ms = 10_000.0

        async def run(call, *arguments):
            return call(*arguments)

        partition = partition_of(CompactedLogs(), run, lambda: now_ms)
        partition.end_offset = 0
        await partition.append(ProducedBatch(memoryview(b"")))
        partition.on_checked()
        for later_ms, expected in (
            (0, b"as the client sent it"),
            (5_000, b"as the client sent it"),
            (5_001, b"after the compaction"),
        ):
            now_ms = 10_000.0 + later_ms
            partition.on_checked()
            fetched = await partition.fetch(0, 100, "read_uncommitted")
            assert fetched.parts == [expected]

    asyncio.run(test())


def test_a_probe_that_sees_an_append_under_way_sends_no_reader_to_the_log():
    async def test():
        blocking = SlowReads()
        partition = partition_of(CachingLogs(), blocking.run)
        partition.end_offset = 0
        partition.on_checked()
        fetch = WaitingFetch()
        partition.add_waiting(fetch)
        appended = partition.append(ProducedBatch(memoryview(b"")))
        await settle()
        partition.on_grown()
        assert not await fetch.wait(0)
        blocking.end()
        await appended
        assert await fetch.wait(0)
        fetched = await partition.fetch(0, 100, "read_uncommitted")
        assert fetched.parts == [b"as the client sent it"]

        fetch.clear()
        partition.on_grown()  # by another process: no append is under way
        assert await fetch.wait(0)

    asyncio.run(test())


class MarkedLogs(CachingLogs):
    """Logs that also get markers, each at the end."""

    def __init__(self):
        self.on_marked = lambda: None

    def append_markers(self, markers):
        self.on_marked()
        return None, Appended(1, 2, True, (CachedBatch(1, 2, b"a marker", 0),), stable=(2, 2))


def test_a_probe_that_sees_a_marker_of_this_gateway_sends_no_reader_to_the_log():
    async def test():
        async def run(call, *arguments):
            return call(*arguments)

        logs = MarkedLogs()
        partition = partition_of(logs, run)
        partition.end_offset = 0
        await partition.append(ProducedBatch(memoryview(b"")))
        fetch = WaitingFetch()
        partition.add_waiting(fetch)
        at_end = []

        def probe():
            partition.on_grown()
            at_end.append(partition.fetch_at_end(1, "read_uncommitted"))

        logs.on_marked = probe
        partition.append_markers([EndTransactionMarker(7, 1, True)])
        assert at_end != [None]  # a reader need not look into the log
        assert await fetch.wait(30)
        fetched = await partition.fetch(1, 100, "read_committed")
        assert (fetched.parts, fetched.last_stable_offset) == ([b"a marker"], 2)

    asyncio.run(test())


def test_an_append_of_this_gateway_does_not_make_probes_more_frequent():
    """It finds the appends of others itself."""

    async def test():
        now_ms = 10_000.0

        async def run(call, *arguments):
            return call(*arguments)

        partition = partition_of(CachingLogs(), run, lambda: now_ms)
        partition.end_offset, before_ms = 0, partition.changed_ms
        now_ms = 20_000.0
        await partition.append(ProducedBatch(memoryview(b"")))
        assert (partition.end_offset, partition.changed_ms) == (1, before_ms)
        partition.end_offset = -5
        await partition.append(ProducedBatch(memoryview(b"")))
        assert (partition.end_offset, partition.changed_ms) == (1, now_ms)

    asyncio.run(test())
