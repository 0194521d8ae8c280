"""A group job with a fake member and a fake processor."""

import threading

import pytest

from spark_log import KafkaTimeoutError, TopicPartition
from spark_log.jobs.group import group_job
from spark_log.jobs.group.group_job import BatchResult, GroupJob
from spark_log.jobs.group.job_member import Batch, BatchAbortedError

P0 = TopicPartition("t", 0)
LIMIT_S = 120


class FakeMember:
    """A member with one partition, and a number of batches of ten offsets."""

    def __init__(self, batches, lost=()):
        self.left, self.position, self.lost = batches, 0, frozenset(lost)
        self.events, self.lives = [], 0
        self.is_expelled = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.events.append("left")

    def join(self):
        self.events.append("joined")

    def next_batch(self):
        end = self.position + (10 if self.left else 0)
        return Batch({P0: self.position}, {P0: end}, {"t": "id"}, "range"), True

    def commit(self, batch, reached):
        self.events.append(dict(reached))
        self.left -= 1
        self.position = reached[P0]
        return self.lost

    def keep_alive(self):
        self.lives += 1
        return not self.is_expelled

    def wait(self, timeout_s):
        pass


class FakeProcessor:
    """Counts its calls; a batch ends when the test allows it."""

    def __init__(self, *, waits=False, error=None):
        self.may_end = threading.Event()
        self.is_given_up = False
        self.error = error
        self.counted = 0
        self.asked = 0
        if not waits:
            self.may_end.set()

    def run(self, batch):
        assert self.may_end.wait(LIMIT_S)
        if self.error or self.is_given_up:
            raise self.error or RuntimeError("cancelled")
        return BatchResult(batch.ends, batch.size, batch.size, 1)

    def progress(self):
        self.asked += 1
        return self.counted

    def cancel(self):
        self.is_given_up = True
        self.may_end.set()


class Stop:
    """A stop flag that calls a function."""

    def __init__(self, when=lambda: False):
        self.is_set = when


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(group_job, "_POLL_S", 0.001)
    monkeypatch.setattr(group_job, "_PROGRESS_CHECK_S", 0.0)


def job(member, processor, clock, stop=None):
    return GroupJob(member, processor, clock, stop=stop or Stop(), max_poll_interval_ms=1_000)


def test_it_joins_works_commits_and_leaves(clock):
    member = FakeMember(2)
    stats = job(member, FakeProcessor(), clock).run()
    assert member.events == ["joined", {P0: 10}, {P0: 20}, "left"]
    assert (stats.batches, stats.records, stats.skipped) == (2, 20, 2)
    assert stats.committed == {P0: 20}
    assert stats.lost == set()


def test_what_went_to_others_is_told_and_the_job_goes_on(clock, caplog):
    stats = job(FakeMember(2, lost=[P0]), FakeProcessor(), clock).run()
    assert stats.lost == {P0}
    assert "t-0 went to other members" in caplog.text


def test_a_batch_that_its_commit_aborts_counts_nothing_and_the_job_goes_on(clock, caplog):
    aborts = iter([BatchAbortedError(frozenset([P0]))])

    class AbortingFirst(FakeMember):
        def commit(self, batch, reached):
            for error in aborts:
                raise error
            return super().commit(batch, reached)

    member = AbortingFirst(2)
    stats = job(member, FakeProcessor(), clock).run()
    assert member.events == ["joined", {P0: 10}, {P0: 20}, "left"]
    assert (stats.batches, stats.records, stats.written) == (2, 20, 20)
    assert stats.lost == {P0}
    assert (
        "t-0 went to other members while a batch was written: the batch was aborted" in caplog.text
    )


def test_what_a_batch_raises_ends_the_job_and_nothing_is_committed(clock):
    member = FakeMember(2)
    with pytest.raises(OSError, match="disk full"):
        job(member, FakeProcessor(error=OSError("disk full")), clock).run()
    assert member.events == ["joined", "left"]


def test_a_batch_that_is_at_work_when_it_is_time_to_stop_is_given_up(clock):
    member, processor = FakeMember(2), FakeProcessor(waits=True)
    stop = Stop(lambda: processor.asked > 3)
    stats = job(member, processor, clock, stop).run()
    assert processor.is_given_up
    assert member.events == ["joined", "left"]
    assert stats.records == 0


def test_a_long_batch_that_gets_on_shows_life(clock, monkeypatch):
    member, processor = FakeMember(1), FakeProcessor(waits=True)

    def progress():
        clock.advance_ms(900)
        processor.asked += 1
        if processor.asked == 20:
            processor.may_end.set()
        return processor.asked

    monkeypatch.setattr(processor, "progress", progress)
    assert job(member, processor, clock).run().records == 10
    assert member.lives >= 19


def test_a_batch_of_a_job_that_is_no_member_any_more_is_given_up_and_the_job_goes_on(
    clock, monkeypatch
):
    member, processor = FakeMember(1), FakeProcessor(waits=True)
    member.is_expelled = True
    run = processor.run

    def running(batch):
        if processor.is_given_up:
            processor.is_given_up, member.is_expelled = False, False
        return run(batch)

    def progress():
        processor.asked += 1
        return processor.asked

    monkeypatch.setattr(processor, "run", running)
    monkeypatch.setattr(processor, "progress", progress)
    stats = job(member, processor, clock).run()
    assert stats.lost == {P0}
    assert member.events == ["joined", {P0: 10}, "left"]
    assert stats.records == 10


def test_a_batch_that_stands_still_for_max_poll_interval_is_given_up(clock, monkeypatch):
    member, processor = FakeMember(1), FakeProcessor(waits=True)

    def progress():
        clock.advance_ms(300)
        return "the same"

    monkeypatch.setattr(processor, "progress", progress)
    with pytest.raises(KafkaTimeoutError, match=r"made no progress for 1 s, more than max\.poll"):
        job(member, processor, clock).run()
    assert processor.is_given_up
    assert member.lives == 1, "only the progress at the start"
    assert member.events == ["joined", "left"]
