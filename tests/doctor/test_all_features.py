"""A root that every feature has written to is healthy: all names that it has are known."""

import ast
import os
import re
from pathlib import Path

import pytest

import spark_log
from spark_log import (
    Admin,
    Consumer,
    ConsumerGroupMetadata,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster, ClusterCleaner, ClusterVerifier
from spark_log.config import GatewayConfig
from spark_log.doctor import Doctor
from spark_log.gateway.registry import RegistryMember
from spark_log.log.verify import LogFindingKind, LogSeverity
from spark_log.mirror import RootMirror, TopicFilter
from spark_log.storage import (
    ROOT_DIRECTORIES,
    QuorumStore,
    add_voter,
    is_topic_directory,
    remove_voter,
)
from tests.record.samples import numbered
from tests.replication.support import Disks, values_of
from tests.waiting import wait_until

COPIERS = ConsumerGroupMetadata("copiers", -1, "")
SPENT = (LogFindingKind.SPENT_SEGMENT, LogFindingKind.SPENT_START)
T, KEYED, MOVED = (TopicPartition(name, 0) for name in ("t", "keyed", "moved"))
LOGS = {
    "flush.on.append": "false",
    "index.interval.bytes": "1",
    "snapshot.interval.segments": "2",
    # A cleaner removes what nobody needs at once.
    "file.delete.delay.ms": "0",
}
STRIPES = {"stripes": 2, "file.delete.delay.ms": "60000"}


class QuorumDisks(Disks):
    """A cluster whose root is a quorum of three directories, and that has two more brokers."""

    def __init__(self, folder):
        self.folder = folder
        self.members = [str(folder / f"disk{number}") for number in range(3)]
        self._open()
        self.admin.create_topics([NewTopic("first")])
        for broker_id in (1, 2):
            self.admin.register_broker(broker_id, self.path(broker_id))

    def _open(self):
        self.root = ",".join(self.members)
        self.admin = Admin(self.root)

    def change_members(self):
        """Exchange a member: the quorum's second list of members is a file of the root."""
        store = self.cluster().store
        assert isinstance(store, QuorumStore)
        remove_voter(store, self.members[2])
        self.members[2] = str(self.folder / "disk3")
        add_voter(store, self.members[2])
        self._open()


@pytest.fixture
def disks(tmp_path):
    """A cluster in which each feature that writes to a root was used."""
    disks = QuorumDisks(tmp_path)
    replicate_and_move(disks)
    produce_and_consume(disks)
    disks.admin.alter_client_quotas({None: {"producer_byte_rate": 1 << 30}})
    disks.admin.delete_records({KEYED: 2})
    disks.admin.delete_topics(["deleted"])
    gateway = RegistryMember(disks.cluster(), GatewayConfig(), host="127.0.0.1", port=9092)
    gateway.join()
    gateway.leave()
    disks.change_members()
    return disks


def replicate_and_move(disks):
    disks.create(2, 1, 0, **LOGS)
    disks.send(*(b"%d" % number for number in range(10)))
    disks.replica(1).append(numbered(0, 3, mark="lost"))
    disks.leave(1)
    disks.send(b"10")
    disks.replicate()
    assert disks.partition().directory_of(1) == 1  # t-0.1
    disks.create(0, 1, topic="moved", **LOGS)
    disks.send(b"moved", topic="moved")
    disks.admin.alter_partition_reassignments({MOVED: [0, 2]})
    disks.replicate()
    assert disks.partition("moved").replicas == (0, 2)


def produce_and_consume(disks):
    disks.admin.create_topics(
        [
            NewTopic("keyed", topic_configs={"cleanup.policy": "compact", **LOGS}),
            NewTopic("deleted", topic_configs=LOGS),
            NewTopic("dead-letters"),
            NewTopic("striped", 3, topic_configs={**LOGS, **STRIPES}),
        ]
    )
    with Producer(disks.root, linger_ms=0) as producer:
        for number in range(20):
            producer.send("keyed", b"%d" % number, key=b"%d" % (number % 3)).result(30)
            producer.send("deleted", b"%d" % number).result(30)
            producer.send("striped", b"%d" % number, partition=number % 3).result(30)
    with Producer(disks.root, transactional_id="copy") as producer:
        producer.init_transactions()
        for offset in (3, 6):
            producer.begin_transaction()
            producer.send("keyed", b"copied", key=b"copied")
            producer.send_offsets_to_transaction({T: OffsetAndMetadata(offset)}, COPIERS)
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send("keyed", b"aborted", key=b"aborted")
        producer.abort_transaction()
    with Consumer("t", root=disks.root, group_id="readers", group_instance_id="one") as consumer:
        consumer.poll(0)
        consumer.commit({T: OffsetAndMetadata(5)})


def content(disks):
    """Return all that users get from the root."""
    admin = Admin(disks.root)
    cluster = disks.cluster()
    records = {
        f"{topic.name}-{number}": values_of(cluster.partition_log(topic, number))
        for topic in cluster.image().topics()
        for number in topic.partitions
    }
    offsets = {
        group: {tp: each.offset for tp, each in admin.list_group_offsets(group).items()}
        for group in ("readers", "copiers")
    }
    transactions = [(each.transactional_id, each.state) for each in admin.list_transactions()]
    return records, offsets, transactions, admin.list_topics()


def assert_healthy(root):
    """Check that a root has no findings but files that a cleaner will remove.

    With ``file.delete.delay.ms=0`` these are warnings as soon as another file is a second newer
    than the one that shows that they are spent. On a busy machine one cleaning, or one copy of a
    log to a new member of the quorum, takes that long.
    """
    found = list(Doctor(lambda: Cluster(root)).findings())
    assert [(each.problem.code, each.subject.text, each.message) for each in found] == []
    findings = [
        each
        for each in ClusterVerifier(Cluster(root)).findings()
        if each.severity > LogSeverity.NOTE and each.kind not in SPENT
    ]
    assert findings == []


def age_files_apart(disks):
    """Give the files of each log times that are a second apart, as a slow copy does."""
    for folder in filter(Path.is_dir, disks.folder.glob("*/*/*-0")):
        for age, path in enumerate(sorted(folder.iterdir(), reverse=True)):
            time = path.stat().st_mtime - age
            os.utime(path, (time, time))


def directories(root):
    """Return the names of the directories in a root that no listing hides."""
    return {each.name for each in Path(root).iterdir() if each.is_dir() and each.name[0] != "."}


def test_all_names_are_known_before_and_after_cleaning(disks):
    own = {name for name in directories(disks.members[0]) if not is_topic_directory(name)}
    own |= {name for name in directories(disks.path(1)) if not is_topic_directory(name)}
    age_files_apart(disks)
    assert_healthy(disks.root)
    before = content(disks)
    cleaner = ClusterCleaner(disks.cluster())
    assert [each.error for each in cleaner.clean() if each.error] == []
    list(cleaner.deleted_topics())
    removed: set[str] = set()

    def remove():
        """Remove stray replicas: a first cleaner marks them, a later one removes them."""
        removed.update(each.directory.partition("/")[2] for each in cleaner.stray_replicas())
        return removed == {"moved-0", "t-0"}

    wait_until(remove)
    own |= {name for name in directories(disks.path(1)) if not is_topic_directory(name)}
    assert own == ROOT_DIRECTORIES
    records, *rest = content(disks)
    assert rest == list(before[1:])
    assert records["t-0"] == before[0]["t-0"]
    assert records["moved-0"] == before[0]["moved-0"] == [b"moved"]
    assert set(records["keyed-0"]) >= {b"17", b"18", b"19", b"copied"}
    assert_healthy(disks.root)


@pytest.mark.long
def test_a_mirror_of_it_has_known_names_only(disks, tmp_path):
    target = str(tmp_path / "target")
    Admin(target).create_topics([NewTopic("other")])
    topics = TopicFilter.parse(["t", "keyed"])
    done = RootMirror(disks.cluster(), Cluster(target), topics).copy()
    assert [each.lag for each in done] == [0, 0]
    assert_healthy(target)


def test_no_other_module_has_a_name_of_a_directory_in_a_root():
    """A feature that keeps a new directory in a root adds it to the table."""
    package = Path(spark_log.__file__).parent
    name = re.compile(r"__[a-z]\w*[a-z](-0|\.)?(/.*)?", re.DOTALL)
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if name.fullmatch(text) and not text.endswith("__"):
                    found.add((path.relative_to(package).as_posix(), text))
    in_a_topic = ("log/stripe/file_names.py", "__stripes")
    assert {file for file, _ in found - {in_a_topic}} == {"storage/root_directories.py"}, found
