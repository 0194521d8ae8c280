"""The task attempts and the driver of a transactional write, without Spark."""

import threading

import pytest

from spark_log import (
    Admin,
    InvalidTxnTimeoutError,
    NewTopic,
    StorageError,
    TransactionAbortableError,
)
from spark_log.cluster import Cluster
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.job_transaction import abort_transaction, commit_transaction
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.datasource.write.record_buffers import RecordBuffers
from spark_log.log import PartitionLog
from spark_log.storage.local import LocalStore
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCoordinator,
    TransactionObserver,
    TransactionState,
)
from spark_log.util.clock import ManualClock
from tests.datasource.sink_support import (
    QUERY,
    attempt,
    committed,
    numbers,
    partition_logs,
    rows,
    task,
)

ID = f"spark-{QUERY}-t"


def write(root, batches, **settings):
    """Run one attempt of a task of a transactional micro-batch."""
    return attempt(root, batches, transactional="true", **settings)


def commit(root, *messages, batch_id=0):
    with OpenRoot.acquire(root, {}) as opened:
        commit_transaction(opened, messages, batch_id)


def abort(root, *messages):
    with OpenRoot.acquire(root, {}) as opened:
        abort_transaction(opened, messages)


def segments(root, partition):
    return len(partition_logs(root)[partition].observe().live.segments)


def state(root, transactional_id=ID):
    return TransactionCoordinator(Cluster(root), transactional_id).refresh()


def expire(root):
    """Abort what is ongoing, as a reader does that has waited for ``transaction.timeout.ms``."""
    coordinator = TransactionCoordinator(Cluster(root), ID)
    coordinator.expire(coordinator.refresh().transaction)
    coordinator.complete()


# --- commit --------------------------------------------------------------------------------------


def test_all_partitions_of_all_tasks_are_visible_with_the_commit_and_not_before(root):
    first = write(root, [rows(range(5), 0), rows(range(5, 10), 1)], number=0)
    second = write(root, [rows(range(10, 20), 1)], number=1)
    assert committed(root) == [[], [], [], []]

    commit(root, first, second)

    assert committed(root) == [[*range(5)], [*range(5, 20)], [], []]
    assert (state(root).state, state(root).batch_id) == ("CompleteCommit", 0)


def test_only_the_attempt_that_spark_has_counted_is_visible(root):
    """Two attempts of each task, one after the other and at the same time, with other rows each."""
    lost = write(root, [rows(range(100, 110), 0)])
    with task(root, transactional="true") as one, task(root, transactional="true") as other:
        one.add(rows(range(5), 0))
        other.add(rows(range(50, 60), 0))
        losing, counted = other.commit(), one.commit()
    assert len({each.joined.producer for each in (lost, losing, counted)}) == 3

    commit(root, counted)

    assert committed(root)[0] == [*range(5)]
    assert sorted(numbers(root)[0]) == sorted([*range(5), *range(50, 60), *range(100, 110)])


def test_the_markers_of_a_partition_are_in_one_segment(root):
    messages = [write(root, [rows([number], 0)], number=number) for number in range(3)]
    before = segments(root, 0)
    commit(root, *messages)
    assert segments(root, 0) == before + 1


def test_a_task_of_several_segments_and_partitions_joins_once(root):
    admin = Admin(root)
    admin.create_topics([NewTopic("small", 2, topic_configs={"segment.bytes": 1 << 20})])
    batches = [rows(range(n, n + 500), n % 2, padding=1000) for n in range(0, 5000, 500)]
    with task(
        root, topic="small", transactional="true", buffers=RecordBuffers(max_pending_bytes=1 << 16)
    ) as writer:
        for batch in batches:
            writer.add(batch)
        writer.add(rows([5000], 1))
        message = writer.commit()
    assert len(partition_logs(root, "small")[0].observe().live.segments) > 1
    before = state(root, f"spark-{QUERY}-small")
    assert [len(each.partitions) for each in before.participants.values()] == [2]

    commit(root, message)

    assert committed(root, "small") == numbers(root, "small")
    assert sorted(n for part in committed(root, "small") for n in part) == [*range(5001)]


def test_partitions_that_appear_after_the_first_segment_are_registered_before_the_first_put(root):
    with task(root, transactional="true", buffers=RecordBuffers(max_pending_bytes=1)) as writer:
        writer.add(rows(range(2000), 0, padding=1000))  # begins a segment
        assert [len(each.partitions) for each in state(root).participants.values()] == [1]
        writer.add(rows([1], 3))
        message = writer.commit()
    assert [len(each.partitions) for each in state(root).participants.values()] == [2]
    commit(root, message)
    assert committed(root)[3] == [1]


def test_a_topic_column_names_the_transactional_id_with_a_star(root):
    identity = WriteIdentity(QUERY, 0, 0, is_stream=True)
    assert identity.transactional_id(None) == f"spark-{QUERY}-*"
    assert identity.transactional_id("t") == ID


def test_a_task_without_rows_makes_no_transaction(root):
    message = write(root, [rows([])])
    assert message.joined is None
    commit(root, message, None)
    assert state(root).owner is None


def test_producers_are_used_again_by_later_micro_batches(root):
    for batch_id in range(3):
        messages = [write(root, [rows([batch_id])], batch_id=batch_id, number=n) for n in (0, 1)]
        commit(root, *messages, batch_id=batch_id)
    assert len(state(root).producers) == 2
    assert committed(root)[0] == [0, 0, 1, 1, 2, 2]


def test_tasks_that_start_at_the_same_time_make_one_owner(root):
    results, barrier = [], threading.Barrier(4)

    def run(number):
        with task(root, number=number, transactional="true") as writer:
            barrier.wait(30)
            writer.add(rows([number], number))
            results.append(writer.commit())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len({each.joined.owner for each in results}) == 1
    commit(root, *results)
    assert committed(root) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("transactional", "appends"),
    [
        ("false", ["partition"]),
        # The task joins and appends; the driver decides, puts the marker, and completes.
        ("true", ["state", "partition", "state", "partition", "state"]),
    ],
)
def test_the_appends_of_the_least_micro_batch(root, monkeypatch, transactional, appends):
    """Told in docs/spark.md: four more than without a transaction."""
    put_if_absent = LocalStore.put_if_absent
    paths = []

    def noting(store, path, *arguments, **options):
        paths.append(path)
        return put_if_absent(store, path, *arguments, **options)

    monkeypatch.setattr(LocalStore, "put_if_absent", noting)
    for batch_id in range(3):
        paths.clear()
        message = attempt(root, [rows([1], 0)], batch_id=batch_id, transactional=transactional)
        commit(root, message, batch_id=batch_id)
    kinds = {"__transaction_state": "state"}
    assert [kinds.get(path.split("/")[0], "partition") for path in paths] == appends


# --- a micro-batch that runs again ---------------------------------------------------------------


def test_a_micro_batch_that_is_committed_writes_nothing_when_it_runs_again(root):
    commit(root, write(root, [rows(range(5))]))
    files = segments(root, 0)

    again = write(root, [rows(range(7, 30))])
    commit(root, again)

    assert (again.results, again.joined) == ({}, None)
    assert segments(root, 0) == files
    assert committed(root)[0] == [*range(5)]


def test_all_rows_are_read_although_the_micro_batch_is_committed(root):
    """What computes them, such as a stateful operator, may keep its state at their end."""
    commit(root, write(root, [rows([1])]))
    batches = iter([rows([1]), rows([2])])
    write(root, batches)
    assert next(batches, None) is None


def test_when_it_runs_again_it_puts_the_markers_that_a_dead_driver_has_not_put(root, monkeypatch):
    message = write(root, [rows(range(5))])
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_markers", _no_answer)
        commit(root, message)
    assert state(root).state is TransactionState.PREPARE_COMMIT
    assert committed(root)[0] == []

    commit(root, write(root, [rows(range(5))]))

    assert committed(root)[0] == [*range(5)]
    assert state(root).state is TransactionState.COMPLETE_COMMIT


def _no_answer(self, markers):
    raise StorageError("no answer", path=self.directory)


def test_what_a_dead_driver_left_open_is_aborted_by_the_commit_of_the_next_run(root):
    write(root, [rows(range(100, 105), 0), rows([7], 3)], number=0)

    message = write(root, [rows(range(5), 0)], number=0)
    commit(root, message)

    assert committed(root) == [[*range(5)], [], [], []]
    open_ones = [log.transactions().open for log in partition_logs(root)]
    assert not any(open_ones), "the partition that only the first run has written to is free too"


def test_what_readers_have_waited_for_a_dead_driver_counts_for_the_next_run(root):
    """Told in docs/spark.md: the next run goes on in the transaction of the dead one."""
    clock = ManualClock()
    observer, log = TransactionObserver(Cluster(root), clock=clock), partition_logs(root)[0]
    partition = TopicIdPartition(Cluster(root).topic("t").topic_id, 0)

    def is_resolved_after(wait_ms):
        clock.advance_ms(wait_ms)
        (blocking, *_) = log.transactions().open
        return observer.resolve(blocking, log, partition)

    write(root, [rows([100])], **{"transaction.timeout.ms": "60000"})
    assert not is_resolved_after(0)
    assert not is_resolved_after(59_000)

    message = write(root, [rows([1])], **{"transaction.timeout.ms": "60000"})
    assert is_resolved_after(1_000)
    with pytest.raises(TransactionAbortableError):
        commit(root, message)

    commit(root, write(root, [rows([2])], **{"transaction.timeout.ms": "60000"}))
    assert committed(root)[0] == [2]


def test_a_second_driver_with_the_same_micro_batch_commits_nothing_more(root):
    first, second = write(root, [rows([1])]), write(root, [rows([2])])
    commit(root, first)
    commit(root, second)
    assert committed(root)[0] == [1]


# --- abort ---------------------------------------------------------------------------------------


def test_abort_frees_readers_and_the_next_attempt_is_another_transaction(root):
    message = write(root, [rows(range(5))])
    abort(root, message, None)
    assert state(root).state is TransactionState.COMPLETE_ABORT

    commit(root, write(root, [rows([9])]))

    assert committed(root)[0] == [9]


def test_abort_without_a_message_and_after_the_commit_does_nothing(root):
    abort(root, None)
    message = write(root, [rows(range(5))])
    commit(root, message)
    abort(root, message)
    assert state(root).state is TransactionState.COMPLETE_COMMIT
    assert committed(root)[0] == [*range(5)]


def test_a_transaction_that_others_aborted_is_not_committed(root):
    message = write(root, [rows(range(5))])
    expire(root)

    with pytest.raises(TransactionAbortableError, match=r"transaction\.timeout\.ms \(900000\)"):
        commit(root, message)

    abort(root, message)
    assert committed(root)[0] == []
    commit(root, write(root, [rows([9])]))
    assert committed(root)[0] == [9]


def test_attempts_of_two_transactions_are_not_committed_together(root):
    early = write(root, [rows([1])], number=0)
    expire(root)
    late = write(root, [rows([2])], number=1)

    for messages in ((early, late), (late, early)):
        with pytest.raises(TransactionAbortableError):
            commit(root, *messages)
    abort(root, early, late)

    assert committed(root)[0] == []
    assert state(root).state is TransactionState.COMPLETE_ABORT


def test_a_task_whose_transaction_was_aborted_before_its_put_says_so(root):
    with task(root, transactional="true", buffers=RecordBuffers(max_pending_bytes=1)) as zombie:
        zombie.add(rows(range(2000), 0, padding=1000))  # joins
        write(root, [rows([1], 0)], number=1)
        expire(root)
        with pytest.raises(TransactionAbortableError, match="was aborted while tasks wrote"):
            zombie.commit()
    assert numbers(root)[0] == [1]
    assert committed(root)[0] == []


def test_a_task_of_a_micro_batch_that_was_committed_meanwhile_cannot_write(root):
    with task(root, transactional="true") as zombie:
        zombie.add(rows([1], 0))
        commit(root, write(root, [rows([2], 0)]))
        with pytest.raises(TransactionAbortableError):
            zombie.commit()
    assert numbers(root)[0] == [2]


# --- identities, options -------------------------------------------------------------------------


def test_a_failed_attempt_leaves_nothing_staged(root, monkeypatch, tmp_path):
    def failing(self, segment, **options):
        raise StorageError("no answer", path=self.directory)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_segment", failing)
        with pytest.raises(StorageError):
            write(root, [rows([1])])
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_changed_timeout_holds_from_the_next_transaction(root):
    default = write(root, [rows([1])])
    assert state(root).timeout_ms == 900_000
    commit(root, default)
    changed = {"transaction.timeout.ms": "1234"}
    commit(root, write(root, [rows([2])], batch_id=1, **changed), batch_id=1)
    assert state(root).timeout_ms == 1234
    assert committed(root)[0] == [1, 2]


def test_a_timeout_above_the_clusters_is_refused(root):
    with pytest.raises(InvalidTxnTimeoutError, match=r"transaction\.max\.timeout\.ms"):
        write(root, [rows([1])], **{"transaction.timeout.ms": "900001"})
    assert numbers(root)[0] == []


def test_the_owners_producer_id_is_replaced_when_its_epochs_are_used_up(root, monkeypatch):
    monkeypatch.setattr("spark_log.transaction.state.LAST_EPOCH", 3)
    monkeypatch.setattr("spark_log.transaction.decisions.LAST_EPOCH", 3)
    monkeypatch.setattr("spark_log.transaction.coordinator.LAST_EPOCH", 9)
    owners = set()
    for batch_id in range(8):
        message = write(root, [rows([batch_id])], batch_id=batch_id)
        owners.add(message.joined.owner.producer_id)
        commit(root, message, batch_id=batch_id)
    assert len(owners) > 1
    assert committed(root)[0] == [*range(8)]
