"""The threads of a gateway: calls that block, and short ones, which share a thread."""

import asyncio
import threading

import pytest

from spark_log.gateway import blocking_pool
from spark_log.gateway.blocking_pool import BlockingPool


def with_pool(test, threads=2):
    async def run():
        pool = BlockingPool(threads, name="pool")
        try:
            await test(pool)
        finally:
            assert pool.close(60)

    asyncio.run(run())


def thread_name():
    return threading.current_thread().name


def fail():
    raise KeyError("failed")


async def both(*awaited):
    return await asyncio.gather(*awaited)


def test_short_calls_share_a_thread_and_keep_their_order():
    async def test(pool):
        order = []
        calls = [pool.run_short(lambda number=number: order.append(number)) for number in range(50)]
        names = [pool.run_short(thread_name) for _ in range(2)]
        await both(*calls)
        assert order == list(range(50))
        assert await both(*names) == ["pool-short"] * 2
        assert await pool.run(thread_name) == "pool"

    with_pool(test)


@pytest.mark.parametrize("kind", ["run", "run_short"])
def test_an_error_of_a_call_is_raised_and_the_next_call_runs(kind):
    async def test(pool):
        run = getattr(pool, kind)
        with pytest.raises(KeyError, match="failed"):
            await run(fail)
        assert await run(lambda: 5) == 5

    with_pool(test)


def test_calls_behind_a_short_one_that_hangs_are_run_by_other_threads(monkeypatch):
    monkeypatch.setattr(blocking_pool, "_PATIENCE_S", 0.01)

    async def test(pool):
        may_end, has_begun = threading.Event(), threading.Event()

        def hang():
            has_begun.set()
            return may_end.wait(60)

        before = [asyncio.ensure_future(pool.run_short(thread_name)) for _ in range(3)]
        hanging = asyncio.ensure_future(pool.run_short(hang))
        behind = [asyncio.ensure_future(pool.run_short(thread_name)) for _ in range(3)]
        assert await both(*before) == ["pool-short"] * 3
        assert await both(*behind) == ["pool"] * 3
        assert has_begun.is_set()
        assert await pool.run_short(thread_name) == "pool", "it does not wait behind the call"
        assert not hanging.done()
        may_end.set()
        assert await hanging
        assert await pool.run_short(thread_name) == "pool-short"

    with_pool(test)


def test_a_pool_is_not_closed_while_a_short_call_hangs():
    async def test(pool):
        may_end = threading.Event()
        hanging = asyncio.ensure_future(pool.run_short(may_end.wait, 60))
        await asyncio.sleep(0)
        assert not pool.close(0)
        may_end.set()
        assert await hanging

    with_pool(test)


def test_a_short_call_whose_await_was_cancelled_is_not_begun():
    async def test(pool):
        may_end = threading.Event()
        called: list[int] = []
        first = asyncio.ensure_future(pool.run_short(may_end.wait, 60))
        second = asyncio.ensure_future(pool.run_short(called.append, 2))
        third = asyncio.ensure_future(pool.run_short(called.append, 3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        may_end.set()
        await both(first, third)
        assert called == [3]

    with_pool(test)
