"""Processes that change a topic's number of stripes are killed beside producers and consumers."""

import logging
import os
import random
import threading
import time
from collections import defaultdict

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import open_cluster
from spark_log.cluster.cleaner import ClusterCleaner
from tests.faults.managed_process import ManagedProcess
from tests.faults.stripe_change_process import TOPIC, change_until_stopped

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "3"))
"""Duration of the faults. A long run, which logs its results:

FAULTS_SECONDS=300 pytest tests/faults/test_killed_stripe_changes.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
WAIT_S = 120

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


class Clients:
    """Producers, one of them transactional, and a consumer, on threads.

    Attributes:
        sent: partition → offset and value of each acknowledged record that was not aborted.
        got: partition → offset and value of each record that was read.
    """

    def __init__(self, url, storage_options):
        self._address = {"root": url, "storage_options": storage_options}
        self.sent, self.got = defaultdict(list), defaultdict(list)
        self._is_over = threading.Event()
        self._errors = []
        self._producers = [
            threading.Thread(target=self._run, args=(self._produce, name, transactional_id))
            for name, transactional_id in (("a", None), ("b", "b"))
        ]
        self._consumer = threading.Thread(target=self._run, args=(self._consume,))

    def __enter__(self):
        for thread in (*self._producers, self._consumer):
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in (*self._producers, self._consumer):
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert self._errors == []

    def _run(self, work, *args):
        try:
            work(*args)
        except BaseException as error:
            _LOG.exception("a client fails")
            self._errors.append(error)
            self._is_over.set()

    def _produce(self, name, transactional_id):
        number, choose = 0, random.Random(SEED)
        with Producer(**self._address, linger_ms=1, transactional_id=transactional_id) as producer:
            if transactional_id:
                producer.init_transactions()
            while not self._is_over.is_set():
                if transactional_id:
                    producer.begin_transaction()
                values = [f"{name}-{number + each}".encode() for each in range(8)]
                number += len(values)
                futures = [
                    producer.send(TOPIC, value, partition=each % 4)
                    for each, value in enumerate(values)
                ]
                producer.flush()
                if transactional_id and choose.random() < 0.3:
                    producer.abort_transaction()
                    continue
                if transactional_id:
                    producer.commit_transaction()
                for value, future in zip(values, futures, strict=True):
                    info = future.result()
                    self.sent[info.partition].append((info.offset, value))

    def _consume(self):
        with Consumer(
            **self._address, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(PARTITIONS)
            until_s = float("inf")
            while not self._is_complete():
                if self._is_over.is_set() and until_s == float("inf"):
                    until_s = time.monotonic() + WAIT_S
                assert time.monotonic() < until_s, {each: len(self.got[each]) for each in self.got}
                for tp, found in consumer.poll(100).items():
                    self.got[tp.partition] += [(each.offset, each.value) for each in found]

    def _is_complete(self):
        return (
            self._is_over.is_set()
            and not any(each.is_alive() for each in self._producers)
            and all(len(self.got[each]) >= len(self.sent[each]) for each in range(4))
        )


@pytest.mark.parametrize("stripes", [2, pytest.param(0, marks=pytest.mark.long)])
def test_nothing_is_lost_or_doubled_although_changes_are_killed(address, stripes):
    url, storage_options = address
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    choose, kills = random.Random(SEED), 0
    Admin(url, storage_options=storage_options).create_topics(
        [NewTopic(TOPIC, len(PARTITIONS), topic_configs={"stripes": stripes})]
    )
    role = url, storage_options, SEED
    with Clients(url, storage_options) as clients:
        end_s = time.monotonic() + DURATION_S
        while time.monotonic() < end_s:
            changers = [
                ManagedProcess.start(change_until_stopped, (*role[:2], SEED + kills + each))
                for each in range(choose.choice((1, 1, 2)))
            ]
            changers[0].process.join(choose.uniform(0.05, 1.5))
            for each in changers:
                each.process.kill()
                each.process.join()
                each.let_end()
                kills += 1
        # Appends may wait for a change that was killed: a cleaner completes it.
        cluster = open_cluster(url, storage_options)
        assert not [each for each in ClusterCleaner(cluster).clean() if each.error]
    topic = open_cluster(url, storage_options).topic(TOPIC)
    _LOG.info(
        "%d kills, %d changes, %d records",
        kills,
        topic.partitions[0].leader_epoch,
        sum(map(len, clients.sent.values())),
    )
    assert topic.moving_to is None
    for partition in range(len(PARTITIONS)):
        assert clients.got[partition] == sorted(clients.sent[partition])
