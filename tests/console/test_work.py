"""Requests are bounded in time and number, and stop when nobody waits for them."""

import asyncio
import threading

import pytest
from starlette.exceptions import HTTPException

from spark_log.console.budget import Budget, RequestCancelledError
from spark_log.console.work import Workers
from spark_log.errors import KafkaTimeoutError
from spark_log.util.clock import SYSTEM_CLOCK
from tests.waiting import wait_until


class Client:
    """The request of a client that can go."""

    def __init__(self):
        self.is_gone = asyncio.Event()

    async def receive(self):
        await self.is_gone.wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def workers():
    made = Workers(SYSTEM_CLOCK, count=2, timeout_ms=200, name="test")
    yield made
    made.close()


def working(started, ended):
    """Return work that goes on until its budget stops it."""

    def work(budget):
        started.set()
        try:
            while True:
                budget.check()
        finally:
            ended.set()

    return work


def test_a_budget_ends_with_its_time(clock):
    budget = Budget(clock, 1000)
    clock.advance_ms(999)
    budget.check()
    clock.advance_ms(1)
    with pytest.raises(KafkaTimeoutError, match="longer than 1 s"):
        budget.check()


def test_a_cancelled_budget_interrupts_what_runs(clock):
    budget, interrupted = Budget(clock, 1000), []
    with budget.interrupting(lambda: interrupted.append(1)):
        budget.cancel()
    assert interrupted == [1]
    with pytest.raises(RequestCancelledError):
        budget.check()


def test_work_is_answered_at_its_time_limit_and_stops(workers):
    started, ended = threading.Event(), threading.Event()

    async def ask():
        await workers.run(Client(), working(started, ended))

    with pytest.raises(KafkaTimeoutError):
        asyncio.run(ask())
    assert ended.wait(5)


def test_work_stops_when_the_client_goes(workers):
    started, ended = threading.Event(), threading.Event()
    workers._timeout_ms = 60_000  # noqa: SLF001 - the client is what ends it

    async def ask():
        client = Client()
        asked = asyncio.ensure_future(workers.run(client, working(started, ended)))
        await asyncio.to_thread(started.wait)
        client.is_gone.set()
        await asked

    with pytest.raises(RequestCancelledError):
        asyncio.run(ask())
    assert ended.wait(5)


def test_too_many_requests_are_refused_until_one_ends(workers):
    free = threading.Event()

    async def ask():
        held = [
            asyncio.ensure_future(workers.run(Client(), lambda _: free.wait(5))) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="503"):
            await workers.run(Client(), lambda _: None)
        free.set()
        return await asyncio.gather(*held)

    workers._timeout_ms = 60_000  # noqa: SLF001 - nothing here is slow
    assert asyncio.run(ask()) == [True, True]

    def is_answered():
        try:
            return asyncio.run(again()) == "done"
        except HTTPException:
            return False

    async def again():
        return await workers.run(Client(), lambda _: "done")

    wait_until(is_answered)


def test_a_stream_waits_for_a_slow_client_and_stops_when_it_goes(workers):
    sent, ended = [], threading.Event()
    workers._timeout_ms = 60_000  # noqa: SLF001 - the client is what ends it

    def work(_, emit):
        try:
            while True:
                emit(b"piece")
                sent.append(1)
        finally:
            ended.set()

    async def ask():
        client = Client()
        pieces = workers.stream(client, work)
        assert await anext(pieces) == b"piece"
        client.is_gone.set()
        async for _ in pieces:
            pass

    asyncio.run(ask())
    assert ended.wait(5)
    assert len(sent) < 20


def test_an_error_of_a_stream_cuts_it_short(workers):
    def work(_, emit):
        emit(b"piece")
        raise ValueError("broken")

    async def ask():
        return [piece async for piece in workers.stream(Client(), work)]

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ask())
