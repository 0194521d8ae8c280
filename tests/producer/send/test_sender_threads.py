"""The producer's threads append to partitions in parallel, and expire batches while they hang."""

import threading

import pytest

from spark_log import KafkaTimeoutError, Producer, UnknownOutcomeError
from tests.producer.support import hooked, new_root


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 4), "weather")


def test_partitions_are_appended_at_once_up_to_what_is_allowed(root):
    producer = Producer(root, linger_ms=0, max_in_flight_requests_per_connection=3)
    store = hooked(producer)
    together = threading.Barrier(3, timeout=30)
    under_way, most = [], []

    def meet(path, call):
        under_way.append(path)
        most.append(len(under_way))
        if len(most) <= 3:
            together.wait()
        try:
            return call()
        finally:
            under_way.remove(path)

    store.on("put_if_absent", meet)
    with producer:
        futures = [producer.send("flights", b"x", partition=number % 4) for number in range(40)]
        for future in futures:
            future.result(30)
    assert max(most) == 3


def test_batches_expire_while_every_append_hangs(root):
    producer = Producer(
        root, linger_ms=0, delivery_timeout_ms=700, max_in_flight_requests_per_connection=1
    )
    store = hooked(producer)
    may_go_on = threading.Event()
    store.on("put_if_absent", lambda path, call: (may_go_on.wait(30), call())[1])
    hanging, behind = producer.send("flights", b"a", partition=0), producer.send("weather", b"b")
    with pytest.raises(UnknownOutcomeError, match="not known"):
        hanging.result(30)
    with pytest.raises(KafkaTimeoutError, match="not appended"):
        behind.result(30)
    may_go_on.set()
    producer.flush(30)
    assert producer.send("weather", b"c").exception(30) is None
    producer.close()


def test_what_waits_is_served_when_a_thread_is_free_again(root):
    with Producer(root, linger_ms=0, max_in_flight_requests_per_connection=1) as producer:
        for _ in range(100):
            futures = [producer.send("flights", b"x", partition=number) for number in range(4)]
            assert [future.result(30).partition for future in futures] == [0, 1, 2, 3]
