"""Gateways in Spark's executors: they serve, come back after the loss of an executor, and drain."""

import json
import os
import shlex
import signal
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_log import Consumer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator.gateways import read_gateways
from spark_log.testing.servers.standalone import StandaloneCluster
from spark_log.util import SYSTEM_CLOCK
from tests.docs.blocks import block
from tests.gateway.processes import free_port
from tests.jobs.conftest import BIN, ENVIRONMENT, HOME

_PATIENCE_S = 120


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    Cluster(root, create=True).release()
    return root


class Job:
    """``spark-submit jobs/serve.py``, whose gateways are on ports from `port` on."""

    def __init__(self, root, folder, master):
        self.port = free_port()
        line = block("docs/gateway.md", "jobs/serve.py").removeprefix("SPARK_CONF_DIR=conf ")
        program, script, *options = shlex.split(line)
        given = {".demo/log": root, "127.0.0.1:9092": f"127.0.0.1:{self.port}"}
        conf = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
        command = [BIN / program, "--master", master, *conf, HOME / script]
        options = [given.get(each, each) for each in options]
        self.log = folder / "serve.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*map(str, [*command, *options]), "--json"],
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def next_gateway(self):
        """Return what the job prints of the next gateway that serves."""
        assert self.process.stdout is not None
        timer = threading.Timer(_PATIENCE_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            timer.cancel()
        raise AssertionError(f"the job has ended:\n{self.log.read_text()[-3000:]}")


@contextmanager
def serving(root, folder, master):
    job = Job(root, folder, master)
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
    with Consumer(root, auto_offset_reset="earliest") as consumer:
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
        assert after["id"] not in {each["id"] for each in before}
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
    assert "starts again" not in job.log.read_text()


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
