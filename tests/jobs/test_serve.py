"""Gateways in Spark's executors: they serve, come back after the loss of an executor, and drain."""

import json
import os
import shlex
import signal
import subprocess
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator.gateways import read_gateways
from spark_log.testing.servers.standalone import StandaloneCluster
from spark_log.util import SYSTEM_CLOCK
from tests.docs.blocks import block
from tests.gateway.processes import free_port
from tests.jobs.conftest import BIN, ENVIRONMENT, HOME
from tests.waiting import wait_until

_PATIENCE_S = 120


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    Cluster(root, create=True).release()
    return root


class Job:
    """``spark-submit jobs/serve.py``, whose gateways are on ports from `port` on."""

    def __init__(self, root, folder, master, line, more):
        self.port, self.metrics_port = free_port(), free_port()
        program, script, *options = shlex.split(line.removeprefix("SPARK_CONF_DIR=conf "))
        given = {
            ".demo/log": root,
            "127.0.0.1:9092": f"127.0.0.1:{self.port}",
            "9405": str(self.metrics_port),
        }
        conf = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
        command = [BIN / program, "--master", master, *conf, HOME / script]
        options = [given.get(each, each) for each in options]
        self.log = folder / "serve.log"
        # Spark puts what Python writes to stderr among what it writes to stdout.
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*map(str, [*command, *options, *more]), "--json"],
                env=ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._served = 0

    def next_gateway(self):
        """Return what the job prints of the next gateway that serves."""

        def found():
            assert self.process.poll() is None, f"the job has ended:\n{self.said[-3000:]}"
            lines = [line for line in self.said.splitlines() if line.startswith("{")]
            return lines[self._served :]

        line, *_ = wait_until(found, "no gateway starts", timeout_s=_PATIENCE_S, interval_s=0.1)
        self._served += 1
        return json.loads(line)

    @property
    def said(self):
        """The text that the job has printed."""
        return self.log.read_text()


@contextmanager
def serving(root, folder, master, line=None, more=()):
    job = Job(root, folder, master, line or block("docs/gateway.md", "--gateways 2"), more)
    try:
        yield job
    finally:
        job.process.kill()
        job.process.wait()


def produce(address, values):
    """Send records, and return how many were acknowledged."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for value in values:
        producer.produce(
            "t", value, partition=0, on_delivery=lambda error, _: acknowledged.append(error)
        )
    producer.flush(_PATIENCE_S)
    return acknowledged.count(None)


def values_of(root, count):
    with Consumer(root=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found: list[object] = []
        while len(found) < count:
            records = consumer.poll(10_000)
            assert records, found[-1:]
            found += [each.value for batch in records.values() for each in batch]
    return found


@pytest.mark.spark
@pytest.mark.long
def test_the_gateway_of_a_lost_executor_comes_back_in_another_one(root, tmp_path):
    first, second = ([b"%d-%d" % (part, n) for n in range(500)] for part in range(2))
    with (
        StandaloneCluster(workers=2, memory="1g") as cluster,
        serving(root, tmp_path, cluster.url) as job,
    ):
        before = [job.next_gateway() for _ in range(2)]
        assert sorted(each["port"] for each in before) == [job.port, job.port + 1]
        addresses = ",".join(f"127.0.0.1:{each['port']}" for each in before)
        assert produce(addresses, first) == 500
        (victim, *_) = executors_of(cluster)
        os.kill(victim, signal.SIGKILL)
        assert produce(addresses, second) == 500
        after = job.next_gateway()
        assert after["number"] in {each["number"] for each in before}
        assert produce(f"127.0.0.1:{after['port']}", [b"last"]) == 1
    assert values_of(root, 1001) == [*first, *second, b"last"]


@pytest.mark.spark
@pytest.mark.long
def test_gateways_answer_what_they_have_received_when_the_job_is_stopped(root, tmp_path):
    with serving(root, tmp_path, "local[2]") as job:
        address = ",".join(f"127.0.0.1:{job.next_gateway()['port']}" for _ in range(2))
        assert produce(address, [b"one", b"two"]) == 2
        job.process.send_signal(signal.SIGTERM)
        job.process.wait(_PATIENCE_S)
    assert not read_gateways(Cluster(root).store, SYSTEM_CLOCK)
    assert values_of(root, 2) == [b"one", b"two"]
    assert "starts again" not in job.said


SCALING = (
    *("--busy-load", "0.2", "--busy-timeout", "2", "--idle-timeout", "5"),
    *("--override", "broker.join.delay.ms=500", "--override", "broker.heartbeat.interval.ms=300"),
)
"""The options of a job whose gateways come and go soon, also on a busy machine."""


class Load:
    """Idempotent producers of numbered values in all partitions of a topic, until they are ended.

    Attributes:
        partitions: the number of partitions.
        sent: the number of values of each partition.
        failed: errors of deliveries.
    """

    def __init__(self, address, partitions):
        self.partitions, self.sent = partitions, 0
        self.failed: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "log_level": 0,  # gateways end
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 500,
                "metadata.recovery.rebootstrap.trigger.ms": 5000,
            }
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        def on_delivery(error, message):
            if error is not None:
                self.failed.append(error)

        while not self._ending.wait(0.004):
            for partition in range(self.partitions):
                self._producer.produce(
                    "many",
                    b"%08d" % self.sent + bytes(1000),
                    partition=partition,
                    on_delivery=on_delivery,
                )
            self.sent += 1
            self._producer.poll(0)

    def end(self):
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(_PATIENCE_S) == 0
        assert not self.failed


def metric(job, name):
    """Return the value of a metric of the job's driver, which has the labels of ``name``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{job.metrics_port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
    return None


@pytest.mark.spark
@pytest.mark.long
def test_load_starts_a_second_gateway_which_drains_when_the_load_is_over(root, tmp_path):
    Admin(root).create_topics([NewTopic("many", num_partitions=8)])
    with (
        StandaloneCluster(workers=2, memory="1g") as cluster,
        serving(
            root, tmp_path, cluster.url, block("docs/gateway.md", "--max-gateways"), SCALING
        ) as job,
    ):
        assert job.next_gateway()["number"] == 0
        load = Load(f"127.0.0.1:{job.port}", 8)
        second = job.next_gateway()
        assert second["number"] == 1
        assert second["port"] == job.port + 1
        # The clients find it: its partitions' leader is another one now.
        moved = 'spark_log_serve_gateway_bytes_total{gateway="1"}'
        wait_until(lambda: (metric(job, moved) or 0) > 1e6, timeout_s=_PATIENCE_S, interval_s=0.2)
        load.end()
        store = Cluster(root).store
        wait_until(
            lambda: (
                len(read_gateways(store, SYSTEM_CLOCK)) == 1
                and metric(job, "spark_log_serve_gateways") == 1
            ),
            timeout_s=_PATIENCE_S,
            interval_s=0.2,
        )
        assert metric(job, "spark_log_serve_gateways_wanted") == 1
        # Its core is free: another load starts a second gateway again.
        again = Load(f"127.0.0.1:{job.port}", 8)
        assert job.next_gateway()["number"] == 1
        again.end()
    found = values_by_partition(root, "many", 8, load.sent + again.sent)
    expected = [*range(load.sent), *range(again.sent)]
    assert all([int(value[:8]) for value in values] == expected for values in found.values())
    said = job.said
    assert "2 gateways instead of 1: for 2 s their mean load was 0.2 or more" in said
    assert "1 gateways instead of 2: for 5 s" in said
    assert "starts again" not in said


def values_by_partition(root, topic, partitions, count):
    """Return the values of each partition, when each has `count` of them or more."""
    with Consumer(root=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
        ends = consumer.end_offsets(consumer.assignment())
        found: dict[int, list[Any]] = {each: [] for each in range(partitions)}
        while any(consumer.position(each) < end for each, end in ends.items()):
            for each, records in consumer.poll(10_000).items():
                found[each.partition] += [record.value for record in records]
    assert all(len(values) >= count for values in found.values())
    return found


def test_fewer_gateways_than_the_smallest_number_are_refused(job):
    status, _, err = job("serve", "--gateways", "3", "--max-gateways", "2")
    assert status == 2
    assert "--max-gateways is 2, less than --gateways, which is 3" in err


def executors_of(cluster):
    """Return the processes of executors, which are children of the workers."""
    workers = {each.pid for each in cluster.workers}
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            command = status.with_name("cmdline").read_text()
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent in workers and "ExecutorBackend" in command:
            found.append(int(status.parent.name))
    return found
