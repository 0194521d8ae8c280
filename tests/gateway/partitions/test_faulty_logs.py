"""Readers of partitions whose storage fails, or is slow: when it works again, they read on."""

import asyncio
import gc
import random
import threading
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from spark_log.errors import (
    InvalidTxnStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.fetch_sessions import FetchSessions
from spark_log.gateway.partitions import GatewayPartition, TailWatch
from spark_log.gateway.partitions.log_cursors import LogCursors
from spark_log.gateway.partitions.partition_logs import PartitionLogs
from spark_log.gateway.partitions.produced_batch import ProducedBatch
from spark_log.gateway.partitions.tail_cache import CacheBudget
from spark_log.gateway.record_batches import BatchTarget, from_arrow
from spark_log.gateway.requests import fetch as fetch_request
from spark_log.log import LogAppendInfo, ProbeInterval, SegmentReader
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.util import SuppressedErrors
from tests.gateway.data_client import Fetch, batches_of, fetch_fields
from tests.gateway.partitions.test_tail_watch import skipping_run
from tests.log.chain.support import Cluster
from tests.record.samples import record_batch, row

FAULTS_S = 60.0
"""Time with faults, on the clock of the test."""
SETTLE_S = 20.0
"""Time after the faults in which every reader comes to the end."""


class LoopClock:
    """The time of the event loop."""

    def monotonic_ms(self):
        return asyncio.get_running_loop().time() * 1000

    def time_us(self):
        return 1_700_000_000_000_000 + int(self.monotonic_ms() * 1000)


class Memory:
    """As much memory as answers need."""

    max_answer_bytes = 1 << 30

    async def reserve(self, size_bytes, timeout_s):
        return True

    def change(self, size_bytes):
        """Count nothing."""


class FakeMerges:
    """Merges of appends, which run a little later."""

    def __init__(self, world):
        self._world = world

    def submit(self, merge):
        def run():
            with self._world.ignoring():
                merge()

        asyncio.get_running_loop().call_later(self._world.random.random(), run)
        return True

    def pause(self):
        """Do not pause."""

    def make_way(self):
        return nullcontext()


class Process:
    """A gateway with one partition, whose blocking calls take time, and fail."""

    def __init__(self, world, *, is_local):
        self.world = world
        self.process = world.cluster.process()
        for operation in ("list", "open_buffer", "read", "read_tail", "head"):
            self.process.stores[1].on(operation, world.fail_sometimes)
        self.process.stores[1].on("put_if_absent", world.lose_sometimes)
        logs = PartitionLogs(
            self._open_log,
            world.cluster.config,
            merges=FakeMerges(world),  # type: ignore[arg-type]
            cursors=LogCursors(world.random.choice((0, 1, 8))),
            max_uncompressed_bytes=1 << 30,
            resolve=lambda blocking, log: False,
        )
        self.partition = GatewayPartition(
            "flights",
            "id",
            0,
            logs,
            run_blocking=self.run_blocking,
            budget=CacheBudget(world.random.choice((0, 500, 1 << 20))),
            clock_ms=world.now_ms,
        )
        self.watch = TailWatch(
            self.run_blocking,
            world.now_ms,
            SuppressedErrors(),
            ProbeInterval(10.0, 100.0, rest_ms=1_000.0),
            is_local=is_local,
        )
        # What the handler of Fetch uses of a gateway.
        self.fetch_sessions = FetchSessions(0)
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader_epoch=0)})
        self.image = SimpleNamespace(find=lambda name: topic)
        self.context: Any = SimpleNamespace(api_version=11, client_id=None, memory=Memory())
        self.partitions = SimpleNamespace(
            now_ms=world.now_ms,
            tail_watch=self.watch,
            is_draining=False,
            known_image=self.image,
            image_in_order=self._image_in_order,
            get=lambda topic, number: self.partition,
            quotas=SimpleNamespace(throttle_ms=lambda *arguments: 0),
        )

    async def _image_in_order(self, is_complete):
        return self.image

    def _open_log(self, merge_executor=None):
        return self.process.log_again()

    async def run_blocking(self, call, *arguments):
        world = self.world
        await world.delay()
        try:
            return call(*arguments)
        finally:
            await world.delay()

    async def fetch(self, offset, **options):
        """Return the answer of the partition to a fetch."""
        request = Fetch(**fetch_fields({0: offset}, max_wait_ms=500, **options))
        gateway: Any = self
        response = await fetch_request.handle(gateway, self.context, request)
        return response.responses[0].partitions[0]


class Reader:
    """Reads from one gateway, or from the other one; `position` is the next offset."""

    def __init__(self, world, isolation_level):
        self.world = world
        self.isolation_level = isolation_level
        self.position = 0
        self.offsets = []

    async def run(self):
        world = self.world
        gateway = world.random.choice(world.gateways)
        while not world.is_over:
            if world.has_faults and world.random.random() < 0.3:
                gateway = world.random.choice(world.gateways)
            if world.has_faults and world.random.random() < 0.05:
                await asyncio.sleep(world.random.choice((0.5, 5.0, 15.0)))
            found = await gateway.fetch(
                self.position,
                isolation_level=self.isolation_level,
                partition_max_bytes=world.random.choice((1, 1, 300, 1 << 20)),
            )
            if found.error_code:
                world.seen[f"error {found.error_code}"] += 1
                assert found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE, f"of {self.position}"
                await asyncio.sleep(0.1)
            for batch in batches_of(found) if found.records else ():
                end = batch.base_offset + batch.last_offset_delta + 1
                assert end > self.position, f"{batch} is before {self.position}"
                self.position = end


class World:
    """A log, two gateways, writers beside them, a cleaner, and readers."""

    def __init__(self, seed, *, is_local):
        self.random = random.Random(seed)
        self.cluster = Cluster(
            1,
            file_delete_delay_ms=3_000,
            merge_tail_segments=self.random.choice((0, 4)),
            snapshot_interval_segments=3,
            cleanup_policy=self.random.choice(("delete", "delete", "compact")),
            min_cleanable_dirty_ratio=0,
            retention_ms=-1,
        )
        self.cluster.clock = LoopClock()  # type: ignore[assignment]
        self.has_faults, self.is_over = True, False
        self.fault_rate = self.random.choice((0.0, 0.01, 0.1))
        self.seen: Counter[str] = Counter()
        self.gateways = [Process(self, is_local=is_local) for _ in range(2)]
        self.number = 0

    def now_ms(self):
        return asyncio.get_running_loop().time() * 1000

    async def delay(self):
        longest_s = self.random.choice((0, 0.001, 0.01, 0.3)) if self.has_faults else 0.001
        if self.has_faults and self.random.random() < 0.01:
            longest_s = 8.0
        await asyncio.sleep(self.random.random() * longest_s)

    def fail_sometimes(self, path, call):
        if self.has_faults and self.random.random() < self.fault_rate:
            raise StorageUnavailableError("a fault")
        return call()

    def lose_sometimes(self, path, call):
        if self.has_faults and self.random.random() < self.fault_rate:
            if self.random.random() < 0.5:
                call()
            raise UnknownOutcomeError("a fault")
        return call()

    def ignoring(self):
        return _Ignoring(self)

    def rows(self, count):
        self.number += count
        keys = (b"%d" % (each % 7) for each in range(self.number - count, self.number))
        return record_batch([row(b"value", key=key) for key in keys])

    def client_batch(self, count, **target):
        """Return a batch in a client's bytes."""
        return from_arrow(self.rows(count), base_offset=0, target=BatchTarget(**target))

    # --- what happens ----------------------------------------------------------------------------

    async def produce(self, gateway):
        """Produce without transactions, through a gateway."""
        while self.has_faults:
            await asyncio.sleep(self.random.choice((0.01, 0.1, 1.0, 6.0)) * self.random.random())
            data = self.client_batch(self.random.randint(1, 8))
            future = gateway.partition.append(ProducedBatch(memoryview(data)))
            await asyncio.wait([future], timeout=self.random.choice((0.01, 5.0)))
            if not future.done():
                gateway.partition.withdraw(future)
            elif not future.cancelled():
                future.exception()

    async def transact(self, producer_id):
        """Append transactions beside the gateways, or through the log of a gateway."""
        process = self.cluster.process()
        epoch = 0
        while self.has_faults:
            sequence = 0
            for _ in range(self.random.randint(1, 3)):
                await asyncio.sleep(self.random.choice((0.01, 0.3, 4.0)) * self.random.random())
                count = self.random.randint(1, 3)
                append = ProducerAppend(producer_id, epoch, sequence, is_transactional=True)
                if self.random.random() < 0.5:
                    process.log.append(self.rows(count), producer=append)
                else:
                    data = self.client_batch(
                        count,
                        is_transactional=True,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=sequence,
                    )
                    produced = ProducedBatch(memoryview(data), transactional_id="t")
                    future = self.random.choice(self.gateways).partition.append(produced)
                    await asyncio.wait([future], timeout=20)
                    if not future.done() or future.exception() or future.result().error:
                        break
                sequence += count
            await asyncio.sleep(self.random.choice((0.01, 0.3, 4.0)) * self.random.random())
            epoch += 1
            marker = EndTransactionMarker(producer_id, epoch, self.random.random() < 0.5)
            process.log.append_markers([marker])

    async def clean(self):
        while True:
            await asyncio.sleep(self.random.choice((0.5, 2.0, 5.0)))
            with self.ignoring():
                replica = self.cluster.process().replica(1)
                PartitionCleaner(replica, fan_in=3, max_clock_skew_ms=10**12).clean()
                self.seen["cleaned"] += 1

    async def run(self):
        """Run with faults, then without, and return what each reader lacks."""
        readers = [Reader(self, level) for level in (0, 1, 1, 1)]
        tasks = [asyncio.ensure_future(each.run()) for each in readers]
        writers = [asyncio.ensure_future(self.produce(each)) for each in self.gateways]
        writers += [asyncio.ensure_future(self.transact(each)) for each in (1, 2)]
        cleaning = asyncio.ensure_future(self.clean())
        await asyncio.sleep(FAULTS_S)
        self.has_faults = False
        await asyncio.gather(*writers)
        await asyncio.sleep(SETTLE_S)
        cleaning.cancel()
        self.is_over = True
        await asyncio.gather(*tasks)
        log = self.cluster.process().log
        view = log.observe()
        ends = view.log_end_offset, log.end_offset(view, isolation_level="read_committed")
        self.seen["end"] = ends[0]
        return {
            number: (each.position, ends[each.isolation_level])
            for number, each in enumerate(readers)
            if each.position != ends[each.isolation_level]
        }


class _Ignoring:
    def __init__(self, world):
        self._world = world

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, (SparkLogError, NotFoundError, OffsetOutOfRangeError)):
            self._world.seen[type(error).__name__] += 1
            return True
        return False


def run_world(seed, *, is_local):
    async def run():
        return await World(seed, is_local=is_local).run()

    return skipping_run(run())


@pytest.mark.parametrize(("seed", "is_local"), [(1, True), (6, False)])
def test_readers_come_to_the_end_when_the_faults_are_over(seed, is_local):
    assert not run_world(seed, is_local=is_local)


@pytest.mark.long
@pytest.mark.parametrize("is_local", [False, True])
def test_readers_come_to_the_end_whatever_the_seed(is_local):
    for seed in range(20, 60):
        assert not run_world(seed, is_local=is_local), seed


def test_a_read_that_ends_inside_of_a_segment_does_not_end_the_log():
    async def test():
        world = World(0, is_local=True)
        world.has_faults = False
        gateway = world.gateways[0]
        assert not (await gateway.fetch(0)).records
        world.cluster.process().log.append(world.rows(5))
        (batch,) = batches_of(await gateway.fetch(0, partition_max_bytes=1))
        assert batch.last_offset_delta == 0
        assert not gateway.partition.logs.ends_at(1)
        (batch,) = batches_of(await gateway.fetch(1))
        assert batch.base_offset + batch.last_offset_delta == 4
        assert (await gateway.fetch(5)).error_code == 0
        assert gateway.partition.logs.ends_at(5)

    skipping_run(test())


def test_an_offset_behind_the_known_end_is_looked_up_by_a_listing_that_begins_after_the_request():
    async def test():
        world = World(0, is_local=False)
        world.has_faults = False
        gateway = world.gateways[0]
        assert not (await gateway.fetch(0)).records
        log = world.cluster.process().log
        log.append(world.rows(1))
        listed, goes_on = asyncio.Event(), asyncio.Event()

        async def run_blocking(call, *arguments):
            found = call(*arguments)
            if call == gateway.partition.logs.observe and not listed.is_set():
                listed.set()  # the process stands still when its thread has listed the log
                await goes_on.wait()
            return found

        gateway.partition._run_blocking = run_blocking  # noqa: SLF001
        looking = asyncio.ensure_future(gateway.partition.observe())
        await listed.wait()
        log.append(world.rows(2))  # a client reads this from another gateway
        fetching = asyncio.ensure_future(gateway.fetch(3))
        await asyncio.sleep(1)
        goes_on.set()
        assert (await fetching).error_code == 0
        await looking

    skipping_run(test())


def test_a_watched_end_holds_no_segment():
    async def test():
        world = World(0, is_local=False)
        world.has_faults = False
        world.cluster.process().log.append(world.rows(5))
        logs, before = world.gateways[0].partition.logs, open_segments()
        for look_up in (logs.observe, logs.last_stable_offset):
            look_up()
            assert open_segments() == before
        assert logs.ends_at(5), "the listing is kept"

    skipping_run(test())


def open_segments():
    gc.collect()
    return sum(isinstance(each, SegmentReader) for each in gc.get_objects())


def test_a_duplicate_behind_what_was_put_does_not_end_the_log():
    """Another gateway has put it beside other batches, so its end lies inside of a segment."""

    class Log:
        states = SimpleNamespace(current=lambda: SimpleNamespace(is_replicated=False))
        appended_stable_offset = None

        def append_batches(self, batches, **options):
            return [LogAppendInfo(20, 21), LogAppendInfo(25, 25, is_duplicate=True)]

    async def test():
        world = World(0, is_local=False)
        logs = PartitionLogs(
            lambda merge_executor: Log(),  # type: ignore[arg-type, return-value]
            world.cluster.config,
            merges=FakeMerges(world),  # type: ignore[arg-type]
            cursors=LogCursors(),
            max_uncompressed_bytes=1 << 30,
            resolve=lambda blocking, log: False,
        )
        batches = [ProducedBatch(memoryview(world.client_batch(count))) for count in (2, 1)]
        assert logs.append(batches).end_offset == 22

    skipping_run(test())


def test_a_batch_is_translated_while_the_end_of_its_transaction_may_put_a_marker():
    """The end holds the transactional id that the translation asks for, and waits for the log."""

    class Log:
        states = SimpleNamespace(current=lambda: SimpleNamespace(is_replicated=False))
        appended_stable_offset = None

        def append_markers(self, markers):
            return None

    async def test():
        world = World(0, is_local=False)
        logs = PartitionLogs(
            lambda merge_executor: Log(),  # type: ignore[arg-type, return-value]
            world.cluster.config,
            merges=FakeMerges(world),  # type: ignore[arg-type]
            cursors=LogCursors(),
            max_uncompressed_bytes=1 << 30,
            resolve=lambda blocking, log: False,
        )
        batch = ProducedBatch(memoryview(world.client_batch(1)))
        put = []

        def verify(is_recent):
            thread = threading.Thread(target=lambda: put.append(logs.append_markers([])))
            thread.start()
            thread.join(10)
            raise InvalidTxnStateError("the transaction is over")

        batch.verify = verify
        logs.append([batch])
        assert put
        assert batch.result is not None
        assert batch.result.error

    skipping_run(test())
