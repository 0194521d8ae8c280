"""Files of a root that someone has forged: a reader gives records or its own error, soon."""

import random
import shutil
from pathlib import Path

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.cluster.topic_deletion import finish_deletions
from spark_log.errors import CorruptRecordError, SparkLogError
from spark_log.log.files import ExistenceMarker
from spark_log.storage import DELETION_MARKERS
from spark_log.storage.local import LocalStore

SMALL = {"flush.on.append": "false", "index.interval.bytes": "1", "snapshot.interval.segments": "1"}

KINDS = [
    "meta.properties",
    "__cluster_metadata-0/*.log",
    "__consumer_groups/g/*.log",
    "__consumer_offsets/_delta_log/*.json",
    "__consumer_offsets/*.parquet",
    "__transaction_state/ids/tx/*.log",
    "__transaction_state/producers/*",
    "__witnesses/__cluster_metadata-0",
    "t.*/t-0/*.log",
    "t.*/t-0/*.snapshot",
]


@pytest.fixture(scope="module")
def forged(tmp_path_factory):
    """A root with a file of each kind, which each test damages and puts back."""
    root = tmp_path_factory.mktemp("forged") / "root"
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", topic_configs=SMALL)])
    with Producer(root, transactional_id="tx") as producer:
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.send("t", b"x" * 100, key=b"k")
            producer.commit_transaction()
    with Consumer("t", root=root, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(60_000)
        consumer.commit()
    return root


def look_at_everything(root):
    """Read all that a root has; a list of the errors."""
    found = []

    def attempt(look):
        try:
            look()
        except SparkLogError as error:
            found.append(error)

    def read():
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.topic("t"), 0)
        for batch, _ in log.stream(0):
            if batch is not None:
                batch.records.validate(full=True)
        log.producers()
        log.transactions()

    admin = Admin(root)
    attempt(read)
    attempt(lambda: admin.describe_topics(["t"]))
    attempt(lambda: admin.list_offsets({TopicPartition("t", 0): -1}))
    attempt(lambda: admin.describe_groups(["g"]))
    attempt(lambda: admin.group_lag("g"))
    attempt(lambda: admin.describe_transactions(["tx"]))
    return found


def forgeries(data, seed):
    """Contents to put in a file's place."""
    dice = random.Random(seed)
    changed = bytearray(data)
    for _ in range(8):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    at = dice.randrange(len(data))
    yield b""
    yield b"[" * 100_000
    yield dice.randbytes(len(data))
    yield data[:at]
    yield data[:at] + b"\xff" * 64 + data[at:]  # lengths of -1 and of 2**63
    yield bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_file_gives_records_or_our_own_error(forged, kind):
    file = sorted(forged.glob(kind))[-1]
    data = file.read_bytes()
    try:
        for forgery in forgeries(data, kind):
            temporary = file.with_name(".restored")
            temporary.write_bytes(forgery)
            temporary.rename(file)  # never in place: the old file may be mapped
            look_at_everything(forged)
    finally:
        temporary.write_bytes(data)
        temporary.rename(file)
    assert look_at_everything(forged) == []


def test_a_compressed_batch_that_lies_about_its_size_is_damage(tmp_path):
    """Arrow's buffers begin with their size before compression, which is allocated first."""
    root = tmp_path / "root"
    topic = NewTopic("t", topic_configs={**SMALL, "compression.type": "zstd"})
    Admin(root).create_topics([topic])
    value = b"x" * 100_000
    with Producer(root) as producer:
        producer.send("t", value)
    (file,) = root.glob("t.*/t-0/*.log")
    data = file.read_bytes()
    zstd = b"\x28\xb5\x2f\xfd"
    told, lie = (size.to_bytes(8, "little") + zstd for size in (len(value), 1 << 50))
    assert data.count(told) == 1
    file.write_bytes(data.replace(told, lie))
    cluster = Cluster(root)
    with pytest.raises(CorruptRecordError, match=r"t-0/0+\.log"):
        list(cluster.partition_log(cluster.topic("t"), 0).stream(0))


def test_a_marker_of_deletion_removes_nothing_that_is_no_topic(forged, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(forged, root)
    internal = ["__cluster_metadata-0", "__consumer_offsets", "__consumer_groups"]
    (root / DELETION_MARKERS).mkdir()
    for name in internal:
        (root / DELETION_MARKERS / name).touch()
    assert list(finish_deletions(Cluster(root))) == []
    assert all(any((root / name).iterdir()) for name in internal)
    assert ExistenceMarker("__cluster_metadata-0").exists(LocalStore(str(root)))


@pytest.mark.parametrize("path", ["../outside", "topic/../../outside", ".."])
def test_a_store_does_not_leave_its_root(tmp_path, path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    store = LocalStore(str(tmp_path / "root"))
    store.create_root()
    for leave in (
        lambda: store.open_buffer(path),
        lambda: store.put(path, b"new"),
        lambda: store.put_if_absent(path, b"new"),
        lambda: store.delete(path),
        lambda: store.delete_directory(path),
        lambda: list(store.list(path)),
    ):
        with pytest.raises(SparkLogError, match="leads out of"):
            leave()
    assert outside.read_bytes() == b"kept"
    assert Path(tmp_path, "root").is_dir()
