"""An S3 server hangs, is killed and restarted, under producers, a group and a cleaner.

No acknowledged record is lost or duplicated, and every call returns by its deadline. Producers and
members note their operations, which the history checker checks.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from spark_log import (
    Admin,
    Consumer,
    ConsumerRebalanceListener,
    NewTopic,
    Producer,
    SparkLogError,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.testing.history import Polled
from spark_log.testing.servers.s3_server import versitygw_binary
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    read_of_log,
    read_operations,
    sends,
)
from tests.faults.restarted_server import RestartedServer
from tests.log.support import values
from tests.waiting import wait_until

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "3"))
"""Duration of the faults in each test. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_failing_s3_server.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))

SLACK_MS = 5_000
"""Tolerance for deadlines on a busy machine."""

LONG_S = 20
"""From this duration on, some failures last longer than the deadline of every call."""

DELETE_DELAY_MS = 1_000
API_MS, BLOCK_MS, POLL_MS = 1_000, 800, 100
PARTITIONS = 3
SETTLE_S = 120

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)

pytestmark = pytest.mark.skipif(
    not versitygw_binary().exists(), reason="needs a server that keeps its data: make s3-server"
)


class NotesRebalances(ConsumerRebalanceListener):
    """Notes that a member's next polls may begin anywhere in its new partitions."""

    def __init__(self, notes):
        self._notes = notes

    def on_partitions_assigned(self, assigned):
        self._notes.assign(assigned)


class Campaign:
    """Threads that use a topic while the server fails, and the results that they got."""

    def __init__(self, server, root, notes):
        self.server = server
        self.notes = notes
        self.settings = {"root": root, "storage_options": server.server.storage_options}
        self.random = random.Random(SEED)
        self.is_over = threading.Event()
        self.is_drained = threading.Event()
        self.done: Counter[str] = Counter()
        self.late = []
        self.consumed = defaultdict(set)
        self._lock = threading.Lock()

    def timed(self, name, limit_ms, call):
        """Call a function, note its duration, and return its result; None: retriable error."""
        began = time.monotonic()
        try:
            return call()
        except SparkLogError as error:
            self.check_retriable(name, error)
            self.done[f"{name}: {type(error).__name__}"] += 1
            return None
        finally:
            took_ms = (time.monotonic() - began) * 1000
            self.done[name] += 1
            if took_ms > limit_ms + SLACK_MS:
                self.late.append((name, limit_ms, round(took_ms)))

    def check_retriable(self, name, error):
        assert error.retriable, f"{name}: {error!r}"

    # --- who uses it -----------------------------------------------------------------------------

    def produce(self, name):
        settings: dict[str, Any] = {
            "linger_ms": 2,
            "max_block_ms": BLOCK_MS,
            "request_timeout_ms": 1_000,
        }
        producer = None  # the server may fail before the producer has opened the root
        while producer is None:
            producer = self.timed("open", 1_000, lambda: Producer(**self.settings, **settings))
        number = 0

        def send():
            partition = TopicPartition("t", number % PARTITIONS)
            operation = notes.begin(partition, f"{name}-{number}")
            try:
                future = producer.send(
                    "t", f"{name}-{number}".encode(), partition=partition.partition
                )
            except SparkLogError:
                notes.refuse(operation)
                raise
            future.add_callback(lambda metadata: notes.acknowledge(operation, [metadata.offset]))

        with OperationNotes(self.notes / name) as notes:
            while not self.is_over.is_set():
                self.timed("send", BLOCK_MS, send)
                number += 1
                if number % 10 == 0:
                    self.is_over.wait(0.005)
            producer.flush(SETTLE_S)
            producer.close(SETTLE_S)

    def consume(self, name):
        with OperationNotes(self.notes / name) as notes:
            self._consume(notes)

    def _consume(self, notes):
        consumer = None
        while not self.is_drained.is_set():
            if consumer is None:
                consumer = self.timed("open a consumer", API_MS, self._open_consumer)
                if consumer is not None:
                    consumer.subscribe(["t"], listener=NotesRebalances(notes))
                continue
            polled = self.timed("poll", POLL_MS, partial(consumer.poll, POLL_MS)) or {}
            for partition, records in polled.items():
                notes.poll(
                    *(Polled(partition, each.offset, each.value.decode()) for each in records)
                )
                with self._lock:
                    self.consumed[partition].update(each.offset for each in records)
            if polled:
                self.timed("commit", API_MS, consumer.commit)
            elif not self.is_over.is_set():
                ends = partial(consumer.end_offsets, [TopicPartition("t", 0)])
                self.timed("end_offsets", API_MS, ends)
        if consumer is not None:
            self.timed("close a consumer", API_MS, partial(consumer.close, timeout_ms=API_MS))

    def _open_consumer(self):
        return Consumer(
            **self.settings,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            session_timeout_ms=6_000,
            default_api_timeout_ms=API_MS,
            request_timeout_ms=1_000,
        )

    def clean(self):
        while not self.is_over.is_set():
            try:
                cluster = Cluster(**self.settings, request_timeout_ms=1_000)
                for cleaned in ClusterCleaner(cluster, ["t"]).clean():
                    assert cleaned.error is None or cleaned.error.retriable, repr(cleaned.error)
                    self.done["cleaned" if cleaned.error is None else "not cleaned"] += 1
            except SparkLogError as error:
                self.check_retriable("clean", error)
            self.is_over.wait(0.1)

    def administer(self):
        while not self.is_over.is_set():
            admin = Admin(**self.settings, default_api_timeout_ms=API_MS, request_timeout_ms=1_000)
            self.timed("list_topics", API_MS, admin.list_topics)
            self.timed("describe", API_MS, partial(admin.describe_topics, ["t"]))
            self.is_over.wait(0.1)

    # --- what fails ------------------------------------------------------------------------------

    def fail(self):
        """Repeatedly let the server hang, or kill it."""
        until = time.monotonic() + DURATION_S
        while time.monotonic() < until:
            # Up to more than half of ``file.delete.delay.ms``.
            pause_s = self.random.choice((0.02, 0.2, 0.5, 1.2)) * DELETE_DELAY_MS / 1000
            if DURATION_S > LONG_S and self.random.random() < 0.1:
                pause_s = 2 * SLACK_MS / 1000  # long enough to detect a call without a deadline
            if self.random.random() < 0.6:
                with self.server.server.frozen():
                    self.is_over.wait(pause_s)
                self.done["frozen"] += 1
            else:
                self.server.restart(partial(self.is_over.wait, pause_s))
                self.done["killed"] += 1
            self.is_over.wait(self.random.choice((0.05, 0.3, 0.6)))

    # --- what has to hold ------------------------------------------------------------------------

    def stored(self):
        """Return the offsets and values of each partition."""
        cluster = Cluster(**self.settings)
        topic = cluster.topic("t")
        found = {}
        for partition in range(PARTITIONS):
            log = cluster.partition_log(topic, partition)
            found[TopicPartition("t", partition)] = [
                (offset, value.decode()) for offset, value in values(log)
            ]
        return found

    def wait_until_consumed(self, ends):
        def is_consumed():
            with self._lock:
                return all(len(self.consumed[number]) == end for number, end in ends.items())

        wait_until(is_consumed, f"not all of {ends} were consumed", timeout_s=SETTLE_S)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "s3"
    folder.mkdir()
    server = RestartedServer(folder)
    yield server
    server.close()


@pytest.mark.parametrize("stripes", [0, 2])
def test_nothing_is_lost_or_doubled_and_every_call_returns(stripes, server, tmp_path):
    root = f"{server.server.new_bucket()}/root"
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    notes = tmp_path / "notes"
    notes.mkdir()
    campaign = Campaign(server, root, notes)
    configs = {
        "file.delete.delay.ms": DELETE_DELAY_MS,
        "merge.tail.segments": 8,
        "snapshot.interval.segments": 4,
        "stripes": stripes,
    }
    topic = NewTopic("t", num_partitions=PARTITIONS, topic_configs=configs)
    Admin(**campaign.settings).create_topics([topic])
    with ThreadPoolExecutor() as pool:
        producers = [pool.submit(campaign.produce, name) for name in ("a", "b")]
        others = [pool.submit(campaign.clean), pool.submit(campaign.administer)]
        members = [pool.submit(campaign.consume, f"member-{number}") for number in range(2)]
        try:
            campaign.fail()
            campaign.is_over.set()
            for each in (*producers, *others):
                each.result(2 * SETTLE_S)
            stored = campaign.stored()
            campaign.wait_until_consumed({number: len(stored[number]) for number in stored})
        finally:
            campaign.is_over.set()
            campaign.is_drained.set()
        for each in members:
            each.result(SETTLE_S)
    _LOG.info("done: %s", dict(sorted(campaign.done.items())))
    operations = read_operations(notes)
    acknowledged = [each for each in sends(operations) if each.offset is not None]
    _LOG.info("acknowledged: %d", len(acknowledged))
    assert acknowledged
    check_operations([*operations, *(read_of_log(*each) for each in stored.items())])
    assert campaign.done["frozen"] + campaign.done["killed"] > 1
    assert campaign.late == []
