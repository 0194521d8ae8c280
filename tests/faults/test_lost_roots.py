"""Roots of a replicated topic are lost, emptied and found, and writers killed: all is read once."""

import logging
import os
import random
import signal
import time
from collections import Counter

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.errors import SparkLogError
from spark_log.metadata import Cluster
from spark_log.replication import ClusterReplicator, out_of_sync_replicas
from tests.faults.managed_process import ManagedProcess
from tests.faults.operation_notes import (
    check_operations,
    polled,
    read_of_log,
    read_operations,
    sends,
)
from tests.faults.replica_process import (
    PARTITIONS,
    TOPIC,
    ReplicaRole,
    read_until_told,
    write_until_told,
)
from tests.waiting import wait_until

FAULTS = int(os.environ.get("FAULTS_COUNT", "6"))
SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
BROKERS = (1, 2, 3)
WRITERS = 2

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


class Campaign:
    """Three brokers, writers and a reader, and what happens to them."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.root = str(folder / "cluster")
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._started = 0
        self._everyone = []
        with Admin(self.root) as admin:
            admin.create_topics([NewTopic("first")])
            for broker_id in BROKERS:
                admin.register_broker(broker_id, str(self._directory(broker_id)))
            assignment = {number: self._shuffled() for number in range(PARTITIONS)}
            config = {
                "flush.on.append": "false",
                "merge.tail.segments": "8",
                "min.insync.replicas": "2",
            }
            admin.create_topics(
                [NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, topic_configs=config)]
            )
        self._writers = [self._start(write_until_told, "writer") for _ in range(WRITERS)]
        self._start(read_until_told, "reader")

    def run(self, faults):
        """Let one thing happen after the other; return when all processes have ended."""
        try:
            self._go_on()
            for number in range(faults):
                fault = self._chance.choice([self._lose, self._lose, self._wipe, self._kill])
                fault()
                _LOG.info("fault %d of %d: %s", number + 1, faults, dict(self.done))
                self._go_on()
            self._bring_back()
            ended = {each.role.name: each.end() for each in self._everyone}
        finally:
            for each in self._everyone:
                each.signal(signal.SIGKILL)
        wrong = {name: code for name, code in ended.items() if code not in (0, -signal.SIGKILL)}
        assert not wrong, f"ended by themselves or were stuck: {wrong}"

    # --- what happens ----------------------------------------------------------------------------

    def _lose(self):
        """Take a root away, like a disk that is unmounted; later it is there again."""
        broker_id = self._chance.choice(BROKERS)
        self.done["lost"] += 1
        here, away = self._directory(broker_id), self.folder / f"away-{self.done['lost']}"
        here.rename(away)
        self._go_on()
        if here.exists():  # a put in that moment made it again
            here.rename(self.folder / f"made-{self.done['lost']}")
        away.rename(here)
        self._bring_back()

    def _wipe(self):
        """Take a root away for ever; an empty one is registered in its place."""
        broker_id = self._chance.choice(BROKERS)
        self.done["wiped"] += 1
        here = self._directory(broker_id)
        here.rename(self.folder / f"wiped-{self.done['wiped']}")
        self._go_on()
        if here.exists():
            here.rename(self.folder / f"made-wiped-{self.done['wiped']}")
        with Admin(self.root) as admin:
            admin.fence_broker(broker_id)
            admin.register_broker(broker_id, str(here))
        self._bring_back()

    def _kill(self):
        """Kill a writer; another one takes its place."""
        self.done["killed"] += 1
        number = self._chance.randrange(WRITERS)
        self._writers[number].signal(signal.SIGKILL)
        self._writers[number].process.join()
        self._writers[number] = self._start(write_until_told, "writer")

    # --- what has to go on -----------------------------------------------------------------------

    def _bring_back(self):
        """Replicate until all replicas are in sync."""

        def all_are_in_sync():
            cluster = Cluster(self.root)
            missing = out_of_sync_replicas(cluster.image())
            for each in ClusterReplicator(cluster).catch_up(missing):
                if each.error is not None:
                    _LOG.info("%s: %s", each.replica, each.error)
            return not out_of_sync_replicas(cluster.image())

        wait_until(all_are_in_sync, "a replica does not come back")

    def _go_on(self):
        """Wait until more records were read in every partition."""
        before = self._ends()
        wait_until(
            lambda: all(end >= start + 20 for end, start in zip(self._ends(), before, strict=True)),
            "nobody appends",
            interval_s=0.05,
        )

    def _ends(self):
        cluster = Cluster(self.root)
        topic = cluster.topic(TOPIC)
        try:
            return [
                cluster.partition_log(topic, number).log_end_offset()
                for number in range(PARTITIONS)
            ]
        except SparkLogError as error:
            assert error.retriable, error  # noqa: PT017 - not what is tested
            return [-1] * PARTITIONS

    # --- the cluster -----------------------------------------------------------------------------

    def _directory(self, broker_id):
        return self.folder / f"broker{broker_id}"

    def _shuffled(self):
        return self._chance.sample(BROKERS, len(BROKERS))

    def _start(self, work, what):
        role = ReplicaRole(self.root, str(self.notes / f"{what}{self._started}"))
        self._started += 1
        self._everyone.append(ManagedProcess.start(work, role))
        return self._everyone[-1]


def check(campaign):
    """Check the log and what readers saw against the writers' notes; return counts."""
    cluster = Cluster(campaign.root)
    topic = cluster.topic(TOPIC)
    operations = read_operations(campaign.notes)
    for number in range(PARTITIONS):
        partition = TopicPartition(TOPIC, number)
        assert len(set(topic.partitions[number].isr)) == len(BROKERS)
        contents = [
            _records(cluster.replica_log(topic, number, broker_id)) for broker_id in BROKERS
        ]
        assert contents[0] == contents[1] == contents[2], f"replicas of {partition} differ"
        operations.append(read_of_log(partition, contents[0]))
    check_operations(operations)
    acknowledged = [each for each in sends(operations) if each.offset is not None]
    read = polled(each for each in operations if each.process.startswith("reader"))
    return {"acknowledged": len(acknowledged), "read meanwhile": len(read)}


def _records(log):
    return [
        (offset, value.decode())
        for batch in log.scan(0)
        for offset, value in zip(
            batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
        )
    ]


@pytest.mark.long
def test_no_acknowledged_record_is_lost_or_doubled(tmp_path):
    _LOG.info("FAULTS_SEED=%d", SEED)
    campaign = Campaign(tmp_path, SEED)
    began_s = time.monotonic()
    campaign.run(FAULTS)
    counts = check(campaign)
    _LOG.info("%s in %.0f s: %s", dict(campaign.done), time.monotonic() - began_s, counts)
    assert counts["acknowledged"] > 100 * FAULTS
    assert counts["read meanwhile"]
