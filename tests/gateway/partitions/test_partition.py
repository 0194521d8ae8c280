"""One partition: which appends wake its readers, and where they find the batches."""

import asyncio

from spark_log.gateway.partitions.partition import GatewayPartition
from spark_log.gateway.partitions.partition_logs import Appended, LogRead
from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult
from spark_log.gateway.partitions.tail_cache import CacheBudget, CachedBatch
from spark_log.gateway.partitions.waiting_fetch import WaitingFetch
from tests.gateway.partitions.test_partitions import SlowReads, settle


class CachingLogs:
    """Logs whose appends are cached whole, and which cannot be read."""

    is_compacted = False

    def append(self, produced):
        for each in produced:
            each.result = ProduceResult(base_offset=0)
        return Appended(0, 1, False, (CachedBatch(0, 1, b"as the client sent it", 2),))


class CompactedLogs(CachingLogs):
    """Logs of a compacted topic, from which a cleaner has removed what was appended."""

    is_compacted = True

    def read(self, offset, max_bytes, isolation_level, known_end, has_time):
        return LogRead([b"after the compaction"], known_end, True, False)


def partition_of(logs, run_blocking, clock_ms=lambda: 0.0):
    return GatewayPartition(
        "flights",
        "id",
        0,
        logs,
        run_blocking=run_blocking,
        budget=CacheBudget(1000),
        clock_ms=clock_ms,
    )


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
