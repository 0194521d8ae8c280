"""The asyncio clients: the same methods as coroutines; a cancelled call loses no record."""

import asyncio
import inspect

import pytest

from spark_log import (
    AIOConsumer,
    AIOProducer,
    Consumer,
    IllegalStateError,
    InvalidConfigurationError,
    WakeupError,
)
from tests.consumer.support import PATIENCE_MS, T0, append, numbered, values_of


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_MS / 1000))


def settings(root, **more):
    return {"root": root, "auto_offset_reset": "earliest", **more}


def test_produces_and_consumes(root):
    async def both():
        async with AIOProducer(root) as producer, AIOConsumer("t", **settings(root)) as consumer:
            futures = [await producer.send("t", value) for value in numbered(0, 3)]
            acknowledged = await asyncio.gather(*futures)
            assert [each.offset for each in acknowledged] == [0, 1, 2]
            assert (await producer.send_and_wait("t", b"3", key=b"k")).offset == 3
            found: list[bytes] = []
            while len(found) < 4:
                found += values_of(await consumer.poll(PATIENCE_MS))
            assert found == numbered(0, 4)
            assert await consumer.position(T0) == 4
            assert await producer.partitions_for("t") == {0}
            await producer.flush()

    run(both())


def test_a_loop_over_a_consumer_gets_its_records(root):
    append(root, numbered(0, 5))

    async def iterate():
        async with AIOConsumer("t", **settings(root)) as consumer:
            found = [(await anext(consumer)).value for _ in range(5)]
        async with AIOConsumer("t", root=root, consumer_timeout_ms=50) as at_the_end:
            return found, [record async for record in at_the_end]

    assert run(iterate()) == (numbered(0, 5), [])


def test_the_loop_goes_on_while_a_poll_waits(root):
    async def wait_and_append():
        async with AIOConsumer("t", **settings(root)) as consumer:
            poll = asyncio.create_task(consumer.poll(PATIENCE_MS))
            await asyncio.to_thread(append, root, [b"0"])
            return values_of(await poll)

    assert run(wait_and_append()) == [b"0"]


@pytest.mark.parametrize("kind", ["poll", "poll_table", "__anext__"])
def test_a_cancelled_poll_loses_nothing(root, kind):
    async def cancel_again_and_again():
        found = []
        async with AIOConsumer("t", **settings(root, max_poll_records=5)) as consumer:
            for round_ in range(30):
                call = getattr(consumer, kind)
                poll = asyncio.create_task(call() if kind == "__anext__" else call(1_000))
                append(root, [b"%d" % round_])
                for _ in range(round_ % 7):
                    await asyncio.sleep(0)
                poll.cancel()
                try:
                    result = await poll
                except asyncio.CancelledError:
                    continue
                found += _values(result)
            while len(found) < 30:
                found += values_of(await consumer.poll(PATIENCE_MS))
        return found

    assert run(cancel_again_and_again()) == numbered(0, 30)


def _values(result):
    if isinstance(result, dict):
        return values_of(result)
    return [result.value] if hasattr(result, "value") else result.column("value").to_pylist()


def test_errors_are_raised_where_they_are_awaited(root, tmp_path):
    async def fail():
        async with AIOConsumer(**settings(root)) as consumer:
            with pytest.raises(IllegalStateError, match="subscribe"):
                await consumer.poll()
            await consumer.assign([T0])
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await consumer.poll()
        with pytest.raises(IllegalStateError, match="closed"):
            await consumer.poll()
        await consumer.close()
        with pytest.raises(InvalidConfigurationError, match="unknown consumer config 'rot'"):
            await AIOConsumer("t", rot=tmp_path).start()  # type: ignore[call-arg]
        producer = AIOProducer(root)
        await producer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await producer.send("t", b"")

    run(fail())


def test_has_every_method_of_a_consumer():
    ours = {name for name in dir(AIOConsumer) if not name.startswith("_")}
    theirs = {
        name
        for name, value in inspect.getmembers(Consumer, inspect.isfunction)
        if not name.startswith("_")
    }
    left_out = {"commit_async"}  # commit is awaited already
    assert theirs - ours == left_out


def test_a_consumers_repr_tells_root_and_assignment(root):
    async def tell():
        consumer = AIOConsumer("t", **settings(root))
        before = repr(consumer)
        async with consumer:
            await consumer.poll()
            return before, repr(consumer)

    opened = f"<AIOConsumer root={root!r} assignment=[t-0]>"
    assert run(tell()) == ("<AIOConsumer, not started>", opened)
