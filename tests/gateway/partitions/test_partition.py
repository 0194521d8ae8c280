"""One partition: which appends wake its readers, and where they find the batches."""

import asyncio

from spark_log.gateway.partitions.partition import GatewayPartition
from spark_log.gateway.partitions.partition_logs import Appended
from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult
from spark_log.gateway.partitions.tail_cache import CacheBudget, CachedBatch
from spark_log.gateway.partitions.waiting_fetch import WaitingFetch
from tests.gateway.partitions.test_partitions import SlowReads, settle


class CachingLogs:
    """Logs whose appends are cached whole, and which cannot be read."""

    def append(self, produced):
        for each in produced:
            each.result = ProduceResult(base_offset=0)
        return Appended(0, 1, False, (CachedBatch(0, 1, b"as the client sent it", 2),))


def test_a_probe_that_sees_an_append_under_way_sends_no_reader_to_the_log():
    async def test():
        blocking = SlowReads()
        partition = GatewayPartition(
            "flights",
            "id",
            0,
            CachingLogs(),  # type: ignore[arg-type] # only what an append needs
            run_blocking=blocking.run,
            budget=CacheBudget(1000),
            clock_ms=lambda: 0.0,
        )
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
