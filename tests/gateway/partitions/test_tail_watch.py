"""Probes for the appends of others: how many there are, and how soon an append is found."""

import asyncio
import selectors
from types import SimpleNamespace
from typing import Any

import pytest

from spark_log.errors import StorageUnavailableError
from spark_log.gateway.partitions import GatewayPartition, GatewayStripe, TailWatch, WaitingFetch
from spark_log.gateway.partitions.tail_cache import CacheBudget
from spark_log.log import ProbeInterval
from spark_log.util import SuppressedErrors

REMOTE = ProbeInterval(10.0, 100.0, rest_ms=1_000.0)


class Skipping(selectors.DefaultSelector):
    """Moves the clock of its event loop on instead of waiting."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        self.now_s += timeout or 0.0
        return super().select(0)


class Stripe:
    """A stripe as a gateway uses it; its partitions end at `ends`."""

    def __init__(self, count):
        self.ends = dict.fromkeys(range(count), 0)
        self.polls = 0
        self.errors: list[Exception] = []
        self.reader = self
        self.directory = SimpleNamespace(path="t/stripe-0")

    def poll(self):
        self.polls += 1
        if self.errors:
            raise self.errors.pop()

    def known_ends(self, numbers):
        return [(self.ends[number], self.ends[number]) for number in numbers]


class Log:
    """A log that ends at `end`."""

    def __init__(self):
        self.end = 0
        self.probes = 0

    def ends_at(self, offset):
        self.probes += 1
        return self.end == offset


class Watched:
    """Partitions, and the fetches of a client that waits for all of them."""

    def __init__(self, count, *, is_local, stripe=None):
        self.loop = asyncio.get_running_loop()
        self.calls = 0
        self.logs: list[Any] = [Log() for _ in range(count)]
        merges: Any = None
        striped = stripe and GatewayStripe(
            "t",
            stripe,
            run_blocking=self.run_blocking,
            merges=merges,
            max_uncompressed_bytes=0,
            clock_ms=self.now_ms,
        )
        self.partitions = [
            GatewayPartition(
                "t",
                "id",
                number,
                log,
                run_blocking=self.run_blocking,
                budget=CacheBudget(0),
                clock_ms=self.now_ms,
                stripe=striped,
            )
            for number, log in enumerate(self.logs)
        ]
        for each in self.partitions:
            each.end_offset = 0
            each.on_checked()
        if striped:
            striped.checked_ms = self.now_ms()
        self.watch = TailWatch(
            self.run_blocking, self.now_ms, SuppressedErrors(), REMOTE, is_local=is_local
        )

    def now_ms(self):
        return self.loop.time() * 1000

    async def run_blocking(self, call, *arguments):
        self.calls += 1
        return call(*arguments)

    async def fetch(self, wait_s):
        """Wait as a fetch does; return whether a partition may have changed."""
        waiting = WaitingFetch()
        for each in self.partitions:
            each.add_waiting(waiting)
        assert not any(self.watch.is_neglected(each, self.now_ms()) for each in self.partitions)
        self.watch.watch(self.partitions)
        found = await waiting.wait(wait_s)
        for each in self.partitions:
            each.remove_waiting(waiting)
        return found

    async def fetch_for(self, seconds, wait_s=0.5):
        until_ms = self.now_ms() + seconds * 1000
        while self.now_ms() < until_ms:
            await self.fetch(wait_s)

    @property
    def probes(self):
        return sum(each.probes for each in self.logs)


def skipping_run(coroutine):
    selector = Skipping()
    loop: Any = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.mark.parametrize("wait_s", [0.05, 0.5, 5.0])
def test_partitions_at_rest_share_ten_requests_a_second_however_long_fetches_wait(wait_s):
    async def test():
        watched = Watched(40, is_local=False)
        await watched.fetch_for(20, wait_s)  # until all are at rest
        before = watched.probes
        await watched.fetch_for(100, wait_s)
        assert 900 <= watched.probes - before <= 1_100
        assert min(each.probes for each in watched.logs) >= 20
        watched.watch.close()

    skipping_run(test())


@pytest.mark.parametrize("wait_s", [0.05, 0.5, 5.0])
def test_partitions_of_a_stripe_share_one_request_a_second_however_long_fetches_wait(wait_s):
    async def test():
        stripe = Stripe(1_000)
        watched = Watched(1_000, is_local=False, stripe=stripe)
        await watched.fetch_for(20, wait_s)
        before = stripe.polls
        await watched.fetch_for(100, wait_s)
        assert 90 <= stripe.polls - before <= 110
        assert not watched.probes
        watched.watch.close()

    skipping_run(test())


def test_an_append_of_another_process_to_a_partition_of_a_stripe_ends_a_wait():
    async def test():
        stripe = Stripe(1_000)
        watched = Watched(1_000, is_local=False, stripe=stripe)
        await watched.fetch_for(30)
        stripe.ends[7] = 3
        began_ms = watched.now_ms()
        while not await watched.fetch(0.5):
            pass
        assert watched.now_ms() - began_ms <= 1_500
        found = [each.fetch_at_end(0, "read_committed") for each in watched.partitions]
        assert [number for number, each in enumerate(found) if each is None] == [7]
        assert watched.partitions[7].end_offset == 3
        polls = stripe.polls  # others may append again soon
        await watched.fetch(0.5)
        assert stripe.polls - polls >= 3
        watched.watch.close()

    skipping_run(test())


def test_a_stripe_that_cannot_be_read_is_probed_again():
    async def test():
        stripe = Stripe(2)
        watched = Watched(2, is_local=False, stripe=stripe)
        stripe.errors.append(StorageUnavailableError("down"))
        stripe.ends[1] = 5
        assert await watched.fetch(5)
        assert watched.partitions[1].end_offset == 5
        watched.watch.close()

    skipping_run(test())


def test_on_a_disk_partitions_share_calls_and_each_is_probed_within_two_seconds():
    async def test():
        watched = Watched(1_000, is_local=True)
        await watched.fetch_for(30)
        calls, probes = watched.calls, watched.probes
        await watched.fetch_for(40)
        assert watched.calls - calls <= 40 * 8
        assert watched.probes - probes >= 1_000 * 40 / 2.5
        watched.watch.close()

    skipping_run(test())


@pytest.mark.parametrize(("count", "is_local"), [(1, True), (1, False), (1_000, True)])
def test_an_append_of_another_process_ends_a_wait(count, is_local):
    async def test():
        watched = Watched(count, is_local=is_local)
        await watched.fetch_for(30)
        watched.logs[-1].end = 7
        began_ms = watched.now_ms()
        while not await watched.fetch(0.5):
            pass
        assert watched.now_ms() - began_ms <= 2_500
        watched.watch.close()

    skipping_run(test())


def test_a_partition_that_is_watched_later_is_probed_before_those_at_rest():
    async def test():
        watched = Watched(2, is_local=False)
        hot, rest = watched.partitions[0], watched.partitions[1]
        rest.changed_ms = -60_000.0
        waiting = WaitingFetch()
        for each in (rest, hot):
            each.add_waiting(waiting)
        watched.watch.watch([rest])
        watched.watch.watch([hot])
        watched.logs[0].end = 1
        assert await waiting.wait(0.5)
        assert [each.probes for each in watched.logs] == [1, 0]
        watched.watch.close()

    skipping_run(test())


def test_a_partition_that_nobody_has_waited_for_is_neglected_after_a_while():
    async def test():
        watched = Watched(1, is_local=True)
        await watched.fetch_for(10)
        await asyncio.sleep(1)
        assert not watched.watch.is_neglected(watched.partitions[0], watched.now_ms())
        await asyncio.sleep(2)
        assert watched.watch.is_neglected(watched.partitions[0], watched.now_ms())
        watched.watch.close()

    skipping_run(test())
