"""docs/gateway-clients.md: its examples, with the programs that they are about."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.java_program import SMALL_JVM
from benchmarks.kafka_broker import KafkaBroker, fetch_jars, find_java
from benchmarks.kafka_connect import ConnectProcess, connect_jars
from benchmarks.spark_vs_kafka import connector_jars
from benchmarks.streams_application import STREAMS_ARTIFACTS
from tests.docs.blocks import block
from tests.gateway.connect.debezium import debezium_plugins
from tests.gateway.connect.postgres import PROGRAMS, running_postgres
from tests.gateway.processes import free_port
from tests.gateway.suites.kafka_tools.tool_runner import CLASSES, LOG_FLAG, class_path
from tests.gateway.test_page import run, served
from tests.waiting import TIMEOUT_S, wait_until

needs_maven = pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def at_port(code, port):
    return code.replace("9092", port)


@contextmanager
def connect_standalone(*texts, plugins=None):
    """Run a worker of Kafka Connect, whose settings are the first of these texts."""
    added = "offset.flush.interval.ms=500\nlisteners=http://127.0.0.1:0\n"
    added += f"plugin.path={plugins}\n" if plugins else ""
    worker, *connectors = texts
    program = "cli.ConnectStandalone"
    with ConnectProcess(Path.cwd(), "connect", program, [worker + added, *connectors]):
        yield


def run_java(name, code, *options):
    """Run a program in Java that uses Kafka's clients."""
    Path(name).write_text(code)
    command = [find_java(), *options, "-cp", f"{connect_jars()}/*", name]
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.mark.long
@needs_maven
def test_a_producer_in_java():
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        run_java(
            "Orders.java", at_port(block("docs/gateway-clients.md", "public class Orders"), port)
        )
        found = run(block("docs/gateway-clients.md", "console-consumer orders"))
        assert found.split() == block("docs/gateway-clients.md", "order 0").split()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat():
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        found = run(at_port(block("docs/gateway-clients.md", "enable.idempotence"), port))
        assert found == block("docs/gateway-clients.md", "0 anvil 3")


@pytest.mark.long
@needs_maven
def test_kafkas_tools(folder, monkeypatch):
    for name, tool in CLASSES.items():
        program = folder / "bin" / f"{name}.sh"
        program.parent.mkdir(exist_ok=True)
        java = f'exec "{find_java()}" {LOG_FLAG} -cp "{class_path()}" {tool} "$@"'
        program.write_text(f"#!/bin/sh\n{java}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        found = run(f"({at_port(block('docs/gateway-clients.md', 'kafka-topics.sh'), port)}) 2>&1")
    expected = block("docs/gateway-clients.md", "Created topic parts")
    assert sorted(line.split() for line in found.splitlines() if line) == sorted(
        line.split() for line in expected.splitlines()
    )


@pytest.mark.long
@needs_maven
def test_kafka_connect_copies_a_file_through_a_topic(folder):
    assert "worker.properties lines.properties copy.properties" in block(
        "docs/gateway-clients.md", "connect-standalone"
    )
    (folder / "in.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    copy = folder / "out.txt"
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        worker = at_port(block("docs/gateway-clients.md", "StringConverter"), port)
        sink = block("docs/gateway-clients.md", "FileStreamSink")
        with connect_standalone(worker, block("docs/gateway-clients.md", "FileStreamSource"), sink):
            wait_until(lambda: copy.exists() and copy.stat().st_size == 8890)
    assert copy.read_text() == (folder / "in.txt").read_text()


@pytest.mark.long
@needs_maven
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_workers_that_share_their_work_copy_a_file_exactly_once(folder):
    assert "distributed.properties" in block("docs/gateway-clients.md", "connect-distributed")
    (folder / "in.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    rest = str(free_port())
    request = block("docs/gateway-clients.md", "curl").replace("8083", rest)
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        text = at_port(block("docs/gateway-clients.md", "config.storage.topic"), port)
        worker = ConnectProcess(
            folder, "connect", "cli.ConnectDistributed", [text.replace("8083", rest)]
        )
        with worker:
            wait_until(lambda: asked(request), "the worker takes no request")
            found = run(
                "spark-log console-consumer exact --root log --from-beginning --max-messages 1000"
                " --isolation-level read_committed"
            )
        topics = run("spark-log topics list --root log").split()
    lines = [line for line in found.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1000)]
    assert {"connect-configs", "connect-offsets", "connect-status"} <= set(topics)


def asked(request):
    """Return whether a worker has taken a request, which it does when it is ready."""
    try:
        return '"name":"exact"' in run(request)
    except subprocess.CalledProcessError:
        return False


@pytest.mark.long
@needs_maven
def test_mirror_maker_copies_a_topic_and_the_offset_of_a_group(folder):
    assert "mirror.properties" in block("docs/gateway-clients.md", "connect-mirror-maker")
    with (
        KafkaBroker(folder) as kafka,
        served(block("docs/gateway-clients.md", "--create --listen")) as (_, port),
    ):
        clients = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        producer = Producer(clients)
        for number in range(100):
            producer.produce("orders", f"order {number}", headers={"number": str(number)})
        assert producer.flush(60) == 0
        text = at_port(block("docs/gateway-clients.md", "clusters=kafka,log"), port)
        text = text.replace("kafka.example:" + port, kafka.bootstrap_servers)
        for each in ("refresh.groups", "emit.checkpoints", "sync.group.offsets"):
            text += f"{each}.interval.seconds=1\n"  # not ten minutes
        with ConnectProcess(folder, "mirror", "mirror.MirrorMaker", [text]):
            group = {"group.id": "billing", "auto.offset.reset": "earliest"}
            consumer = Consumer({**clients, **group, "enable.auto.commit": False})
            consumer.subscribe(["orders"])
            assert len(consumer.consume(100, timeout=60)) == 100
            consumer.commit(asynchronous=False)
            consumer.close()
            topics = "spark-log topics list --root log"
            wait_until(lambda: "kafka.orders" in run(topics), "there is no copy", interval_s=1)
            found = run(
                "spark-log console-consumer kafka.orders --root log --from-beginning"
                " --max-messages 100 --property print.headers=true"
            )
            copies = Consumer({**group, "bootstrap.servers": f"127.0.0.1:{port}"})

            def offset():
                (found,) = copies.committed([TopicPartition("kafka.orders", 0)], timeout=60)
                return found.offset

            wait_until(lambda: offset() == 100, "the group has no offset", interval_s=0.5)
            copies.close()
    assert "number:99\torder 99" in found


@pytest.mark.long
@needs_maven
def test_kafka_streams_counts_words(folder):
    jars = fetch_jars("streams", STREAMS_ARTIFACTS)
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        run(block("docs/gateway-clients.md", "console-producer lines"))
        program = block("docs/gateway-clients.md", "public class WordCount")
        (folder / "WordCount.java").write_text(at_port(program, port))
        command = [find_java(), *SMALL_JVM, "-cp", f"{jars}/*", "WordCount.java"]
        with (
            (folder / "streams.log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as application,
        ):
            try:
                found = run(block("docs/gateway-clients.md", "console-consumer counts"))
                application.terminate()
                application.wait(TIMEOUT_S)
            finally:
                application.kill()
    assert found == block("docs/gateway-clients.md", "to\t1")


@pytest.mark.long
@needs_maven
@pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed")
def test_debezium_sends_the_changes_of_a_table(folder):
    with (
        served(block("docs/gateway-clients.md", "--create --listen")) as (_, port),
        running_postgres() as postgres,
    ):
        postgres.sql("create table orders (id int primary key, item text)")
        postgres.sql("insert into orders values (1, 'anvil'), (2, 'rope')")
        connector = block("docs/gateway-clients.md", "PostgresConnector").replace(
            "5432", str(postgres.port)
        )
        worker = at_port(block("docs/gateway-clients.md", "JsonConverter"), port)
        with connect_standalone(worker, connector, plugins=debezium_plugins(folder)):
            wait_until(lambda: "shop.public.orders" in run("spark-log topics list --root log"))
            postgres.sql("update orders set item = 'cart' where id = 2")
            postgres.sql("delete from orders where id = 1")
            found = run(
                "spark-log console-consumer shop.public.orders --root log --from-beginning"
                " --max-messages 5 --property print.key=true"
            )
    keys = [line.split("\t")[0] for line in found.splitlines() if "\t" in line]
    one, two = '{"id":1}', '{"id":2}'
    assert keys == [one, two, two, one, one]
    assert '"after":{"id":2,"item":"cart"}' in found
    assert f"{one}\tnull" in found


@pytest.mark.long
@pytest.mark.spark
@needs_maven
def test_sparks_own_source_and_sink(folder):
    jars = ",".join(map(str, connector_jars()))
    settings = "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2"
    submit = f"--jars {jars} {settings} pyspark-shell"
    with served(block("docs/gateway-clients.md", "--create --listen")) as (_, port):
        program = at_port(block("docs/gateway-clients.md", 'format("kafka")'), port)
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "SPARK_CONF_DIR": str(folder)},
            check=True,
            timeout=TIMEOUT_S,
        )
        found = run(
            "spark-log console-consumer counts --root log --from-beginning --max-messages 1"
        )
    assert found.splitlines()[0] == "100"  # topics that it creates have one partition


@pytest.mark.long
@needs_maven
def test_clients_find_a_gateway_behind_a_name_of_two_while_one_is_down(folder):
    name = "gateways.example"
    first, second = block("docs/gateway-clients.md", "127.0.0.2").splitlines()
    assert name in Path(__file__).parents[2].joinpath("docs/gateway-clients.md").read_text()
    (folder / "hosts").write_text(f"127.0.0.1 {name}\n127.0.0.2 {name}\n")
    create = " --create"
    port = str(free_port())
    program = block("docs/gateway-clients.md", "public class Orders").replace("127.0.0.1", name)
    with served(second + create, f"127.0.0.2:{port}", "127.0.0.2:9092"):
        for _ in range(2):  # nothing listens on 127.0.0.1 at first
            run_java("Orders.java", at_port(program, port), "-Djdk.net.hosts.file=hosts")
            with served(first + create, f"127.0.0.1:{port}"):
                run_java("Orders.java", at_port(program, port), "-Djdk.net.hosts.file=hosts")
    (end,) = json.loads(run("spark-log offsets list --root log orders --json"))["offsets"]
    assert end["offset"] == 400
