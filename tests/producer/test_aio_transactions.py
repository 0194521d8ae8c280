"""Transactions of the asyncio producer: awaited, and safe to cancel at any moment."""

import asyncio
import threading

import pytest

from spark_log import (
    AIOProducer,
    ConsumerGroupMetadata,
    IllegalStateError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    StorageError,
    TopicPartition,
    TransactionAbortableError,
)
from spark_log.storage.local import LocalStore
from tests.producer.support import committed, new_root

PATIENCE_S = 60


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("t", 2))


@pytest.fixture
def gate(monkeypatch):
    """Holds up all puts while it is shut."""
    return Gate(monkeypatch)


class Gate:
    def __init__(self, monkeypatch):
        self.is_reached, self._is_open = threading.Event(), threading.Event()
        self._is_open.set()
        self._errors: list[Exception] = []
        put_if_absent = LocalStore.put_if_absent

        def put(*given, **how):
            if not self._is_open.is_set():
                self.is_reached.set()
            assert self._is_open.wait(PATIENCE_S)
            if self._errors:
                raise self._errors.pop()
            put_if_absent(*given, **how)

        monkeypatch.setattr(LocalStore, "put_if_absent", put)

    def shut(self):
        self.is_reached.clear()
        self._is_open.clear()

    def open(self):
        self._is_open.set()

    def fail(self, error):
        """Let the put that is held up fail, and open."""
        self._errors.append(error)
        self.open()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


async def cancelled(task):
    """Cancel a task, and wait for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_commits_aborts_and_goes_on(root):
    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            with pytest.raises(IllegalStateError, match="call init_transactions first"):
                await producer.begin_transaction()
            await producer.init_transactions()
            async with producer.transaction() as inside:
                assert inside is producer
                await producer.send("t", b"a", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"b", partition=0)
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send("t", b"c", partition=1)
            await producer.commit_transaction()

    run(use())
    assert committed(root, "t") == {0: [b"a"], 1: [b"c"]}


def test_a_body_that_raises_or_a_record_that_fails_is_aborted(root):
    async def raise_in(producer):
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
            raise KeyError

    async def fail_in(producer):
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
            await producer.send("t", b"x" * 2_000_000)

    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            with pytest.raises(KeyError):
                await raise_in(producer)
            with pytest.raises(TransactionAbortableError):
                await fail_in(producer)
            async with producer.transaction():
                await producer.send("t", b"c", partition=0)

    run(use())
    assert committed(root, "t") == {0: [b"c"], 1: []}


def test_a_cancelled_body_is_aborted(root):
    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            is_sent = asyncio.Event()

            async def body():
                async with producer.transaction():
                    await producer.send_and_wait("t", b"a", partition=0)
                    is_sent.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(body())
            await is_sent.wait()
            await cancelled(task)
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)

    run(use())
    assert committed(root, "t") == {0: [b"b"], 1: []}


@pytest.mark.parametrize("steps", range(6))
def test_a_transaction_that_is_cancelled_when_it_begins_is_not_open_after(root, steps):
    """Whether its begin was withdrawn or has happened."""

    async def body(producer):
        async with producer.transaction():
            await asyncio.Event().wait()

    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            task = asyncio.create_task(body(producer))
            for _ in range(steps):
                await asyncio.sleep(0)
            await cancelled(task)
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)

    run(use())
    assert committed(root, "t")[0] == [b"a"]


def test_a_cancelled_begin_leaves_the_transaction_of_another_task_open(root):
    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
                task = asyncio.create_task(producer.transaction().__aenter__())
                await asyncio.sleep(0)
                await cancelled(task)

    run(use())
    assert committed(root, "t")[0] == [b"a"]


def test_a_commit_that_is_cancelled_or_late_continues_and_tells_its_outcome_when_asked_again(
    root, gate
):
    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            gate.shut()
            await producer.send("t", b"a", partition=0)
            task = asyncio.create_task(producer.commit_transaction())
            assert await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            await cancelled(task)
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0)
            with pytest.raises(IllegalStateError, match="call commit_transaction again"):
                await producer.begin_transaction()
            assert await producer.partitions_for("t") == {0, 1}  # no thread is held up
            gate.open()
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()

    run(use())
    assert committed(root, "t")[0] == [b"a"]


def test_an_error_of_a_cancelled_commit_is_told_when_asked_again(root, gate):
    async def use():
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"a", partition=0)
            gate.shut()
            task = asyncio.create_task(producer.commit_transaction())
            assert await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            await cancelled(task)
            gate.fail(StorageError("read-only"))
            with pytest.raises(StorageError, match="read-only"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    run(use())
    assert committed(root, "t")[0] == []


def test_offsets_are_sent_in_a_transaction(root):
    async def use():
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
        async with AIOProducer(root, transactional_id="id") as producer:
            await producer.init_transactions()
            with pytest.raises(IllegalStateError, match="call begin_transaction first"):
                await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
            await producer.abort_transaction()

    run(use())
