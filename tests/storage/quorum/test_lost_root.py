"""Producers, consumers and topic creation go on when one of three directories is removed."""

import multiprocessing
import shutil
import time

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.storage import open_quorum

PRODUCED = 40


def produce(root, started, lost, sent):
    """Send records, one after the other; the root is removed after some of them."""
    with Producer(root, linger_ms=0, client_id="during") as producer:
        for number in range(PRODUCED):
            sent.put(producer.send("flights", b"%d" % number, partition=0).result(30).offset)
            if number == 5:
                started.set()
                assert lost.wait(30)


@pytest.fixture
def roots(tmp_path):
    return [str(tmp_path / name) for name in "abc"]


@pytest.mark.long
@pytest.mark.parametrize("lost_root", [0, 2], ids=["first", "last"])
def test_nothing_stops_when_a_root_is_removed(roots, lost_root):
    url = ",".join(roots)
    topic = {"flush.on.append": False}
    Admin(url).create_topics([NewTopic("flights", topic_configs=topic)])
    context = multiprocessing.get_context("spawn")
    started, lost, sent = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=produce, args=(url, started, lost, sent))
    process.start()
    try:
        assert started.wait(30)
        shutil.rmtree(roots[lost_root])
        lost.set()
        Admin(url).create_topics([NewTopic("later", topic_configs=topic)])
        offsets = [sent.get(timeout=60) for _ in range(PRODUCED)]
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
    assert offsets == list(range(PRODUCED))
    left = next(root for root in roots if root != roots[lost_root])
    assert Admin(left).list_topics() == ["flights", "later"]
    with Consumer(root=left, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        values: list[object] = []
        while len(values) < PRODUCED:
            values += [r.value for records in consumer.poll(1000).values() for r in records]
        consumer.commit()
    assert values == [b"%d" % number for number in range(PRODUCED)]
    committed = Admin(left).list_group_offsets("readers")
    assert committed[TopicPartition("flights", 0)].offset == PRODUCED


def test_a_root_that_hangs_delays_one_call(roots, monkeypatch):
    store = open_quorum(roots)
    store.create_root()
    store.put_if_absent("topic/0", b"before")
    hanging = store.open_member(roots[0])
    monkeypatch.setattr(type(hanging), "put_if_absent", _hanging(roots[0]))
    monkeypatch.setattr(type(hanging), "list", _hanging_list(roots[0]))
    began_s = time.monotonic()
    store.put_if_absent("topic/1", b"first")
    first_s = time.monotonic() - began_s
    began_s = time.monotonic()
    for number in range(2, 6):
        store.put_if_absent(f"topic/{number}", b"later")
    assert (time.monotonic() - began_s) / 4 < first_s
    _RELEASED.set()


_RELEASED = multiprocessing.Event()


def _hanging(root):
    from spark_log.storage.local import LocalStore

    put = LocalStore.put_if_absent

    def call(self, *args, **kwargs):
        if self.url == root:
            _RELEASED.wait(30)
        return put(self, *args, **kwargs)

    return call


def _hanging_list(root):
    from spark_log.storage.local import LocalStore

    listed = LocalStore.list

    def call(self, *args, **kwargs):
        if self.url == root:
            _RELEASED.wait(30)
        return listed(self, *args, **kwargs)

    return call
