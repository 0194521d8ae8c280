"""The asyncio producer: the calls of a `Producer`, awaited, and safe to cancel."""

import asyncio
import inspect
import threading
from unittest.mock import Mock

import pytest

from spark_log import AIOProducer, Producer, StorageError
from spark_log.storage.local import LocalStore
from tests.producer.support import new_root, values

PATIENCE_S = 30


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, "weather")


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def test_has_every_method_of_a_producer():
    def methods(of):
        return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if name[0] != "_"}

    assert methods(AIOProducer) - methods(Producer) == {"start", "send_and_wait"}
    assert methods(Producer) <= methods(AIOProducer)


def hanging(monkeypatch):
    """Make appends hang; return two events: one hangs, and all may continue."""
    hangs, may_go_on = threading.Event(), threading.Event()
    put_if_absent = LocalStore.put_if_absent

    def hang(*given, **how):
        hangs.set()
        assert may_go_on.wait(PATIENCE_S)
        put_if_absent(*given, **how)

    monkeypatch.setattr(LocalStore, "put_if_absent", hang)
    return hangs, may_go_on


def test_after_a_cancelled_flush_the_producer_is_not_stuck(root, monkeypatch):
    async def cancel():
        async with AIOProducer(root) as producer:
            hangs, may_go_on = hanging(monkeypatch)
            first = await producer.send("weather", b"a")
            flush = asyncio.create_task(producer.flush())
            assert await asyncio.to_thread(hangs.wait, PATIENCE_S)
            flush.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flush
            second = await producer.send("weather", b"b")  # the append still hangs
            assert not first.done()
            may_go_on.set()
            await producer.flush()
            return [(await future).offset for future in (first, second)]

    assert run(cancel()) == [0, 1]


def test_a_cancelled_acknowledgement_cancels_no_record(root, monkeypatch):
    async def cancel():
        async with AIOProducer(root) as producer:
            hangs, may_go_on = hanging(monkeypatch)
            task = asyncio.create_task(producer.send_and_wait("weather", b"a"))
            assert await asyncio.to_thread(hangs.wait, PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_go_on.set()

    run(cancel())
    assert values(root, "weather") == {0: [b"a"]}


def test_the_failure_of_a_record_that_nobody_awaits_any_more_is_logged(root, caplog, monkeypatch):
    async def cancel():
        async with AIOProducer(root, linger_ms=0) as producer:
            refuse = Mock(side_effect=StorageError("read-only"))
            monkeypatch.setattr(LocalStore, "put_if_absent", refuse)
            acknowledgement = await producer.send("weather", b"a")
            acknowledgement.cancel()
            await producer.flush()

    run(cancel())
    (message,) = [each for each in caplog.messages if "cancelled" in each]
    assert message == "a record whose send was cancelled has failed: read-only"


def test_a_send_that_waits_for_room_is_cancelled_and_close_does_not_wait_for_it(
    root, caplog, monkeypatch
):
    async def cancel():
        producer = AIOProducer(root, buffer_memory=1_000, batch_size=1_000, max_block_ms=3_600_000)
        await producer.start()
        hangs, may_go_on = hanging(monkeypatch)
        first = await producer.send("weather", b"a" * 900)
        assert await asyncio.to_thread(hangs.wait, PATIENCE_S)
        blocked = asyncio.create_task(producer.send("weather", b"b" * 900))
        while not (await producer_metrics(producer))["waiting-threads"]:
            await asyncio.sleep(0)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        await producer.close(timeout=0)
        assert type(first.exception()).__name__ == "UnknownOutcomeError"
        may_go_on.set()
        return producer

    # `close` with a timeout of 0 does not wait for the thread, which logs what it left.
    run(cancel())._thread._executor.shutdown()  # noqa: SLF001
    assert "a cancelled call of a producer has failed: producer-" in caplog.text


async def producer_metrics(producer):
    """The metrics of a producer whose thread is blocked by a `send`."""
    client = producer._thread.client  # noqa: SLF001
    return client.metrics()["producer-metrics"]


def test_a_cancelled_with_block_closes_the_producer(root):
    async def cancel():
        producer = AIOProducer(root)
        opening = asyncio.create_task(producer.__aenter__())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await producer.close()  # waits for the one in the background
        client = producer._thread.client  # noqa: SLF001
        return client is None or client._runtime.accumulator.is_closing  # noqa: SLF001

    assert run(cancel())
