"""Topics are deleted and created again under clients: they get one error, unknown topic."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_log import (
    Admin,
    CommitFailedError,
    Consumer,
    GroupIdNotFoundError,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

DELETIONS = 5
RECORDS = 40
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
WAIT_S = 60


class Load:
    """Threads that use a topic, and the results that they got."""

    def __init__(self, root, options):
        self.settings = {"root": root, "storage_options": options}
        self.is_over = threading.Event()
        self.appended = threading.Semaphore(0)
        self.errors: Counter[Any] = Counter()
        self.examples = {}

    def note(self, call, error):
        key = call, type(error).__name__
        self.errors[key] += 1
        self.examples.setdefault(key, error)

    def attempt(self, name, call):
        try:
            return call()
        except GroupIdNotFoundError:
            return None  # before its first commit, or after its offsets were deleted with the topic
        except Exception as error:
            self.note(name, error)
            return None

    def acknowledged(self, metadata):
        self.appended.release()

    def produce(self):
        with Producer(**self.settings, linger_ms=0, delivery_timeout_ms=20_000) as producer:
            number = 0
            while not self.is_over.is_set():
                number += 1
                partition = number % 3
                sent = self.attempt(
                    "send",
                    lambda: producer.send("t", b"%d" % number, partition=partition),  # noqa: B023
                )
                if sent is not None:
                    sent.add_errback(lambda error: self.note("future", error))
                    sent.add_callback(self.acknowledged)
                if sent is None or number % 20 == 0:
                    self.is_over.wait(0.002)

    def consume(self, group_id, subscribes):
        with Consumer(**self.settings, group_id=group_id, auto_offset_reset="earliest") as consumer:
            if subscribes:
                consumer.subscribe(["t"])
            while not self.is_over.is_set():
                if not subscribes:
                    self.attempt("assign", lambda: consumer.assign(PARTITIONS))
                if subscribes or consumer.assignment():
                    self.attempt("poll", lambda: consumer.poll(20))
                self.attempt("end_offsets", lambda: consumer.end_offsets(PARTITIONS))
                self.attempt("lag", consumer.lag)
                times = dict.fromkeys(PARTITIONS, 1)
                self.attempt("offsets_for_times", lambda: consumer.offsets_for_times(times))  # noqa: B023
                if group_id is not None:
                    self.attempt("commit", consumer.commit)

    def administer(self):
        admin = Admin(**self.settings)
        every = dict.fromkeys(PARTITIONS, OffsetSpec.MAX_TIMESTAMP)
        calls = {
            "describe_topics": lambda: admin.describe_topics(["t"]),
            "describe_all": admin.describe_topics,
            "describe_log_dirs": admin.describe_log_dirs,
            "list_offsets": lambda: admin.list_offsets(every),
            "delete_records": lambda: admin.delete_records(dict.fromkeys(PARTITIONS, -1)),
            "group_lag": lambda: admin.group_lag("g"),
        }
        while not self.is_over.is_set():
            for name, call in calls.items():
                self.attempt(name, call)

    def delete_again_and_again(self):
        admin = Admin(**self.settings)
        for _ in range(DELETIONS):
            admin.create_topics([NewTopic("t", num_partitions=3)])
            for _ in range(RECORDS):
                assert self.appended.acquire(timeout=WAIT_S), "nothing is appended any more"
            admin.delete_topics(["t"])


@pytest.mark.parametrize(
    "address",
    ["local", pytest.param("S3 server", marks=pytest.mark.long)],  # deletions wait for the lease
    indirect=True,
)
def test_a_topic_deleted_under_load_is_unknown_and_nothing_else(address):
    load = Load(*address)
    Admin(**load.settings).create_topics([NewTopic("other")])
    with ThreadPoolExecutor() as pool:
        threads = [
            pool.submit(load.produce),
            pool.submit(load.produce),
            pool.submit(load.consume, None, False),
            pool.submit(load.consume, None, True),
            pool.submit(load.consume, "g", True),
            pool.submit(load.administer),
        ]
        try:
            load.delete_again_and_again()
        finally:
            load.is_over.set()
        for thread in threads:
            thread.result(WAIT_S)
    expected = {UnknownTopicOrPartitionError.__name__}
    # A member that has lost a topic that was deleted and created again cannot commit its offsets.
    expected_of_commit = {*expected, CommitFailedError.__name__}
    others = {
        call: repr(load.examples[call, name])
        for call, name in load.errors
        if name not in (expected_of_commit if call == "commit" else expected)
    }
    assert others == {}
    told = {call for call, _ in load.errors}
    assert {"send", "future", "describe_topics"} <= told, "it was deleted under their hands"
    assert not told & {"describe_all", "describe_log_dirs", "group_lag"}
