"""What each role may do on a real S3 server, by the policies that ``conf/policies/aws`` gives."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from spark_log import ConfigResource, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.console import ConsoleSettings, create_app
from spark_log.errors import AuthorizationError
from spark_log.exporter import RootExporter
from spark_log.storage import open_store
from tests.security.policies import ONLY_AWS, ROLES, statements

T0 = TopicPartition("t", 0)


def read(root, role, **config):
    """The values that a consumer of this role reads."""
    with root.consumer(role, "t", **config) as consumer:
        values: list[bytes] = []
        while not values:
            values = [each.value for some in consumer.poll(2000).values() for each in some]
        if "group_id" in config:
            consumer.commit()
    return values


def send(root, role, value=b"more", **config):
    with root.producer(role, **config) as producer:
        return producer.send("t", value).get(60)


def commit_transaction(root, role):
    with root.producer(role, transactional_id=f"of-{role}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"in a transaction")
        producer.commit_transaction()


def administrate(root, role, what):
    with root.admin(role) as admin:
        return what(admin)


def make_topic(root, role):
    administrate(root, role, lambda admin: admin.create_topics([NewTopic(f"of-{role}")]))


def alter_topic(root, role):
    changed = ConfigResource("topic", "t", {"retention.ms": "123456"})
    administrate(root, role, lambda admin: admin.alter_configs([changed]))


def delete_records(root, role):
    administrate(root, role, lambda admin: admin.delete_records({T0: 1}))


def delete_topic(root, role):
    administrate(root, role, lambda admin: admin.delete_topics(["t"]))


def read_in_a_group(root, role):
    return read(root, role, group_id="g")


def send_plainly(root, role):
    return send(root, role, enable_idempotence=False)


READING = [
    read,
    lambda root, role: read(root, role, isolation_level="read_committed"),
    lambda root, role: administrate(root, role, lambda admin: admin.describe_topics(["t"])),
    lambda root, role: administrate(root, role, lambda admin: admin.group_lag("made before")),
]
WRITING = [send, send_plainly, commit_transaction]
DELETING = [delete_records, delete_topic]
CHANGING = [make_topic, alter_topic]

MAY = {
    "reader": READING,
    "consumer": [*READING, read_in_a_group],
    # Topics and settings are records of the metadata log, which gives producer ids, too.
    "writer": [*READING, *WRITING, *CHANGING],
    "admin": [*READING, read_in_a_group, *WRITING, *CHANGING, *DELETING],
}
EVERYTHING = MAY["admin"]
MAY_NOT = {
    role: [each for each in EVERYTHING if each not in may]
    for role, may in MAY.items()
    if role != "admin"
}


def lasting(files):
    """Without snapshots: they are derived, and a writer puts one before it is refused the start."""
    return {path: info for path, info in files.items() if not path.endswith(".snapshot")}


def cases(table):
    return [
        pytest.param(role, what, id=f"{role}-{number}-{what.__name__.strip('<>')}")
        for role, found in table.items()
        for number, what in enumerate(found)
    ]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_do_what_it_is_for(s3_root, role):
    read(s3_root, "consumer", group_id="made before")
    for what in MAY[role]:
        what(s3_root, role)


@pytest.mark.parametrize(("role", "what"), cases(MAY_NOT))
def test_what_a_role_must_not_do_is_refused_and_changes_nothing(unchanged_root, role, what, caplog):
    before = unchanged_root.files()
    with pytest.raises(AuthorizationError, match="HTTP 403 AccessDenied") as caught:
        what(unchanged_root, role)
    assert caught.value.path
    assert caught.value.path in caught.value.message
    assert "\n" not in caught.value.message
    assert "does not answer" not in caplog.text
    assert lasting(unchanged_root.files()) == lasting(before)


def test_a_writer_can_neither_delete_a_segment_nor_move_the_start(unchanged_root):
    segment = next(
        path for path in unchanged_root.files() if path.endswith(".log") and "/t-0/" in path
    )
    directory = segment.rpartition("/")[0]
    before = unchanged_root.files()
    store = open_store(unchanged_root.url, unchanged_root.roles["writer"])
    for refused in (
        lambda: store.delete(segment),
        lambda: store.delete_directory(directory),
        lambda: store.put_if_absent(f"{directory}/{3:020}-{0:020}.start", b""),
        lambda: store.put_if_absent(f"{directory}/{1_000_001:010}.generation", b""),
        lambda: store.put("meta.properties", b"version=1"),
        lambda: store.put("__consumer_groups/g/members/m", b"{}"),
        lambda: store.put_if_absent("__deleted_topics/t", b""),
    ):
        with pytest.raises(AuthorizationError, match="the credentials do not permit this"):
            refused()
    assert unchanged_root.files() == before


def test_a_writer_uploads_a_large_segment_in_parts_and_removes_the_upload(s3_root):
    (directory,) = {path.rpartition("/")[0] for path in s3_root.files() if "/t-0/" in path}
    opened: Any = open_store(s3_root.url, s3_root.roles["writer"])
    remake, (location, _, timeout_ms) = opened.__reduce__()  # all that the copy of a store takes
    store = remake(location, 1, timeout_ms)
    with store.stage(directory) as staged:
        staged.sink.write(b"large")
        store.put_if_absent(f"{directory}/{3:020}.log", staged)
    assert store.open_buffer(f"{directory}/{3:020}.log").to_pybytes() == b"large"
    assert list(store.list_hidden(directory)) == []


def test_a_writer_without_transactions_needs_no_right_on_the_metadata(s3_root):
    own = [each for each in s3_root.statements("writer") if each["Sid"] != "TakeProducerIds"]
    s3_root.set_rights(writer=own)
    send_plainly(s3_root, "writer")
    send(s3_root, "writer")
    for refused in (make_topic, alter_topic):
        with pytest.raises(AuthorizationError, match="__cluster_metadata-0"):
            refused(s3_root, "writer")


def test_rights_can_be_limited_to_a_topic(s3_root):
    with s3_root.admin() as admin:
        admin.create_topics([NewTopic("t.private")])
    names = ("meta.properties", "__*", f"t.{'?' * 22}/*")
    own = [f"arn:aws:s3:::{s3_root.bucket}/some/root/{name}" for name in names]
    listing, reading = s3_root.statements("reader")
    s3_root.set_rights(reader=[listing, {**reading, "Resource": own}])
    assert read(s3_root, "reader") == [b"0", b"1", b"2"]
    with s3_root.producer("admin") as producer:
        producer.send("t.private", b"secret")
    with (
        s3_root.consumer("reader", "t.private") as consumer,
        pytest.raises(AuthorizationError, match=r"t\.private\..*: HTTP 403"),
    ):
        consumer.poll(60_000)


def test_a_reader_waits_for_a_dead_producers_transaction_which_others_end(s3_root, caplog):
    """A reader may not put the marker, and says so. A process with a writer's rights puts it."""

    def poll(consumer):
        return [each.value for some in consumer.poll(100).values() for each in some]

    config = {"isolation_level": "read_committed"}
    with s3_root.producer("writer", transactional_id="tx", transaction_timeout_ms=500) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"never committed").get(60)
        with s3_root.consumer("reader", "t", **config) as reader:
            values = []
            while "transaction end failed" not in caplog.text:
                values += poll(reader)
            assert "403 AccessDenied" in caplog.text
            with s3_root.consumer("writer", "t", **config) as writer:
                send_plainly(s3_root, "writer")
                while b"more" not in values:
                    poll(writer)
                    values += poll(reader)
    assert values == [b"0", b"1", b"2", b"more"]


@pytest.mark.parametrize(
    ("role", "line", "path"),
    [
        ("reader", "topics create u", "__cluster_metadata-0/"),
        ("reader", "console-producer t", "/t-0/"),
        ("reader", "console-consumer t --group g --from-beginning", "__consumer_groups/g/"),
        ("reader", "topics delete t --yes", "__deleted_topics/"),
        ("reader", "delete-records t --partition 0 --before-offset 1 --yes", "/t-0/"),
        ("writer", "delete-records t --partition 0 --before-offset 1 --yes", "/t-0/"),
        ("writer", "topics delete t --yes", "__deleted_topics/"),
    ],
)
def test_a_command_that_is_refused_says_so_in_one_line(
    unchanged_root, shell, folder, role, line, path
):
    unchanged_root.write_properties(folder / "spark-log.properties", role)
    before = unchanged_root.files()
    error = shell(*line.split(), stdin=b"a line\n").error
    assert path in error
    assert "403 AccessDenied: the credentials do not permit this" in error
    assert unchanged_root.roles[role]["secret"] not in error
    assert lasting(unchanged_root.files()) == lasting(before)


@pytest.mark.parametrize(
    "line",
    [
        "topics list",
        "topics describe t",
        "console-consumer t --from-beginning --max-messages 3",
        "offsets list t",
        "log-dirs",
        "verify",
    ],
)
def test_a_reader_has_the_commands_that_look(unchanged_root, shell, folder, line):
    unchanged_root.write_properties(folder / "spark-log.properties", "reader")
    outcome = shell(*line.split())
    assert outcome.status == 0
    assert "AccessDenied" not in outcome.err


def test_the_exporter_and_the_console_need_a_readers_rights(s3_root):
    read(s3_root, "consumer", group_id="g")
    given = s3_root.roles["reader"]
    before = s3_root.files()
    told = RootExporter(lambda: Cluster(s3_root.url, given), None).scrape().text.decode()
    assert 'kafka_topic_partition_current_offset{topic="t",partition="0"} 3' in told
    assert 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 0' in told
    with s3_root.admin("reader") as admin:
        app = create_app(Cluster(s3_root.url, given), admin, ConsoleSettings())
        client = TestClient(app, base_url="http://127.0.0.1:8470")
        for page in ("/", "/topic?topic=t", "/records?topic=t", "/group?group=g", "/brokers"):
            assert client.get(page).status_code == 200, page
    assert s3_root.files() == before


def test_the_canary_needs_the_rights_of_a_writer_and_of_a_consumer(s3_root, shell, folder):
    s3_root.write_properties(folder / "spark-log.properties", "writer")
    assert shell("canary", "--once").status == 1
    commit = [each for each in s3_root.statements("consumer") if each["Sid"] == "CommitOffsets"]
    both = [*s3_root.statements("writer"), *commit]
    s3_root.set_rights(writer=both, consumer=[])  # the server stores 4 KiB of policy
    outcome = shell("canary", "--once")
    assert outcome.status == 0, outcome.err


def test_the_policy_of_a_writer_keeps_a_segment_from_being_replaced():
    """The server of the tests knows no ``s3:if-none-match``: the statement is only read here."""
    found = {
        role: [each for each in statements(role, "b", "p") if each["Sid"] == ONLY_AWS]
        for role in ROLES
    }
    assert [role for role, some in found.items() if some] == ["writer"]
    (statement,) = found["writer"]
    assert statement["Effect"] == "Deny"
    assert statement["Resource"] == ["arn:aws:s3:::b/p/*.log"]
    assert statement["Condition"] == {
        "Null": {"s3:if-none-match": "true"},
        "Bool": {"s3:ObjectCreationOperation": "true"},
    }
