"""``jobs/consume.py`` used by somebody who makes mistakes, or stops it."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cli.terminal.errors import run
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member import GroupMember
from tests.jobs.conftest import HOME
from tests.record.samples import numbered

LIMIT_S = 300
POSITION = {TopicPartition("t", 0): OffsetAndMetadata(3)}


@pytest.fixture
def root(tmp_path):
    """A root with a topic of two partitions of ten records, and a group with committed offsets."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=2)])
    cluster = Cluster(url)
    for number in (0, 1):
        cluster.partition_log(cluster.topic("t"), number).append(numbered(0, 10))
    OffsetsTable(cluster).commit("g", POSITION)
    return url


@pytest.fixture
def consume(root, capsys):
    """Return a function that runs the job in this process: its exit status and its output."""
    spec = importlib.util.spec_from_file_location("consume_job", HOME / "jobs" / "consume.py")
    assert spec is not None
    assert spec.loader is not None
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)

    def consume(*arguments, topic="t"):
        argv = [topic, "--root", root, "--group", "g", *map(str, arguments)]
        with pytest.raises(SystemExit) as ended:
            run(job.main, argv=argv, prog="consume.py")
        return ended.value.code, capsys.readouterr().err

    return consume


def state(root):
    """Return everything that a mistake must not change."""
    cluster = Cluster(root)
    members = GroupCoordinator(cluster, "g").describe().members
    return OffsetsTable(cluster).fetch("g"), set(members)


class TestMistakesAreOneLineAndLoseNothing:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--assignment-strategy", "stickie"], "is 'stickie', expected list range"),
            (["--consumer-props", "session.timeout.ms=1"], "session.timeout.ms"),
            (["--consumer-props", "sesion.timeout.ms=9000"], "did you mean 'session.timeout.ms'"),
            (["--consumer-props", "group.id=h"], "group.id"),
            (["--consumer-props", "max.poll.records=9"], "does not apply to this job"),
            (["--consumer-props", "session"], "--consumer-props takes KEY=VALUE"),
            (["--members", "0"], "--members"),
            (["--to", "delta"], "--to delta needs --path"),
            (["--to", "delta", "--path", "hdfs://there/table"], "hdfs://"),
            (["--to", "delta", "--path", "s3://b/t", "--sink-option", "k=hidden"], "'k'"),
        ],
    )
    def test_in_options(self, root, consume, tmp_path, monkeypatch, arguments, says):
        monkeypatch.chdir(tmp_path)
        before = state(root)
        status, said = consume(*arguments)
        assert (status, said.count("\n")) == (2, 1), said
        assert says in said
        assert "hidden" not in said
        assert state(root) == before

    def test_about_topics(self, root, consume):
        before = state(root)
        assert consume(topic="tt") == (
            2,
            "consume.py: error: there is no topic 'tt'; did you mean t?\n",
        )
        assert state(root) == before

    def test_about_a_group_whose_members_share_another_way(self, root, consume):
        cluster = Cluster(root)
        config = ConsumerConfig.parse({"partition.assignment.strategy": "roundrobin"})
        with GroupMember(cluster, "g", OffsetsTable(cluster), config=config) as member:
            member.join(["t"])
            before = state(root)
            status, said = consume()
            assert (status, said.count("\n")) == (2, 1)
            assert "partition.assignment.strategy" in said
            assert state(root) == before

    @pytest.mark.parametrize("there", ["files", "another table", "a file"])
    def test_about_a_table_that_is_none(self, root, consume, tmp_path, there):
        path = tmp_path / "table"
        if there == "a file":
            path.write_text("x")
        elif there == "files":
            path.mkdir()
            (path / "part.parquet").write_text("x")
        else:
            write_deltalake(str(path), pa.table({"id": [1]}))
        before = state(root)
        status, said = consume("--to", "delta", "--path", path)
        assert said.count("\n") == 1, said
        assert status == (1 if there == "a file" else 2), said
        assert state(root) == before


def test_with_nothing_to_do_no_java_is_started(root, consume, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    ends = {TopicPartition("t", number): OffsetAndMetadata(10) for number in (0, 1)}
    OffsetsTable(Cluster(root)).commit("g", ends)
    assert consume("--to", "delta", "--path", tmp_path / "table", "--json")[0] == 0


@pytest.mark.long
@pytest.mark.spark
def test_one_that_follows_ends_by_a_signal_and_leaves_its_group(root, tmp_path):
    table, conf = tmp_path / "table", tmp_path / "conf"
    conf.mkdir()
    running = subprocess.Popen(
        [
            *(sys.executable, HOME / "jobs" / "consume.py", "t", "--root", root, "--group", "g"),
            *("--to", "delta", "--path", table, "--follow", "--interval", "0", "--json"),
        ],
        env=os.environ | {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + LIMIT_S

    def await_rows(count):
        while not table.exists() or DeltaTable(str(table)).to_pyarrow_table().num_rows < count:
            assert running.poll() is None, "the job has ended"
            assert time.monotonic() < deadline, "the job makes no progress"
            time.sleep(0.1)

    try:
        await_rows(17)
        cluster = Cluster(root)
        cluster.partition_log(cluster.topic("t"), 1).append(numbered(10, 5))
        await_rows(22)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=LIMIT_S)
    finally:
        running.kill()
        running.wait()

    assert running.returncode == 128 + signal.SIGINT
    assert json.loads(said.splitlines()[-1])["records_written"] in (17, 22), (
        "the last may be cancelled"
    )
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    times = Counter((row["partition"], row["offset"]) for row in rows)
    assert times == Counter([*((0, at) for at in range(3, 10)), *((1, at) for at in range(15))])
    assert GroupCoordinator(Cluster(root), "g").describe().members == {}
