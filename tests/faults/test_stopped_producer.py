"""A transactional producer is stopped for longer than its timeout, and then goes on."""

import multiprocessing
import os
import signal

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition, TransactionAbortableError
from spark_log.cluster import Cluster
from spark_log.storage.local import LocalStore
from tests.producer.support import committed
from tests.striped_topics import is_in
from tests.waiting import wait_until

TIMEOUT_MS = 1_000
PATIENCE_S = 60


def stop_in_a_transaction(root, stopped_in):
    """Stop this process in a transaction; when it goes on, abort it, and commit another one.

    Args:
        root: with a topic ``t`` of two partitions.
        stopped_in: ``send``: between two records; ``put``: after all checks of a record, before its
            file has its name; ``decision``: before the decision to commit has its name.
    """
    path = {"put": "/t-1", "decision": "__transaction_state/ids", "send": None}[stopped_in]
    stopped: list[str] = []
    put_if_absent = LocalStore.put_if_absent

    def put(self, target, *given, **how):
        if path is not None and is_in(target, path) and is_armed and not stopped:
            stopped.append(target)
            os.kill(os.getpid(), signal.SIGSTOP)
        return put_if_absent(self, target, *given, **how)

    is_armed = False
    LocalStore.put_if_absent = put  # type: ignore[assignment, method-assign]
    with Producer(root, transactional_id="id", transaction_timeout_ms=TIMEOUT_MS) as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in range(2):
            producer.send("t", b"lost", partition=partition)
        producer.flush(PATIENCE_S)
        is_armed = True
        if stopped_in == "send":
            os.kill(os.getpid(), signal.SIGSTOP)

        def go_on():
            producer.send("t", b"lost", partition=1)
            producer.commit_transaction(PATIENCE_S)

        with pytest.raises(TransactionAbortableError):
            go_on()
        producer.abort_transaction(PATIENCE_S)
        with producer.transaction():
            producer.send("t", b"seen", partition=1)


@pytest.mark.parametrize(
    "stopped_in",
    [
        "put",
        pytest.param("send", marks=pytest.mark.long),
        pytest.param("decision", marks=pytest.mark.long),
    ],
)
def test_others_abort_its_transaction_and_nothing_of_it_is_ever_seen(tmp_path, stopped_in):
    root = str(tmp_path / "root")
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", 2)])
    process = multiprocessing.get_context("spawn").Process(
        target=stop_in_a_transaction, args=(root, stopped_in), daemon=True
    )
    process.start()
    assert process.pid is not None
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    with (
        Producer(root) as other,
        Consumer(
            root=root,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as reader,
    ):
        for partition in range(2):
            other.send("t", b"behind", partition=partition).result(PATIENCE_S)
        reader.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        read = 0

        def is_read():
            nonlocal read
            read += reader.poll_table(timeout_ms=100).num_rows
            return read == 2

        wait_until(is_read, "the reader is held up by the stopped producer")
    os.kill(process.pid, signal.SIGCONT)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert committed(root, "t") == {0: [b"behind"], 1: [b"behind", b"seen"]}
    cluster = Cluster(root)
    topic = cluster.topic("t")
    for partition in range(2):
        assert cluster.partition_log(topic, partition).transactions().open == ()
