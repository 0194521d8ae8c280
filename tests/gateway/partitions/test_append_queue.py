"""Group commit: what waits during an append is the next one, in the order of requests."""

import asyncio

import pytest

from spark_log.gateway.partitions import append_queue
from spark_log.gateway.partitions.append_queue import AppendQueue
from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult


class Appends:
    """Appends that end when a test says so."""

    def __init__(self):
        self.groups = []
        self.settled = []
        self.may_end = asyncio.Semaphore(0)
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        self.queue = AppendQueue(self.append, self.settle)

    async def append(self, produced):
        self.groups.append([bytes(each.data).decode() for each in produced])
        await self.may_end.acquire()
        for each in produced:
            each.result = ProduceResult(base_offset=len(self.groups))

    async def settle(self):
        await self.may_settle.wait()
        self.settled.append(len(self.groups))

    def put(self, name, **how):
        produced = ProducedBatch(memoryview(name.encode()), **how)
        return produced, self.queue.put(produced)


async def nothing_left():
    pass


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def run(test):
    asyncio.run(test())


def test_the_first_batch_is_appended_at_once_and_those_behind_it_together():
    async def test():
        appends = Appends()
        futures = [appends.put("a")[1]]
        await settle()
        futures += [appends.put(name)[1] for name in "bcd"]
        await settle()
        assert appends.groups == [["a"]]
        appends.may_end.release()
        await settle()
        assert appends.groups == [["a"], ["b", "c", "d"]]
        appends.may_end.release()
        assert [(await each).base_offset for each in futures] == [1, 2, 2, 2]

    run(test)


def test_an_unexpected_error_after_an_append_is_logged_and_the_next_batches_are_appended(caplog):
    async def test():
        appends = Appends()

        async def fail():
            raise KeyError("a fault of the program")

        appends.queue = AppendQueue(appends.append, fail, name="flights-0")
        first = appends.put("a")[1]
        await settle()
        waiting = [appends.put(name)[1] for name in "bc"]
        for _ in range(2):
            appends.may_end.release()
        assert (await first).base_offset == 1
        await settle()
        assert [each.done() and each.result().base_offset for each in waiting] == [2, 2]

    run(test)
    assert "flights-0" in caplog.text
    assert "a fault of the program" in caplog.text


def test_a_batch_that_an_append_forgot_is_an_error_of_its_append_and_of_no_other():
    async def test():
        appends = Appends()
        appended: list[object] = []

        async def append(produced):
            await appends.may_end.acquire()
            if appended:
                produced[0].result = ProduceResult(base_offset=1)
            appended.append(produced)

        appends.queue = AppendQueue(append, nothing_left)
        first = appends.put("a")[1]
        await settle()
        second = appends.put("b")[1]
        for _ in range(2):
            appends.may_end.release()
        await settle()
        assert isinstance(first.exception(), AssertionError)
        assert second.done()
        assert second.result().base_offset == 1

    run(test)


def test_what_is_left_to_do_after_an_append_is_done_after_its_answer_and_before_the_next_one():
    async def test():
        appends = Appends()
        appends.may_settle.clear()
        (_, first), (_, second) = (appends.put(name) for name in "ab")
        appends.may_end.release()
        await first
        third = appends.put("c")[1]
        await settle()
        assert appends.groups == [["a", "b"]]
        assert second.done()
        appends.may_settle.set()
        appends.may_end.release()
        await third
        await settle()
        assert (appends.groups, appends.settled) == ([["a", "b"], ["c"]], [1, 2])

    run(test)


def test_a_batch_is_withdrawn_unless_its_append_has_begun():
    async def test():
        appends = Appends()
        (_, first), (_, second), (_, third) = (appends.put(name) for name in "abc")
        await settle()
        (_, fourth) = appends.put("d")
        assert not appends.queue.withdraw(first)
        assert appends.queue.withdraw(fourth)
        assert not appends.queue.withdraw(fourth)
        appends.may_end.release()
        await settle()
        assert appends.groups == [["a", "b", "c"]]
        assert [each.done() for each in (first, second, third, fourth)] == [True] * 3 + [False]

    run(test)


def test_an_append_has_a_limit_of_bytes(monkeypatch):
    monkeypatch.setattr(append_queue, "MAX_GROUP_BYTES", 2)

    async def test():
        appends = Appends()
        for name in ("a", "b", "c", "long", "d"):
            appends.put(name)
        for _ in range(4):
            appends.may_end.release()
        await settle()
        assert appends.groups == [["a", "b"], ["c"], ["long"], ["d"]]

    run(test)


def test_a_batch_that_is_not_ready_holds_back_those_of_its_transactional_id():
    async def test():
        appends = Appends()
        first, _ = appends.put("t1", is_ready=False, transactional_id="t")
        appends.put("t2", transactional_id="t")
        appends.put("other", transactional_id="o")
        appends.put("plain")
        await settle()
        assert appends.groups == [["other", "plain"]]
        first.is_ready = True
        appends.may_end.release()
        await settle()
        assert appends.groups == [["other", "plain"], ["t1", "t2"]]

    run(test)


def test_an_append_waits_for_a_batch_that_becomes_ready():
    async def test():
        appends = Appends()
        only, _ = appends.put("t1", is_ready=False, transactional_id="t")
        await settle()
        assert not appends.groups
        only.is_ready = True
        appends.queue.wake()
        await settle()
        assert appends.groups == [["t1"]]

    run(test)


def test_an_error_is_raised_by_the_futures_of_its_append_alone():
    async def test():
        calls = []

        async def append(produced):
            calls.append(len(produced))
            if len(calls) == 1:
                raise OSError("down")
            for each in produced:
                each.result = ProduceResult()

        queue = AppendQueue(append, nothing_left)
        first = queue.put(ProducedBatch(memoryview(b"a")))
        await settle()
        second = queue.put(ProducedBatch(memoryview(b"b")))
        with pytest.raises(OSError, match="down"):
            await first
        assert (await second).error == 0

    run(test)
