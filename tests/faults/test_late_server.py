"""Clients and commands that are started while the S3 server is away, as during its restart."""

import asyncio
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_log import (
    Admin,
    AIOConsumer,
    AIOProducer,
    Consumer,
    KafkaTimeoutError,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.datasource.options import parse_read_options, parse_write_options
from spark_log.datasource.read import OffsetReader, plan_splits
from spark_log.datasource.read.split_reader import _read_through_outages
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.task_writer import TaskWriter
from spark_log.errors import InvalidRootError, RootNotFoundError
from spark_log.storage import OUTAGE_LOG
from spark_log.testing.servers.s3_server import versitygw_binary
from tests.cli.support import spark_log_process
from tests.faults.restarted_server import RestartedServer
from tests.record.samples import record_batch, row
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not versitygw_binary().exists(), reason="needs a server that keeps its data: make s3-server"
)

T0 = TopicPartition("t", 0)
WAITING = "waiting up to 60 s"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RestartedServer(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture
def settings(server):
    """Where the topic ``t`` has one record, on a server that is away in the end."""
    settings = {"root": server.server.new_bucket(), "storage_options": options_of(server)}
    Admin(**settings).create_topics([NewTopic("t")])
    with Producer(**settings) as producer:
        producer.send("t", b"first").get(timeout=30)
    return settings


def options_of(server):
    return server.server.storage_options


@pytest.fixture
def away(server, settings):
    server.kill()
    yield
    server.start()


def words(settings):
    pairs = settings["storage_options"].items()
    options = [word for key, value in pairs for word in ("--storage-option", f"{key}={value}")]
    return ["--root", settings["root"], *options]


def waits(caplog):
    return [r for r in caplog.records if r.name == OUTAGE_LOG and WAITING in r.getMessage()]


async def sent_by_aio(settings):
    async with AIOProducer(**settings) as producer:
        return (await producer.send_and_wait("t", b"from aio")).topic


async def read_by_aio(settings):
    async with AIOConsumer("t", **settings, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            return record.value


def described(admin):
    (topic,) = admin.describe_topics(["t"])
    return topic.name


def sent(settings):
    with Producer(**settings) as producer:
        return producer.send("t", b"late").get(timeout=30).topic


def read(settings):
    with Consumer("t", **settings, group_id="g", auto_offset_reset="earliest") as consumer:
        return next(consumer).value


CLIENTS = {
    "Producer": (sent, "t"),
    "Consumer": (read, b"first"),
    "Admin": (lambda settings: described(Admin(**settings)), "t"),
    "Admin that writes": (
        lambda settings: list(Admin(**settings).create_topics([NewTopic("u")])),
        ["u"],
    ),
    "AIOProducer": (lambda settings: asyncio.run(sent_by_aio(settings)), "t"),
    "AIOConsumer": (lambda settings: asyncio.run(read_by_aio(settings)), b"first"),
}


def test_clients_and_commands_that_start_before_the_server_wait_for_it(
    server, settings, tmp_path, caplog
):
    server.kill()
    commands = {
        name: spark_log_process(*name.split(), *words(settings), cwd=tmp_path)
        for name in ("topics list", "console-consumer t --partition 0 --from-beginning")
    }
    with ThreadPoolExecutor(len(CLIENTS)) as threads:
        running = {name: threads.submit(run, settings) for name, (run, _) in CLIENTS.items()}
        try:
            wait_until(
                lambda: len(waits(caplog)) >= len(CLIENTS),
                meanwhile=lambda: [each.result() for each in running.values() if each.done()],
            )
            for process in commands.values():
                line = ""
                while WAITING not in line:  # after a warning that the secret is on the command line
                    line = process.stderr.readline()
                    assert line, "ended without a line that tells of the wait"
                assert "connection refused" in line
        finally:
            server.start()
        for name, (_, expected) in CLIENTS.items():
            assert running[name].result(timeout=60) == expected, name
    topics, records = commands.values()
    assert "t" in topics.communicate(timeout=60)[0].split()
    assert topics.returncode == 0
    assert records.stdout.readline() == "first\n"
    records.send_signal(signal.SIGINT)
    records.communicate(timeout=60)


def test_clients_that_were_open_wait_too(server, settings, caplog):
    admin, consumer = Admin(**settings), Consumer(**settings)
    admin.list_topics()
    consumer.topics()
    calls = calls_of(admin, consumer)
    server.kill()
    with ThreadPoolExecutor(len(calls)) as threads:
        running = {name: threads.submit(call) for name, (call, _) in calls.items()}
        try:
            wait_until(
                lambda: len(waits(caplog)) >= len(calls),
                meanwhile=lambda: [each.result() for each in running.values() if each.done()],
            )
        finally:
            server.start()
        for name, (_, expected) in calls.items():
            assert running[name].result(timeout=60) == expected, name


def calls_of(admin, consumer):
    """Calls of clients that are open; the consumer's is one, as it is for one thread."""
    return {
        "describe_topics": (lambda: described(admin), "t"),
        "list_groups": (admin.list_groups, []),
        "create_topics": (lambda: list(admin.create_topics([NewTopic("v")])), ["v"]),
        "end_offsets": (lambda: consumer.end_offsets([T0]), {T0: 1}),
    }


def test_a_command_that_follows_a_topic_goes_on_after_a_restart(server, settings, tmp_path):
    argv = ("console-consumer", "t", "--from-beginning", *words(settings))
    process = spark_log_process(*argv, cwd=tmp_path)
    assert process.stdout.readline() == "first\n"
    server.kill()
    while "reading: waiting for the storage" not in process.stderr.readline():
        assert process.poll() is None
    server.start()
    assert sent(settings) == "t"
    assert process.stdout.readline() == "late\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")


def test_top_and_a_mirror_go_on_after_a_restart(server, settings, tmp_path):
    target = {**settings, "root": server.server.new_bucket()}
    Admin(**target).create_topics([NewTopic("other")])
    pairs = settings["storage_options"].items()
    source = [each for k, v in pairs for each in ("--source-storage-option", f"{k}={v}")]
    mirror = ["mirror", "from-root", "--topics", "t", "--source", settings["root"], *source]
    top = ["top", "--json", "--interval", "0.2"]
    commands = [
        spark_log_process(*mirror, *words(target), cwd=tmp_path),
        spark_log_process(*top, *words(settings), cwd=tmp_path),
    ]
    with Consumer(**target, auto_offset_reset="earliest") as consumer:
        wait_until(lambda: "t" in consumer.topics())
        consumer.assign([T0])
        wait_until(lambda: consumer.poll(100))
        assert commands[1].stdout.readline()
        server.kill()
        for process in commands:
            while "waiting for the storage" not in process.stderr.readline():
                assert process.poll() is None
        server.start()
        sent(settings)
        (late,) = wait_until(lambda: consumer.poll(100)).values()
    assert [record.value for record in late] == [b"late"]
    for line in iter(commands[1].stdout.readline, ""):
        (topic,) = json.loads(line)["topics"]
        if topic["log_end_offsets"] == [2]:
            break
    for process in commands:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode in (0, 130)


def test_waiting_for_a_topic_ends_in_its_time(settings, away):
    admin = Admin(**settings)
    began_s = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match=r"timeout_ms \(1500 ms\)"):
        admin.wait_for_topics(["t"], timeout_ms=1_500)
    assert time.monotonic() - began_s < 30, "not default.api.timeout.ms"


class TestTheTimeIsOver:
    def test_of_a_client(self, settings, away):
        over = pytest.raises(KafkaTimeoutError, match=r"max\.block\.ms.*connection refused")
        with over as told:
            Producer(**settings, request_timeout_ms=1_000, max_block_ms=2_500)
        assert told.value.retriable
        with pytest.raises(
            KafkaTimeoutError, match=r"default\.api\.timeout\.ms.*connection refused"
        ):
            Consumer(**settings, default_api_timeout_ms=2_500)

    def test_of_a_command_is_one_line_and_a_status(self, settings, away, tmp_path):
        lines = [f"storage.{key}={value}" for key, value in settings["storage_options"].items()]
        lines += [f"root={settings['root']}", "default.api.timeout.ms=1500"]
        (tmp_path / "spark-log.properties").write_text("\n".join(lines))
        process = spark_log_process("console-consumer", "t", cwd=tmp_path)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        *notes, error = err.splitlines()
        assert "default.api.timeout.ms (1500 ms)" in error
        assert error.startswith("spark-log: error: opening the root ")
        assert all("waiting" in note for note in notes)


def test_ctrl_c_ends_a_command_at_once(settings, away, tmp_path):
    process = spark_log_process("topics", "list", *words(settings), cwd=tmp_path)
    while WAITING not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, "", "")


class TestWhatWaitingCannotMend:
    """It fails at once: these calls would wait for ten minutes."""

    LIMIT_MS = 600_000

    def test_no_such_bucket(self, server):
        with pytest.raises(InvalidRootError, match="bucket does not exist"):
            Consumer(
                root="s3://no-such-bucket-of-ours",
                storage_options=options_of(server),
                default_api_timeout_ms=self.LIMIT_MS,
            )

    def test_wrong_credentials(self, server, settings):
        options = {**options_of(server), "secret": "wrong"}
        with pytest.raises(InvalidRootError, match="check the credentials"):
            Producer(settings["root"], storage_options=options, max_block_ms=self.LIMIT_MS)

    def test_not_a_root(self, server):
        with pytest.raises(RootNotFoundError):
            Consumer(
                root=server.server.new_bucket(),
                storage_options=options_of(server),
                default_api_timeout_ms=self.LIMIT_MS,
            )

    def test_no_tls(self, server, settings):
        endpoint = options_of(server)["endpoint_url"].replace("http:", "https:")
        options = {**options_of(server), "endpoint_url": endpoint}
        with pytest.raises(InvalidRootError, match="does not speak TLS"):
            Producer(settings["root"], storage_options=options, max_block_ms=self.LIMIT_MS)


class TestSpark:
    """The parts of a query that ask the storage, on the driver and in tasks; without a JVM."""

    @pytest.fixture
    def given(self, settings):
        storage = settings["storage_options"].items()
        return {"path": settings["root"], **{f"storage.{key}": value for key, value in storage}}

    def while_the_server_restarts(self, server, caplog, call):
        """Kill the server, make a call, and start the server when the call waits for it."""
        caplog.clear()
        server.kill()
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(call)
            try:
                wait_until(lambda: outages(caplog) or running.done())
            finally:
                server.start()
            result = running.result(timeout=60)
        assert outages(caplog), "it did not have to wait"
        return result

    def test_planning_waits(self, server, given, caplog):
        options = parse_read_options({**given, "subscribe": "t"})
        reader = self.while_the_server_restarts(server, caplog, lambda: OffsetReader(options))
        for read in (
            reader.partitions,
            lambda: sorted(reader.latest([T0])),
            lambda: sorted(reader.earliest([T0])),
        ):
            assert self.while_the_server_restarts(server, caplog, read) == [T0]

    def test_a_task_that_reads_continues_where_it_was(self, server, settings, given, caplog):
        cluster = Cluster(settings["root"], settings["storage_options"])
        log = cluster.partition_log(cluster.topic("t"), 0)
        for number in range(40):  # more segments than are opened ahead
            log.append(record_batch([row(b"%d" % number)]))
        options = parse_read_options({**given, "subscribe": "t"})
        (split,) = plan_splits(options)
        batches = _read_through_outages(split, None, options)
        read = [next(batches)]
        rest = self.while_the_server_restarts(server, caplog, lambda: list(batches))
        assert [batch.base_offset for batch in read + rest] == list(range(41))

    @pytest.mark.parametrize("way", [{}, {"transactional": "true"}, {"idempotent": "false"}])
    def test_a_task_that_writes_appends_once(self, server, settings, given, caplog, way):
        batch = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})
        identity = WriteIdentity("query", 0, 0, is_stream=True)
        options = parse_write_options({**given, "topic": "t", **way})
        with TaskWriter(options, identity) as writer:
            writer.add(batch)
            writer._buffers.finish()  # noqa: SLF001 - the rows are staged before the server stops
            self.while_the_server_restarts(server, caplog, writer.commit)
        (end,) = Admin(**settings).list_offsets({T0: OffsetSpec.LATEST}).values()
        assert end.offset == 3

    def test_a_task_that_begins_waits(self, server, given, caplog):
        options = parse_write_options({**given, "topic": "t"})
        identity = WriteIdentity("query", 0, 0, is_stream=True)
        with TaskWriter(options, identity):
            pass  # its root is kept open
        writer = self.while_the_server_restarts(
            server, caplog, lambda: TaskWriter(options, identity)
        )
        assert writer.partition_writer(writer._root.image.topic("t"), 0)  # noqa: SLF001


def outages(caplog):
    return [record for record in caplog.records if record.name == OUTAGE_LOG]
