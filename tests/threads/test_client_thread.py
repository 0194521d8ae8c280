"""The thread behind an asyncio client: order, and what a cancelled await leaves."""

import asyncio
import threading

import pytest

from spark_log import IllegalStateError, WakeupError
from spark_log.threads.client_thread import ClientThread

PATIENCE_S = 30


class Client:
    """Blocks in `wait` until it is released or interrupted, and remembers what was called."""

    def __init__(self):
        self.calls = []
        self.abandoned = []
        self.interrupts = []
        self.is_closed = False
        self.started = threading.Event()
        self.released = threading.Event()
        self.is_interruptible = True

    def note(self, name):
        self.calls.append(name)
        return name

    def wait(self, name, error=None):
        self.calls.append(name)
        self.started.set()
        assert self.released.wait(PATIENCE_S)
        if self.interrupts and self.is_interruptible:
            raise WakeupError("woken up")
        if error is not None:
            raise error
        return name

    def interrupt(self):
        self.interrupts.append(self.calls[-1])
        self.released.set()

    def close(self):
        self.is_closed = True


@pytest.fixture
def client():
    return Client()


def thread_of(client, **settings):
    return ClientThread(
        "client",
        lambda: client,
        on_abandoned=lambda _, result: client.abandoned.append(result),
        **settings,
    )


def interruptible(client):
    return thread_of(
        client, interrupt=Client.interrupt, clear_interrupt=lambda client: client.interrupts.clear()
    )


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


async def begun(thread, client, *args, **kwargs):
    """A task that awaits a call which is running on the thread."""
    task = asyncio.create_task(thread.call(lambda client: client.wait(*args, **kwargs)))
    assert await asyncio.to_thread(client.started.wait, PATIENCE_S)
    return task


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_calls_keep_their_order(client):
    async def call():
        thread = thread_of(client)
        calls = [thread.call(lambda client, at=at: client.note(at)) for at in range(20)]
        return await asyncio.gather(*calls)

    assert run(call()) == list(range(20)) == client.calls


def test_a_call_that_has_not_begun_is_withdrawn_and_disturbs_nobody(client):
    async def cancel():
        thread = interruptible(client)
        running = await begun(thread, client, "running")
        queued = asyncio.create_task(thread.call(lambda client: client.note("queued")))
        await asyncio.sleep(0)  # let it join the queue
        await cancelled(queued)
        client.released.set()
        assert await running == "running"
        assert await thread.call(lambda client: client.note("next")) == "next"

    run(cancel())
    assert client.calls == ["running", "next"]
    assert client.abandoned == []


def test_the_result_of_a_running_call_is_handed_over_before_the_next_call(client):
    async def cancel():
        thread = thread_of(client)
        await cancelled(await begun(thread, client, "running"))
        following = asyncio.create_task(thread.call(lambda client: list(client.abandoned)))
        client.released.set()
        return await following

    assert run(cancel()) == ["running"]


def test_a_result_that_was_not_delivered_yet_is_handed_over(client):
    async def cancel():
        thread = thread_of(client)
        task = await begun(thread, client, "running")
        client.released.set()
        barrier = thread._executor.submit(lambda: None)  # noqa: SLF001 - its thread is idle then
        barrier.result(PATIENCE_S)  # blocks the loop: the call has ended, and its task not seen it
        await cancelled(task)
        return await thread.call(lambda client: list(client.abandoned))

    assert run(cancel()) == ["running"]


def test_a_running_call_is_interrupted_and_the_next_call_is_not(client):
    async def cancel():
        thread = interruptible(client)
        await cancelled(await begun(thread, client, "running"))
        return await thread.call(lambda client: client.wait("next"))

    assert run(cancel()) == "next"
    assert client.abandoned == []


def test_an_interrupt_that_came_too_late_does_not_hit_the_next_call(client):
    client.is_interruptible = False

    async def cancel():
        thread = interruptible(client)
        await cancelled(await begun(thread, client, "running"))
        return await thread.call(lambda client: (list(client.interrupts), list(client.abandoned)))

    assert run(cancel()) == ([], ["running"])


def test_the_error_of_a_cancelled_call_is_logged(client, caplog):
    async def cancel():
        thread = thread_of(client)
        await cancelled(await begun(thread, client, "running", error=ValueError("seven")))
        client.released.set()
        await thread.call(lambda client: None)

    run(cancel())
    assert "a cancelled call of a client has failed: seven" in caplog.messages


def test_a_call_aside_keeps_nobody_waiting_even_if_it_is_cancelled(client):
    async def cancel():
        thread = thread_of(client)
        aside = asyncio.create_task(thread.call_aside(lambda client: client.wait("aside")))
        assert await asyncio.to_thread(client.started.wait, PATIENCE_S)
        assert await thread.call(lambda client: client.note("during")) == "during"
        await cancelled(aside)
        assert await thread.call(lambda client: client.note("after")) == "after"
        client.released.set()

    run(cancel())


class TestClose:
    def test_is_behind_the_calls_before_it_and_refuses_later_ones(self, client):
        async def close():
            thread = thread_of(client)
            running = await begun(thread, client, "running")
            closing = asyncio.create_task(thread.close(Client.close))
            await asyncio.sleep(0)
            assert not client.is_closed
            with pytest.raises(IllegalStateError, match="the client is closed"):
                await thread.call(lambda client: client.note("late"))
            client.released.set()
            assert await running == "running"
            await closing
            await thread.close(Client.close)

        run(close())
        assert client.is_closed

    def test_goes_on_when_it_is_cancelled_and_a_second_one_waits_for_it(self, client):
        async def close():
            thread = thread_of(client)
            running = await begun(thread, client, "running")
            closing = asyncio.create_task(thread.close(Client.close))
            await asyncio.sleep(0)
            await cancelled(closing)
            client.released.set()
            await thread.close(Client.close)
            assert client.is_closed
            await running

        run(close())

    def test_hands_over_the_result_of_a_call_that_is_cancelled_meanwhile_before_it_closes(
        self, client
    ):
        abandoned_at_close = []

        async def close():
            thread = thread_of(client)
            running = await begun(thread, client, "running")
            closing = asyncio.create_task(
                thread.close(lambda client: abandoned_at_close.extend(client.abandoned))
            )
            await asyncio.sleep(0)
            await cancelled(running)
            client.released.set()
            await closing

        run(close())
        assert abandoned_at_close == ["running"]

    def test_with_patience_does_not_wait_for_a_call_that_hangs(self, client):
        async def close():
            thread = thread_of(client)
            running = await begun(thread, client, "running")
            await thread.close(Client.close, patience_s=0)
            assert client.is_closed
            client.released.set()
            await running

        run(close())

    def test_without_a_client_makes_none(self):
        def fail():
            raise AssertionError("a client was made")

        thread = ClientThread("client", fail, on_abandoned=lambda client, result: None)
        run(thread.close(lambda client: None))
        assert thread.client is None

    def test_waits_for_a_client_that_is_being_made(self, client):
        may_be_made = threading.Event()

        def make():
            client.started.set()
            assert may_be_made.wait(PATIENCE_S)
            return client

        async def close():
            thread = ClientThread("client", make, on_abandoned=lambda client, result: None)
            start = asyncio.create_task(thread.call(lambda client: None))
            assert await asyncio.to_thread(client.started.wait, PATIENCE_S)
            await cancelled(start)
            closing = thread.close_soon(Client.close, patience_s=0)
            may_be_made.set()
            await asyncio.wrap_future(closing)

        run(close())
        assert client.is_closed
