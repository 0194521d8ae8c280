"""The thread of a producer that merges the ends of its logs."""

import logging
import threading
from functools import partial

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.threads import merge_thread
from spark_log.threads.merge_thread import MergeThread
from tests.waiting import wait_until


def named(name):
    return [each for each in threading.enumerate() if each.name == name]


def test_runs_one_merge_at_a_time_in_order():
    thread, go = MergeThread("merges-in-order"), threading.Event()
    done: list[int] = []
    assert thread.submit(go.wait)
    for number in range(3):
        assert thread.submit(partial(done.append, number))
    assert done == []
    go.set()
    wait_until(lambda: len(done) == 3)
    assert done == [0, 1, 2]
    thread.close(60)


def test_has_no_thread_before_the_first_merge():
    thread = MergeThread("unused-merges")
    assert named("unused-merges") == []
    thread.close(60)
    assert not thread.submit(lambda: None)
    assert named("unused-merges") == []


def test_close_waits_for_the_merge_that_runs_and_drops_the_others():
    thread = MergeThread("closed-merges")
    done: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def merge():
        begun.set()
        go.wait()
        done.append("running")

    thread.submit(merge)
    thread.submit(lambda: done.append("waiting"))
    begun.wait()
    thread.close(0)
    go.set()
    thread.close(60)
    assert done == ["running"]
    assert named("closed-merges") == []


@pytest.fixture
def endless_pauses(monkeypatch):
    monkeypatch.setattr(merge_thread, "_STEP_S", 0)
    monkeypatch.setattr(merge_thread, "_LONGEST_PAUSE_S", 60)


@pytest.mark.usefixtures("endless_pauses")
def test_a_merge_makes_way_for_an_append_that_runs():
    thread = MergeThread("polite-merges")
    order = []

    def merge():
        thread.pause()
        order.append("merge")

    with thread.make_way():
        thread.submit(merge)
        wait_until(lambda: thread._ended._waiters)  # type: ignore[attr-defined]  # noqa: SLF001
        order.append("append")
    wait_until(lambda: len(order) == 2)
    thread.close(60)
    assert order == ["append", "merge"]


@pytest.mark.usefixtures("endless_pauses")
def test_a_merge_does_not_wait_if_no_append_runs():
    thread = MergeThread("alone")
    with thread.make_way():
        pass
    thread.pause()


def test_a_producer_tells_its_merges_of_each_append(tmp_path, monkeypatch):
    root, told = str(tmp_path), []
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", 1)])
    make_way = MergeThread.make_way

    def tell(self):
        told.append(self)
        return make_way(self)

    monkeypatch.setattr(MergeThread, "make_way", tell)
    with Producer(root) as producer:
        for _ in range(3):
            producer.send("t", b"value").result(60)
    assert len(told) == 3


def test_an_unexpected_error_ends_no_later_merge(caplog):
    thread, done = MergeThread("failing-merges"), threading.Event()
    thread.submit(lambda: 1 / 0)
    thread.submit(done.set)
    with caplog.at_level(logging.ERROR):
        wait_until(done.is_set)
    assert "a merge has failed" in caplog.text
    thread.close(60)


def test_a_merge_that_ends_with_its_process_is_no_error(caplog):
    """While a process ends, no thread can be started: a merge that runs then fails."""
    thread, begun, is_over = MergeThread("ending-merges"), threading.Event(), threading.Event()

    def merge():
        begun.set()
        is_over.wait()
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    with caplog.at_level(logging.ERROR):
        thread.submit(merge)
        begun.wait()
        thread.close(0)
        is_over.set()
        thread.close(60)
    assert not caplog.records


def test_a_producer_merges_on_its_thread_and_ends_it_at_close(tmp_path):
    root = str(tmp_path)
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", 1, topic_configs={"merge.tail.segments": "8"})])
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic("t"), 0)
    sent = 0

    def send():
        nonlocal sent
        producer.send("t", b"value").result(60)
        sent += 1

    with Producer(root, client_id="merging") as producer:
        wait_until(lambda: sent > len(log.observe().live.segments), meanwhile=send)
        assert named("spark-log-merging-merges")
    assert named("spark-log-merging-merges") == []
    assert log.observe().log_end_offset == sent
