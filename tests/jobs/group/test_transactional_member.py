"""Members of group jobs that commit offsets with their output, and task attempts, without Spark."""

import pytest

from spark_log import Admin, NewTopic, TransactionAbortableError
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.jobs.group.job_member import BatchAbortedError
from spark_log.jobs.group.job_transactions import JobTransactions
from spark_log.jobs.group.transactional_member import TransactionalMember
from spark_log.transaction import TransactionCoordinator
from tests.datasource import sink_support
from tests.datasource.sink_support import rows
from tests.datasource.streams import append
from tests.waiting import wait_until


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t`` of four partitions with ten records each, and ``out``."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=4), NewTopic("out")])
    for number in range(4):
        append(url, "t", number, range(10))
    return url


class Job:
    """A member with its transactions, whose tasks are attempts of the sink."""

    def __init__(self, root, transactional_id):
        self.root = root
        cluster = Cluster(root)
        options = parse_read_options({"path": root, "subscribe": "t", "group.id": "g"})
        config = ConsumerConfig.parse({"auto.offset.reset": "earliest", "retry.backoff.ms": "10"})
        self.transactions = JobTransactions(cluster, transactional_id, 60_000)
        self.member = TransactionalMember(self.transactions, cluster, options, config, follow=True)
        self.member.join()

    def batch(self, partitions):
        """Return the next batch, when it is of this number of partitions."""
        return wait_until(
            lambda: (b := self.member.next_batch()[0]) and len(b.starts) == partitions and b
        )

    def write(self, *numbers, counted=True):
        """Let a task of the batch write numbers."""
        owned = self.transactions.begin().to_json()
        return self.write_to(owned, *numbers, counted=counted)

    def write_to(self, owned, *numbers, counted=True):
        done = sink_support.attempt(self.root, [rows(numbers)], topic="out", joinTransaction=owned)
        if counted:
            self.transactions.count([done.joined.producer])
        return done


@pytest.fixture
def start(root):
    """Return a function that starts jobs, which end with the test."""
    jobs = []

    def start(transactional_id):
        jobs.append(Job(root, transactional_id))
        return jobs[-1]

    yield start
    for job in jobs:
        job.member.close()


def output(root):
    return sink_support.committed(root, "out")[0]


def offsets(root):
    found = OffsetsTable(Cluster(root)).fetch("g")
    return {tp.partition: each.offset for tp, each in sorted(found.items())}


def expel_all(root):
    members = GroupCoordinator(Cluster(root), "g")
    members.remove(list(members.describe().members))


def test_output_and_offsets_are_there_together_and_not_before(root, start):
    job = start("x")
    batch = job.batch(4)
    job.write(1, 2, 3)
    assert (output(root), offsets(root)) == ([], dict.fromkeys(range(4), 0))
    assert job.member.commit(batch, batch.ends) == frozenset()
    assert (output(root), offsets(root)) == ([1, 2, 3], dict.fromkeys(range(4), 10))
    assert job.member.next_batch()[0].size == 0


def test_attempts_that_spark_has_not_counted_do_not_count(root, start):
    job = start("x")
    batch = job.batch(4)
    owned = job.transactions.begin().to_json()
    job.write_to(owned, 7, counted=False)
    job.write_to(owned, 1)
    job.write_to(owned, 8, counted=False)
    job.member.commit(batch, batch.ends)
    assert output(root) == [1]


def test_what_a_cancelled_batch_has_written_does_not_count(root, start):
    job = start("x")
    job.batch(4)
    cancelled = job.transactions.begin().to_json()
    job.write_to(cancelled, 7)
    batch = job.batch(4)
    job.write(1)
    with pytest.raises(TransactionAbortableError):
        job.write_to(cancelled, 8)  # a task that Spark has not stopped yet
    job.member.commit(batch, batch.ends)
    assert output(root) == [1]


def test_a_batch_without_output_moves_the_offsets_alone(root, start):
    job = start("x")
    batch = job.batch(4)
    job.transactions.begin()
    job.member.commit(batch, batch.ends)
    assert (output(root), offsets(root)) == ([], dict.fromkeys(range(4), 10))


def test_a_member_that_was_expelled_writes_nothing_and_the_other_does_it_again(root, start):
    one = start("one")
    batch = one.batch(4)
    one.write(1)
    expel_all(root)
    two = start("two")
    again = two.batch(4)
    assert again.starts == batch.starts
    with pytest.raises(BatchAbortedError) as raised:
        one.member.commit(batch, batch.ends)
    assert raised.value.lost == batch.starts.keys()
    two.write(2)
    two.member.commit(again, again.ends)
    assert (output(root), offsets(root)) == ([2], dict.fromkeys(range(4), 10))


def test_a_zombie_is_fenced_that_looked_before_it_was_expelled(root, start, monkeypatch):
    one = start("one")
    batch = one.batch(4)
    one.write(1)
    status = one.member._member.poll()  # noqa: SLF001 - what it knew before it was stopped
    expel_all(root)
    two = start("two")
    again = two.batch(4)
    before = iter([status])
    refresh = one.member._member.refresh  # noqa: SLF001
    monkeypatch.setattr(one.member._member, "refresh", lambda: next(before, None) or refresh())  # noqa: SLF001
    monkeypatch.setattr(one.member, "_still_owned", lambda batch: set(batch.starts))
    with pytest.raises(BatchAbortedError):
        one.member.commit(batch, batch.ends)
    two.write(2)
    two.member.commit(again, again.ends)
    assert output(root) == [2]


def test_a_newer_generation_in_which_it_keeps_its_partitions_takes_nothing_from_it(root, start):
    one = start("one")
    batch = one.batch(4)
    one.write(1)
    start("two")  # takes partitions over when this one has released them
    assert one.member.commit(batch, batch.ends) == frozenset()
    assert (output(root), offsets(root)) == ([1], dict.fromkeys(range(4), 10))


def test_what_a_job_leaves_that_dies_is_aborted_by_the_next_with_its_transactional_id(root, start):
    dead = start("x")
    batch = dead.batch(4)
    dead.write(1)
    expel_all(root)
    job = start("x")
    state = TransactionCoordinator(Cluster(root), "x").refresh()
    assert not state.participants
    again = job.batch(4)
    assert again.starts == batch.starts
    job.write(2)
    job.member.commit(again, again.ends)
    assert output(root) == [2]


def test_a_job_that_ends_in_a_batch_aborts_it(root, start):
    job = start("x")
    job.batch(4)
    job.write(1)
    job.member.close()
    assert TransactionCoordinator(Cluster(root), "x").refresh().state == "CompleteAbort"
