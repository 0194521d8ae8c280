"""A task that runs again appends no record twice and loses none (ADR 8)."""

import multiprocessing
import threading

import pytest

from spark_log import Admin, ConfigResource, NewTopic, NotRepeatableError, StorageError
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.errors import ClockSkewError, InvalidProducerEpochError
from spark_log.log import PartitionLog
from spark_log.util.clock import SYSTEM_CLOCK
from tests.datasource.sink_support import (
    RecordBuffers,
    attempt,
    numbers,
    partition_logs,
    rows,
    segment_sizes,
    task,
)
from tests.log.support import ShiftedClock

MIB = 1 << 20


@pytest.fixture
def small(root):
    """The root, with a topic `small` of one partition with the smallest possible segments."""
    Admin(root).create_topics([NewTopic("small", topic_configs={"segment.bytes": MIB})])
    return root


def three_segments(cut=1000):
    """Return 2,500 rows of about 1 KiB in batches: three segments of the topic `small`."""
    return [
        rows(range(start, min(start + cut, 2500)), padding=1000) for start in range(0, 2500, cut)
    ]


class KilledError(Exception):
    """Stands for a killed process."""


def die_after(monkeypatch, appends):
    """Let a process die after a number of appends."""
    append_segment = PartitionLog.append_segment
    left = iter(range(appends))

    def dying(self, segment, **options):
        if next(left, None) is None:
            raise KilledError
        return append_segment(self, segment, **options)

    monkeypatch.setattr(PartitionLog, "append_segment", dying)


def test_the_result_of_the_first_attempt_is_lost(root):
    batches = [rows(range(10), 0), rows(range(10, 20), 1)]
    first = attempt(root, batches)
    second = attempt(root, batches)

    assert numbers(root) == [list(range(10)), list(range(10, 20)), [], []]
    assert [result.repeated for result in first.results.values()] == [0, 0]
    assert [result.repeated for result in second.results.values()] == [10, 10]
    for name in first.results:
        assert first.results[name].first_offset == second.results[name].first_offset
        assert first.results[name].last_offset == second.results[name].last_offset


@pytest.mark.parametrize("appended", range(4))
def test_the_first_attempt_dies_between_partitions(root, monkeypatch, appended):
    batches = [rows(range(100 * part, 100 * part + 50), part) for part in range(4)]
    with monkeypatch.context() as patch:
        die_after(patch, appended)
        with pytest.raises(KilledError):
            attempt(root, batches)

    written = attempt(root, batches)

    assert numbers(root) == [list(range(100 * part, 100 * part + 50)) for part in range(4)]
    assert sum(result.repeated for result in written.results.values()) == 50 * appended


@pytest.mark.parametrize("appended", [1, 2])
@pytest.mark.parametrize("cut", [1000, 700, 2500])
def test_the_first_attempt_dies_between_segments_and_the_next_one_cuts_them_elsewhere(
    small, monkeypatch, appended, cut
):
    with monkeypatch.context() as patch:
        die_after(patch, appended)
        with pytest.raises(KilledError):
            attempt(small, three_segments(), topic="small")
    stands = len(numbers(small, "small")[0])
    assert 0 < stands < 2500

    written = attempt(small, three_segments(cut), topic="small")

    assert numbers(small, "small") == [list(range(2500))]
    (result,) = written.results.values()
    assert (result.records, result.repeated) == (2500, stands)


def test_two_attempts_at_the_same_time_segment_by_segment(small):
    with (
        task(small, topic="small") as first,
        task(small, topic="small") as second,
    ):
        for writer, cut in ((first, 1000), (second, 300)):
            for batch in three_segments(cut):
                writer.add(batch)
        ends = {}

        def commit(name, writer):
            ends[name] = writer.commit()

        threads = [
            threading.Thread(target=commit, args=pair) for pair in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert numbers(small, "small") == [list(range(2500))]
    assert sum(result.repeated for end in ends.values() for result in end.results.values()) == 2500


def test_many_tasks_and_their_doubles_at_the_same_time(root):
    """Eight tasks run twice each, on the same four partitions."""
    ready = threading.Barrier(16)
    failures = []

    def run(number):
        first = 1000 * number
        try:
            with task(root, number=number) as writer:
                for part in range(4):
                    writer.add(rows(range(first + 100 * part, first + 100 * part + 50), part))
                ready.wait(60)
                writer.commit()
        except Exception as error:  # the test compares it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number % 8,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failures == []
    for part, found in enumerate(numbers(root)):
        expected = [1000 * number + 100 * part + row for number in range(8) for row in range(50)]
        assert sorted(found) == expected


def test_another_process_runs_the_micro_batch_again(root):
    batches = [rows(range(10), 0), rows(range(10, 20), 1)]
    attempt(root, batches[:1], batch_id=7)  # dies before the second partition

    process = multiprocessing.get_context("spawn").Process(
        target=attempt, args=(root, batches), kwargs={"batch_id": 7}
    )
    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert numbers(root) == [list(range(10)), list(range(10, 20)), [], []]


def test_each_micro_batch_each_task_and_each_query_appends_its_own(root):
    batch = [rows([1], 0)]
    attempt(root, batch)
    attempt(root, batch, batch_id=1)
    attempt(root, batch, number=1)
    attempt(root, batch, query="another")

    assert numbers(root)[0] == [1, 1, 1, 1]


def test_a_micro_batch_beyond_the_largest_epoch_is_another_producers(root):
    for batch_id in (32_767, 32_768, 32_769, 65_536):
        attempt(root, [rows([batch_id], 0)], batch_id=batch_id)
        attempt(root, [rows([batch_id], 0)], batch_id=batch_id)

    assert numbers(root)[0] == [32_767, 32_768, 32_769, 65_536]


def test_a_task_left_over_from_an_earlier_micro_batch_is_fenced(root):
    attempt(root, [rows([1], 0)], batch_id=4)
    attempt(root, [rows([2], 0)], batch_id=5)

    with pytest.raises(InvalidProducerEpochError):
        attempt(root, [rows([1, 11], 0)], batch_id=4)

    assert numbers(root)[0] == [1, 2]


def test_a_topic_created_again_gets_the_micro_batch_too(root):
    attempt(root, [rows([1], 0)])
    Admin(root).delete_topics(["t"])
    Admin(root).create_topics([NewTopic("t", num_partitions=4)])

    attempt(root, [rows([1], 0)])

    assert numbers(root)[0] == [1]


def test_more_runs_than_are_remembered_lie_in_the_log(small):
    """Two tasks append in turn: the producer state no longer has the first runs of either."""
    segments = [rows(range(1000 * i, 1000 * i + 900), padding=1000) for i in range(8)]
    with task(small, topic="small") as first, task(small, topic="small", number=1) as second:
        for writer in (first, second):
            for batch in segments:
                writer.add(batch)
            writer._buffers.finish()  # noqa: SLF001
        writers = [next(iter(task._writers.values())) for task in (first, second)]  # noqa: SLF001
        assert all(len(writer._staged) >= 7 for writer in writers)  # noqa: SLF001
        while all(writer.next_segment is not None for writer in writers):
            for writer in writers:
                writer.settle([writer.log.append_segment(writer.next_segment)])
    (before,) = numbers(small, "small")
    (remembered,) = {
        len(entry.runs) for _, entry in partition_logs(small, "small")[0].producers().entries()
    }
    assert remembered == 5

    for number in (0, 1):
        (result,) = attempt(small, segments, topic="small", number=number).results.values()
        assert result.repeated == 7200

    assert numbers(small, "small") == [before]
    assert len(before) == 14_400


# --- plans that are not deterministic ------------------------------------------------------------


def test_more_rows_than_at_first_are_appended_behind_the_first(root):
    attempt(root, [rows(range(10), 0)])
    written = attempt(root, [rows(range(15), 0)])

    assert numbers(root)[0] == list(range(15))
    assert next(iter(written.results.values())).repeated == 10


def test_fewer_rows_than_at_first_leave_what_stands(root):
    attempt(root, [rows(range(10), 0)])
    attempt(root, [rows(range(6), 0)])

    assert numbers(root)[0] == list(range(10))


def test_the_same_rows_in_another_order_are_the_same(root):
    attempt(root, [rows(range(10), 0)])
    attempt(root, [rows(reversed(range(10)), 0)])

    assert numbers(root)[0] == list(range(10))


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(range(10, 20), id="other rows"),
        pytest.param([*range(9), 10], id="one other row"),
        pytest.param(range(10, 25), id="more and other rows"),
        pytest.param(range(10, 15), id="fewer and other rows"),
    ],
)
def test_other_rows_than_at_first_are_refused_and_neither_lost_nor_doubled_in_silence(root, again):
    attempt(root, [rows(range(10), 0)])

    with pytest.raises(NotRepeatableError, match="Make it deterministic"):
        attempt(root, [rows(again, 0)])

    assert numbers(root)[0] == list(range(10))


def test_another_order_is_refused_where_only_some_of_the_rows_stand(small, monkeypatch):
    with monkeypatch.context() as patch:
        die_after(patch, 1)
        with pytest.raises(KilledError):
            attempt(small, three_segments(), topic="small")
    stands = numbers(small, "small")

    with pytest.raises(NotRepeatableError):
        attempt(small, [rows(range(2499, -1, -1), padding=1000)], topic="small")

    assert numbers(small, "small") == stands


# --- limits, and turning it off ------------------------------------------------------------------


def test_what_the_log_has_forgotten_is_appended_again(root):
    """producer.id.expiration.ms sets this limit; users can increase it."""
    Admin(root).create_topics([NewTopic("short", topic_configs={"producer.id.expiration.ms": 1})])
    attempt(root, [rows([1])], topic="short")
    log = partition_logs(root, "short")[0]
    while list(log.replica.snapshots.write().producers.entries()):
        pass  # at least a millisecond has to pass
    OpenRoot.acquire(root, {})  # the next attempt reads the log as another process does

    attempt(root, [rows([1])], topic="short")

    assert numbers(root, "short") == [[1, 1]]


@pytest.mark.parametrize("days", [2, -2])
def test_a_cleaner_days_ahead_does_not_make_the_log_forget(root, days):
    """Its snapshot keeps every producer that has not expired by the storage's clock."""
    settings = {"merge.tail.segments": "0", "snapshot.interval.segments": "1"}
    admin = Admin(root)
    admin.create_topics([NewTopic("cleaned", topic_configs=settings)])
    for batch_id in range(9):
        attempt(root, [rows([batch_id])], topic="cleaned", batch_id=batch_id)
    wrong = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=days))

    with pytest.raises(ClockSkewError):
        list(ClusterCleaner(wrong, ["cleaned"]).clean())
    attempt(root, [rows([8])], topic="cleaned", batch_id=8)
    assert numbers(root, "cleaned") == [list(range(9))]

    admin.alter_configs([ConfigResource("broker", "", {"max.clock.skew.ms": str(10**12)})])
    (cleaned,) = ClusterCleaner(wrong, ["cleaned"]).clean()
    assert cleaned.report is not None
    assert cleaned.report.merged_segments == 9, "the clean has written a snapshot"
    attempt(root, [rows([8])], topic="cleaned", batch_id=8)
    assert numbers(root, "cleaned") == [list(range(9))]


def test_without_idempotence_every_attempt_appends(root):
    for _ in range(2):
        attempt(root, [rows([1], 0)], idempotent="false")

    assert numbers(root)[0] == [1, 1]
    assert list(partition_logs(root)[0].producers().entries()) == []


def test_a_failed_append_keeps_what_came_before_and_removes_what_was_staged(
    small, monkeypatch, tmp_path
):
    append_segment = PartitionLog.append_segment

    def failing(self, segment, **options):
        if numbers(small, "small") != [[]]:
            raise StorageError("no answer", path=self.directory)
        return append_segment(self, segment, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_segment", failing)
        with pytest.raises(StorageError):
            attempt(small, three_segments(), topic="small")

    assert len(segment_sizes(small, "small")[0]) == 1
    assert not list(tmp_path.rglob("*.tmp"))
    attempt(small, three_segments(), topic="small", buffers=RecordBuffers(max_open=0))
    assert numbers(small, "small") == [list(range(2500))]
