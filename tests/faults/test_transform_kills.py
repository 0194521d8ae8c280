"""Members that consume, transform and produce in transactions are killed and stopped.

Each record of the source is once in the target, as a reader of committed records sees it, and the
history of all clients has no anomaly.
"""

import logging
import os
import random
import signal
import time
from collections import Counter

import pytest

from spark_log import Admin, ConfigResource, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster
from tests.faults.fast_clock import SPEED
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.faults.operation_notes import (
    OperationNotes,
    check_operations,
    read_of_log,
    read_operations,
)
from tests.faults.transform_process import (
    GROUP,
    SOURCE,
    TARGET,
    TransformRole,
    transform_until_stopped,
)
from tests.log.support import values_of
from tests.waiting import wait_until

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "4"))
"""Duration of the faults. A long run, which logs its events and results:

FAULTS_SECONDS=300 FAULTS_MEMBERS=8 pytest tests/faults/test_transform_kills.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
MEMBERS = int(os.environ.get("FAULTS_MEMBERS", "4"))
PARTITIONS = 4
SESSION_MS = {"local": 7_000, "S3 server": 21_000}
"""Session and transaction timeout of the members' clocks, which run `SPEED` times as fast."""

UNSYNCED = {"flush.on.append": "false"}

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


class Transformers:
    """The processes of the group; those that end are replaced."""

    def __init__(self, place, session_ms, notes):
        self.random = random.Random(SEED)
        self.done: Counter[str] = Counter()
        self.ids: set[str] = set()
        self._place, self._session_ms, self._notes = place, session_ms, notes
        self._live: list[ManagedProcess] = []
        self._started = 0

    def start(self, transactional_id=None):
        self._started += 1
        name = f"member-{self._started}"
        transactional_id = transactional_id or f"tx-{self._started}"
        self.ids.add(transactional_id)
        root, options = self._place
        role = TransformRole(
            root,
            options,
            name,
            transactional_id,
            str(self._notes / name),
            {"session_timeout_ms": self._session_ms, "heartbeat_interval_ms": 1000},
            {"transaction_timeout_ms": self._session_ms},
        )
        self._live.append(ManagedProcess.start(transform_until_stopped, role))

    def afflict(self):
        """Kill a process, or stop one so long that the others take it for dead."""
        victim = self.random.choice(self._live)
        assert isinstance(victim.role, TransformRole)
        if self.random.random() < 0.6:
            self.done["killed"] += 1
            victim.signal(signal.SIGKILL)
            victim.process.join()
            self._live.remove(victim)
            # The next process has its transactional id, or one of its own.
            self.start(self.random.choice([victim.role.transactional_id, None]))
        else:
            self.done["stopped"] += 1
            victim.stop()
            time.sleep(self.random.choice([0.2, 1.5 * self._session_ms / SPEED / 1000]))
            victim.resume()

    def replace_ended(self):
        """Replace processes that were fenced by others with their transactional id."""
        for each in [each for each in self._live if not each.process.is_alive()]:
            assert each.process.exitcode == 0, f"{each.role} failed"
            self._live.remove(each)
            self.done["fenced"] += 1
            self.start()

    def end(self):
        codes = [each.end() for each in self._live]
        assert codes == [0] * len(codes)


@pytest.fixture
def place(address):
    """Return the address and the storage options of a root with both topics."""
    root, options = address
    with Admin(root, storage_options=options) as admin:
        admin.create_topics(
            [NewTopic(name, PARTITIONS, topic_configs=UNSYNCED) for name in (SOURCE, TARGET)]
        )
        admin.alter_configs(
            [ConfigResource("broker", "", {"group.min.session.timeout.ms": "1000"})]
        )
    return address


@pytest.mark.parametrize(
    "address", ["local", pytest.param("S3 server", marks=pytest.mark.long)], indirect=True
)
def test_each_record_is_transformed_once(place, request, tmp_path):
    root, options = place
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    session_ms = SESSION_MS[request.node.callspec.params["address"]]
    transformers = Transformers(place, session_ms, notes)
    for _ in range(MEMBERS):
        transformers.start()
    sent = 0
    with (
        Producer(root, storage_options=options) as producer,
        OperationNotes(notes / "producer") as operations,
    ):
        until_s = time.monotonic() + DURATION_S
        while time.monotonic() < until_s:
            for _ in range(40):
                _send(producer, operations, sent)
                sent += 1
            producer.flush()
            time.sleep(0.1 * transformers.random.random())
            if transformers.random.random() < 0.2:
                transformers.afflict()
            transformers.replace_ended()

    with Admin(root, storage_options=options) as admin:
        wait_until(
            lambda: sum(each.offset for each in admin.list_group_offsets(GROUP).values()) == sent,
            "the group does not come to the end",
            meanwhile=transformers.replace_ended,
            interval_s=0.2,
        )
    transformers.end()
    for each in transformers.ids:  # what killed processes have left open
        with Producer(root, storage_options=options, transactional_id=each) as producer:
            producer.init_transactions()
    written = [path for path in notes.iterdir() if not path.suffix]
    outcomes = Counter(note[0] for path in written for note in read_notes(path))
    _LOG.info("done: %s; %d records; %s", dict(transformers.done), sent, dict(outcomes))
    reads = list(_read_all(place))
    found = Counter(int(value.split(".")[0]) for each in reads for _, value in each[1])
    assert {each: times for each, times in found.items() if times > 1} == {}
    assert found.keys() == set(range(sent))
    check_operations([*read_operations(notes), *(read_of_log(*each) for each in reads)])


def _send(producer, operations, number):
    source = TopicPartition(SOURCE, number % PARTITIONS)
    operation = operations.begin(source, str(number))
    future = producer.send(SOURCE, b"%d" % number, partition=source.partition)
    future.add_callback(lambda sent: operations.acknowledge(operation, [sent.offset]))


def _read_all(place):
    """Yield each partition of the target, with offsets and values of its committed records."""
    cluster = Cluster(*place)
    topic = cluster.topic(TARGET)
    for partition in range(PARTITIONS):
        log = cluster.partition_log(topic, partition)
        assert log.transactions().open == (), "a transaction hangs"
        batches = log.scan(log.observe().log_start_offset, isolation_level="read_committed")
        found = [(offset, value.decode()) for offset, value in values_of(batches)]
        yield TopicPartition(TARGET, partition), found
