"""The memory of requests: what is taken, who waits, and who goes on."""

import asyncio

from spark_log.gateway.request_memory import RequestMemory, ReservedMemory


class Frames:
    """Requests that arrive, with the names of those that got their memory after a wait."""

    def __init__(self, limit_bytes):
        self.memory = RequestMemory(limit_bytes)
        self.admitted = []

    def begin(self, name, size_bytes):
        return ReservedMemory(self.memory, size_bytes, lambda: self.admitted.append(name))

    def complete(self, name, size_bytes):
        frame = self.begin(name, size_bytes)
        assert frame.grow(size_bytes)
        frame.arrived()
        return frame


def test_a_request_takes_only_what_has_arrived():
    frames = Frames(1000)
    slow = [frames.begin(f"slow-{number}", 1_000_000) for number in range(10)]
    assert all(frame.grow(10) for frame in slow)
    assert frames.memory.used_bytes == 100
    quick = frames.complete("quick", 300)
    assert frames.memory.used_bytes == 400
    for frame in (*slow, quick):
        frame.release()
    assert frames.memory.used_bytes == frames.memory.arriving_bytes == 0


def test_requests_that_are_not_complete_take_at_most_half_but_for_one():
    frames = Frames(1000)
    first, second = frames.begin("first", 400), frames.begin("second", 400)
    third = frames.begin("third", 400)
    assert first.grow(250)
    assert second.grow(250)
    assert third.grow(10), "one may exceed the half, and gets all of it"
    assert third.size_bytes == 400
    assert not first.grow(300)
    assert not second.grow(300)
    third.arrived()
    assert frames.admitted == ["first"]
    assert (first.size_bytes, frames.memory.arriving_bytes) == (400, 650)
    first.arrived()
    third.release()
    first.release()
    assert frames.admitted == ["first", "second"]
    second.arrived()
    second.release()
    assert frames.memory.used_bytes == frames.memory.arriving_bytes == 0


def test_requests_that_wait_go_on_in_turn_also_past_one_that_is_given_up():
    frames = Frames(100)
    running = frames.complete("running", 90)
    waiting = [frames.begin(name, 60) for name in "abc"]
    assert not any(frame.grow(60) for frame in waiting)
    waiting[0].release()
    running.release()
    assert frames.admitted == ["b"]
    waiting[1].arrived()
    assert frames.admitted == ["b"], "complete requests have more than the half"
    waiting[1].release()
    assert frames.admitted == ["b", "c"]
    waiting[2].release()
    assert frames.memory.used_bytes == 0
    assert not frames.memory.has_waiting


def test_a_request_larger_than_the_limit_is_admitted_alone():
    frames = Frames(100)
    huge = frames.complete("huge", 1000)
    other = frames.begin("other", 10)
    assert not other.grow(10)
    huge.release()
    assert frames.admitted == ["other"]


def test_many_that_wait_go_on_without_recursion():
    frames = Frames(100)
    running = frames.complete("running", 100)
    ended = []

    def begin():
        def end():
            ended.append(frame)
            frame.arrived()
            frame.release()

        frame = ReservedMemory(frames.memory, 60, end)
        assert not frame.grow(60)

    for _ in range(5000):
        begin()
    running.release()
    assert len(ended) == 5000
    assert frames.memory.used_bytes == 0


def test_an_answer_waits_for_its_memory_and_no_longer_than_it_may():
    async def test():
        frames = Frames(100)
        first, second = frames.complete("first", 10), frames.complete("second", 10)
        assert await first.reserve(70, 0)
        assert not await second.reserve(70, 0)
        assert not await second.reserve(70, 0.001)
        assert not frames.memory.has_waiting
        waiting = asyncio.create_task(second.reserve(70, 60))
        await asyncio.sleep(0)
        first.change(-60)
        assert await waiting
        assert frames.memory.used_bytes == 100
        first.release()
        second.release()
        assert frames.memory.used_bytes == 0

    asyncio.run(test())


def test_an_answer_whose_client_leaves_while_it_waits_takes_nothing():
    async def test():
        frames = Frames(100)
        first, second = frames.complete("first", 90), frames.complete("second", 10)
        waiting = asyncio.create_task(second.reserve(70, 60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        first.release()
        second.release()
        assert frames.memory.used_bytes == 0
        assert not frames.memory.has_waiting

    asyncio.run(test())


def test_memory_is_kept_after_the_answer_as_long_as_the_request_is_used():
    async def test():
        frames = Frames(100)
        request = frames.complete("request", 90)
        append = asyncio.get_running_loop().create_future()
        request.keep_until(append)
        request.release()
        assert frames.memory.used_bytes == 90
        append.set_result(None)
        await asyncio.sleep(0)
        assert frames.memory.used_bytes == 0

    asyncio.run(test())
