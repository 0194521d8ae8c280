"""Readers of a stripe whose storage fails, or is slow: they miss nothing, and read on."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.fetch_sessions import FetchSessions
from spark_log.gateway.partitions import GatewayPartition, GatewayStripe, TailWatch
from spark_log.gateway.partitions.log_cursors import LogCursors
from spark_log.gateway.partitions.partition_logs import PartitionLogs
from spark_log.gateway.partitions.produced_batch import ProducedBatch
from spark_log.gateway.partitions.tail_cache import CacheBudget
from spark_log.gateway.requests import fetch as fetch_request
from spark_log.log import BatchAppend, LocalLog, PartitionLog, ProbeInterval
from spark_log.log.stripe import (
    Stripe,
    StripedAppender,
    StripeDirectory,
    StripedLog,
    StripeEntry,
    free,
)
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.util import SuppressedErrors
from tests.gateway.data_client import Fetch, batches_of, fetch_fields, rows_of
from tests.gateway.partitions.test_faulty_logs import (
    FAULTS_S,
    SETTLE_S,
    FakeMerges,
    Memory,
    World,
)
from tests.gateway.partitions.test_tail_watch import skipping_run
from tests.log.chain.support import States
from tests.log.stripe.support import STRIPE, TOPIC
from tests.log.support import TOPIC_ID, HookedStore
from tests.record.samples import record_batch, row

PARTITIONS = 3


class Process:
    """A process with the stripe, and with logs of its partitions."""

    def __init__(self, world):
        self.world = world
        cluster = world.cluster
        self.store = HookedStore(cluster.root(1))
        self.stripe = Stripe(
            StripeDirectory(
                self.store,
                STRIPE,
                topic_id=TOPIC_ID,
                stripe=0,
                config=cluster.config,
                clock=cluster.clock,
                suppressed=SuppressedErrors(),
            ),
            lambda number: self._open(LocalLog, number).files,
        )

    def _open(self, open_log, number):
        cluster = self.world.cluster
        return open_log(
            self.store,
            f"{TOPIC}/flights-{number}",
            topic_id=TOPIC_ID,
            partition=number,
            config=cluster.config,
            clock=cluster.clock,
        )

    def log(self, number, merge_executor=None):
        cluster = self.world.cluster
        return PartitionLog(
            States(cluster.metadata, cluster.clock),
            lambda *_, **__: self._open(partial(StripedLog, self.stripe), number),
            lambda broker_id: self.store,
            name=f"{TOPIC}/flights-{number}",
            config=cluster.config,
            clock=cluster.clock,
            striped=StripedAppender(self.stripe, number),
        )


class Gateway(Process):
    """A gateway, whose blocking calls take time, and fail."""

    def __init__(self, world, *, is_local):
        super().__init__(world)
        for operation in ("list", "open_buffer", "read", "read_tail", "head"):
            self.store.on(operation, world.fail_sometimes)
        self.store.on("put_if_absent", world.lose_sometimes)
        merges: Any = FakeMerges(world)
        self.striped = GatewayStripe(
            "flights",
            self.stripe,
            run_blocking=self.run_blocking,
            merges=merges,
            max_uncompressed_bytes=1 << 30,
            clock_ms=world.now_ms,
        )
        budget = CacheBudget(world.random.choice((0, 500, 1 << 20)))
        self.opened = [
            GatewayPartition(
                "flights",
                "id",
                number,
                PartitionLogs(
                    partial(self.log, number),
                    world.cluster.config,
                    merges=merges,
                    cursors=LogCursors(world.random.choice((0, 1, 8))),
                    max_uncompressed_bytes=1 << 30,
                    resolve=lambda blocking, log: False,
                    partition=number,
                    stripe=self.stripe.reader,
                ),
                run_blocking=self.run_blocking,
                budget=budget,
                clock_ms=world.now_ms,
                stripe=self.striped,
            )
            for number in range(PARTITIONS)
        ]
        # What the handler of Fetch uses of a gateway.
        self.fetch_sessions = FetchSessions(0)
        numbers = {number: SimpleNamespace(leader_epoch=0) for number in range(PARTITIONS)}
        topic = SimpleNamespace(partitions=numbers)
        self.image = SimpleNamespace(find=lambda name: topic)
        self.context: Any = SimpleNamespace(api_version=11, client_id=None, memory=Memory())
        self.partitions = SimpleNamespace(
            now_ms=world.now_ms,
            tail_watch=TailWatch(
                self.run_blocking,
                world.now_ms,
                SuppressedErrors(),
                ProbeInterval(10.0, 100.0, rest_ms=1_000.0),
                is_local=is_local,
            ),
            is_draining=False,
            known_image=self.image,
            image_in_order=self._image_in_order,
            get=lambda topic, number: self.opened[number],
            quotas=SimpleNamespace(throttle_ms=lambda *arguments: 0),
        )

    async def _image_in_order(self, is_complete):
        return self.image

    async def run_blocking(self, call, *arguments):
        await self.world.delay()
        try:
            return call(*arguments)
        finally:
            await self.world.delay()

    async def fetch(self, offsets, **options):
        """Return the answer of each partition."""
        request = Fetch(**fetch_fields(offsets, max_wait_ms=500, **options))
        gateway: Any = self
        response = await fetch_request.handle(gateway, self.context, request)
        return {each.partition_index: each for each in response.responses[0].partitions}

    async def append(self, number, data, **options):
        """Return the first offset of a batch; None if it was not acknowledged."""
        produced = ProducedBatch(memoryview(data), partition=number, **options)
        future = self.opened[number].append(produced)
        await asyncio.wait([future], timeout=self.world.random.choice((0.01, 5.0, 20.0)))
        if not future.done():
            self.opened[number].withdraw(future)
            return None
        if future.cancelled() or future.exception() or future.result().error:
            return None
        return future.result().base_offset


class Reader:
    """Reads all partitions from one gateway, or from the other one."""

    def __init__(self, world, isolation_level):
        self.world = world
        self.isolation_level = isolation_level
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.rows: dict[int, list[tuple[int, str]]] = {each: [] for each in self.positions}

    async def run(self):
        world = self.world
        gateway = world.random.choice(world.gateways)
        while not world.is_over:
            if world.has_faults and world.random.random() < 0.3:
                gateway = world.random.choice(world.gateways)
            if world.has_faults and world.random.random() < 0.05:
                await asyncio.sleep(world.random.choice((0.5, 5.0, 15.0)))
            answers = await gateway.fetch(
                self.positions,
                isolation_level=self.isolation_level,
                partition_max_bytes=world.random.choice((1, 1, 300, 1 << 20)),
            )
            for number, found in answers.items():
                if found.error_code:
                    world.seen[f"error {found.error_code}"] += 1
                    assert found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE
                    await asyncio.sleep(0.1)
                if not found.records:
                    continue
                position = self.positions[number]
                self.rows[number] += [each for each in rows_of(found) if each[0] >= position]
                last = batches_of(found)[-1]
                assert last.base_offset + last.last_offset_delta + 1 > position
                self.positions[number] = last.base_offset + last.last_offset_delta + 1


class StripedWorld(World):
    """A stripe, two gateways, writers beside them, one who takes it home, and readers."""

    def __init__(self, seed, *, is_local):
        self.acknowledged: list[tuple[int, int, str]] = []
        self.is_local = is_local
        super().__init__(seed, is_local=is_local)
        self.gateways: list[Any] = [Gateway(self, is_local=is_local) for _ in range(2)]

    def rows(self, count):
        self.number += count
        first = self.number - count
        return record_batch(
            [row(b"%d" % each, key=b"%d" % (each % 7)) for each in range(first, self.number)]
        )

    async def produce(self, gateway):
        """Produce without transactions, through a gateway, to several partitions at a time."""
        while self.has_faults:
            await asyncio.sleep(self.random.choice((0.01, 0.1, 1.0, 6.0)) * self.random.random())
            numbers = self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS))
            await asyncio.gather(*(self._produce_one(gateway, each) for each in numbers))

    async def _produce_one(self, gateway, number):
        count = self.random.randint(1, 4)
        data = self.client_batch(count)
        value = str(self.number - count)
        offset = await gateway.append(number, data)
        if offset is not None:
            self.acknowledged.append((number, offset, value))

    async def transact(self, producer_id):
        """Append transactions beside the gateways, or through them; and their markers, too."""
        beside = Process(self)
        epoch = 0
        while self.has_faults:
            numbers = self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS))
            sequence = 0
            for _ in range(self.random.randint(1, 3)):
                await asyncio.sleep(self.random.choice((0.01, 0.3, 4.0)) * self.random.random())
                count = self.random.randint(1, 3)
                if self.random.random() < 0.5:
                    append = ProducerAppend(producer_id, epoch, sequence, is_transactional=True)
                    appends = [BatchAppend(self.rows(count), append) for _ in numbers]
                    beside.stripe.appends.append(list(map(StripeEntry, numbers, appends)))
                else:
                    gateway = self.random.choice(self.gateways)
                    batches = {
                        each: self.client_batch(
                            count,
                            is_transactional=True,
                            producer_id=producer_id,
                            producer_epoch=epoch,
                            base_sequence=sequence,
                        )
                        for each in numbers
                    }
                    offsets = await asyncio.gather(
                        *(
                            gateway.append(each, data, transactional_id="t")
                            for each, data in batches.items()
                        )
                    )
                    if None in offsets:
                        break
                sequence += count
            await asyncio.sleep(self.random.choice((0.01, 0.3, 4.0)) * self.random.random())
            epoch += 1
            marker = EndTransactionMarker(producer_id, epoch, self.random.random() < 0.5)
            markers = {number: [marker] for number in range(PARTITIONS)}
            ending = self.random.choice([beside.stripe, *(each.striped for each in self.gateways)])
            if getattr(ending, "has_appended", True):
                await self.delay()
                ending.append_markers(markers)
            beside.stripe.append_markers(markers)

    async def take_home(self):
        while True:
            await asyncio.sleep(self.random.choice((0.5, 2.0, 5.0)))
            with self.ignoring():
                process = Process(self)
                process.stripe.take_home()
                free(process.stripe.directory)
                self.seen["taken home"] += 1

    async def run(self):
        """Run with faults, then without, and check what each reader has."""
        readers = [Reader(self, level) for level in (0, 1, 1)]
        tasks = [asyncio.ensure_future(each.run()) for each in readers]
        writers = [asyncio.ensure_future(self.produce(each)) for each in self.gateways]
        writers += [asyncio.ensure_future(self.transact(each)) for each in (1, 2)]
        taking = asyncio.ensure_future(self.take_home())
        await asyncio.sleep(FAULTS_S)
        self.has_faults = False
        await asyncio.gather(*writers)
        await asyncio.sleep(SETTLE_S)
        taking.cancel()
        self.is_over = True
        await asyncio.gather(*tasks)
        for number in range(PARTITIONS):
            log = Process(self).log(number)
            rows = {level: self.rows_in(log, level) for level in (0, 1)}
            for reader in readers:
                assert reader.rows[number] == rows[reader.isolation_level], (
                    f"partition {number}, isolation level {reader.isolation_level}"
                )
            assert set(rows[1]) <= set(rows[0])
            there = set(rows[0])
            assert not [
                each for each in self.acknowledged if each[0] == number and each[1:] not in there
            ]
        self.seen["acknowledged"] = len(self.acknowledged)
        return self.seen

    def rows_in(self, log, isolation_level):
        level: Any = "read_committed" if isolation_level else "read_uncommitted"
        return [
            (offset, value.decode())
            for batch, _ in log.stream(0, isolation_level=level)
            if batch is not None and not batch.is_control
            for offset, value in zip(
                batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
            )
        ]


def run_world(seed, *, is_local):
    async def run():
        return await StripedWorld(seed, is_local=is_local).run()

    return skipping_run(run())


@pytest.mark.parametrize(("seed", "is_local"), [(1, True), (6, False)])
def test_readers_have_all_records_when_the_faults_are_over(seed, is_local):
    seen = run_world(seed, is_local=is_local)
    assert seen["acknowledged"] > 10
    assert seen["taken home"] > 5


@pytest.mark.long
@pytest.mark.parametrize("is_local", [False, True])
def test_readers_have_all_records_whatever_the_seed(is_local):
    for seed in range(20, 60):
        assert run_world(seed, is_local=is_local)["acknowledged"], seed
