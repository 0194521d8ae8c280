"""A job mirrors each partition in a task of its own: exactly once, whoever comes late."""

from contextlib import ExitStack

import pytest

from spark_log.errors import ProducerFencedError
from spark_log.mirror import KafkaCluster, KafkaToLog, LogToKafka
from tests.mirror.support import mirror, read_log, run_until_end, without_offsets
from tests.mirror.test_mirroring import log, root, send_to_log
from tests.waiting import wait_until

__all__ = ["log", "root"]

pytestmark = pytest.mark.long


def begin(kind, kafka, root, names):
    """Begin tasks, as a job that is killed then; return a mirror for each."""
    with mirror(kind, kafka, root, names) as driver:
        tasks = driver.begin_tasks()
    return [task_mirror(kind, kafka, root, names, task) for task in tasks]


def task_mirror(kind, kafka, root, names, task):
    made = mirror(kind, kafka, root, names)
    return kind(made._kafka, made._log, made._settings, task)  # noqa: SLF001


def run_all(mirrors):
    """Run tasks at the same time, transaction by transaction; return the number of records."""
    count = 0
    with ExitStack() as stack:
        for each in mirrors:
            stack.enter_context(each)
        for each in mirrors:
            each.run(lambda: False, until_end=True)
            count += each.metrics()["record-count"]
    return count


@pytest.mark.parametrize("kind", [KafkaToLog, LogToKafka])
def test_tasks_mirror_each_partition_once(kind, kafka, log, names):
    kafka.create_topic(names.topic)
    if kind is KafkaToLog:
        kafka.send(names.topic, 300)
    else:
        send_to_log(log, names.topic, 300)
    tasks = begin(kind, kafka, log, names)
    assert [each._task.partition.partition for each in tasks] == [0, 1]  # noqa: SLF001
    assert run_all(tasks) == 300
    assert run_all(begin(kind, kafka, log, names)) == 0
    assert run_until_end(kind, kafka, log, names)["record-count"] == 0
    assert without_offsets(read_log(log, names.topic)) == without_offsets(kafka.read(names.topic))


@pytest.mark.parametrize("kind", [KafkaToLog, LogToKafka])
def test_tasks_are_fenced_by_each_mirror_that_begins_later(kind, kafka, log, names):
    kafka.create_topic(names.topic)
    (first, late), (again, _) = (begin(kind, kafka, log, names) for _ in range(2))
    with pytest.raises(ProducerFencedError, match="after the job of this task"), late:
        raise AssertionError("a task of an earlier job was opened")
    other_way = LogToKafka if kind is KafkaToLog else KafkaToLog
    with again, mirror(other_way, kafka, log, names):
        if kind is KafkaToLog:
            kafka.send(names.topic, 10)
        else:
            send_to_log(log, names.topic, 10)
        with pytest.raises(ProducerFencedError):
            wait_until(again.transfer)
    with pytest.raises(ProducerFencedError), first:
        raise AssertionError("a task of an earlier job was opened")


def test_a_second_attempt_of_a_task_fences_the_first(kafka, root, names):
    kafka.create_topic(names.topic, 1)
    (task,) = begin(KafkaToLog, kafka, root, names)
    again = task_mirror(KafkaToLog, kafka, root, names, task._task)  # noqa: SLF001
    kafka.send(names.topic, 20, partitions=1)
    with task, again:
        wait_until(again.transfer)
        with pytest.raises(ProducerFencedError):
            wait_until(task.transfer)
    assert len(read_log(root, names.topic, 1)[0]) == 20


class Watched:
    """A consumer that does something when it has reached an end for the first time."""

    def __init__(self, consumer, on_end):
        self._consumer = consumer
        self._on_end = on_end

    def consume(self, *arguments):
        messages = self._consumer.consume(*arguments)
        if self._on_end and any(each.error() for each in messages):
            self._on_end = self._on_end()
        return messages

    def __getattr__(self, name):
        return getattr(self._consumer, name)


def test_a_task_waits_for_what_is_committed_behind_open_transactions(
    kafka, log, names, monkeypatch
):
    """Its own end may lie behind the open transaction of another task in the offset-sync topic."""
    send_to_log(log, names.topic, 100)
    one, other = begin(LogToKafka, kafka, log, names)
    again = task_mirror(LogToKafka, kafka, log, names, one._task)  # noqa: SLF001
    with one, other:
        producer = other._producer  # noqa: SLF001
        producer.begin_transaction()
        producer.produce(other._settings.offset_sync_topic, b"", b"{}", 0)  # noqa: SLF001
        producer.flush()
        wait_until(one.transfer)
        make = KafkaCluster.consumer
        monkeypatch.setattr(
            KafkaCluster,
            "consumer",
            lambda *given, **more: Watched(make(*given, **more), producer.abort_transaction),
        )
        with again:
            assert again.transfer() == 0
    assert len(kafka.read(names.topic)[0]) == 50
