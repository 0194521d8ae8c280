"""A group's job, batch after batch, with a share and work that are told what to do."""

import threading

import pytest

from spark_log import KafkaTimeoutError, TopicPartition
from spark_log.jobs import group_job
from spark_log.jobs.group_job import Done, GroupJob
from spark_log.jobs.group_share import Batch

P0 = TopicPartition("t", 0)
LIMIT_S = 120


class Share:
    """Has a partition with so many batches of ten offsets."""

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

    def show_life(self):
        self.lives += 1
        return not self.is_expelled

    def wait(self, timeout_s):
        pass


class Work:
    """Does a batch when it may; counts."""

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
        return Done(batch.ends, batch.size, batch.size, 1)

    def progress(self):
        self.asked += 1
        return self.counted

    def give_up(self):
        self.is_given_up = True
        self.may_end.set()


class Stop:
    """Told to by a function."""

    def __init__(self, when=lambda: False):
        self.is_told = when


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(group_job, "_LOOK_S", 0.001)
    monkeypatch.setattr(group_job, "_LIFE_S", 0.0)


def job(share, work, clock, stop=None):
    return GroupJob(share, work, clock, stop=stop or Stop(), max_poll_interval_ms=1_000)


def test_it_joins_works_commits_and_leaves(clock):
    share = Share(2)
    tally = job(share, Work(), clock).run()
    assert share.events == ["joined", {P0: 10}, {P0: 20}, "left"]
    assert (tally.batches, tally.records, tally.skipped) == (2, 20, 2)
    assert tally.committed == {P0: 20}
    assert tally.lost == set()


def test_what_went_to_others_is_told_and_the_job_goes_on(clock, caplog):
    tally = job(Share(2, lost=[P0]), Work(), clock).run()
    assert tally.lost == {P0}
    assert "t-0 went to other members" in caplog.text


def test_what_a_batch_raises_ends_the_job_and_nothing_is_committed(clock):
    share = Share(2)
    with pytest.raises(OSError, match="disk full"):
        job(share, Work(error=OSError("disk full")), clock).run()
    assert share.events == ["joined", "left"]


def test_a_batch_that_is_at_work_when_it_is_time_to_stop_is_given_up(clock):
    share, work = Share(2), Work(waits=True)
    stop = Stop(lambda: work.asked > 3)
    tally = job(share, work, clock, stop).run()
    assert work.is_given_up
    assert share.events == ["joined", "left"]
    assert tally.records == 0


def test_a_long_batch_that_gets_on_shows_life(clock):
    share, work = Share(1), Work(waits=True)

    def progress():
        clock.advance_ms(900)
        work.asked += 1
        if work.asked == 20:
            work.may_end.set()
        return work.asked

    work.progress = progress
    assert job(share, work, clock).run().records == 10
    assert share.lives >= 19


def test_a_batch_of_a_job_that_is_no_member_any_more_is_given_up_and_the_job_goes_on(clock):
    share, work = Share(1), Work(waits=True)
    share.is_expelled = True
    run = work.run

    def running(batch):
        if work.is_given_up:
            work.is_given_up, share.is_expelled = False, False
        return run(batch)

    def progress():
        work.asked += 1
        return work.asked

    work.run, work.progress = running, progress
    tally = job(share, work, clock).run()
    assert tally.lost == {P0}
    assert share.events == ["joined", {P0: 10}, "left"]
    assert tally.records == 10


def test_a_batch_that_stands_still_for_max_poll_interval_is_given_up(clock):
    share, work = Share(1), Work(waits=True)

    def progress():
        clock.advance_ms(300)
        return "the same"

    work.progress = progress
    with pytest.raises(KafkaTimeoutError, match=r"stood still for 1 s, more than max\.poll"):
        job(share, work, clock).run()
    assert work.is_given_up
    assert share.lives == 1, "only what it had done before it stood still"
    assert share.events == ["joined", "left"]
