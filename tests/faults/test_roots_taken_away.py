"""A root that is taken away under writers: nothing is made in its place, and it can come back.

The writers are threads with a producer each, which append to three replicas with ``acks=all``.
"""

import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.cluster import META_PROPERTIES
from spark_log.errors import LogTruncatedError

PARTITIONS = 6
WRITERS = 3


def take_away(root: Path, how: str) -> None:
    """Take a root away: move it, remove it, or leave an empty directory in its place."""
    root.rename(root.with_name(f"{root.name}.gone"))
    if how == "removed":
        shutil.rmtree(root.with_name(f"{root.name}.gone"))
    if how == "emptied":
        root.mkdir()


def below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


class Writers:
    """Writers that append until they are stopped, and note what was acknowledged."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_stopped = threading.Event()
        self._acknowledged: list[bytes] = []
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]

    def _write(self, number: int) -> None:
        sent = 0
        with Producer(self._root, acks="all", linger_ms=0) as producer:
            while not self._is_stopped.is_set():
                value = b"%d-%d" % (number, sent)
                try:
                    producer.send("t", value, partition=sent % PARTITIONS).result(60)
                except BaseException as error:
                    self._errors.append(error)
                    break
                sent += 1
                with self._changed:
                    self._acknowledged.append(value)
                    self._changed.notify_all()

    def wait_for_more(self, count: int = 60) -> None:
        """Wait until more records were acknowledged."""
        with self._changed:
            until = len(self._acknowledged) + count
            arrived = self._changed.wait_for(
                lambda: len(self._acknowledged) >= until or self._errors, timeout=60
            )
        assert not self._errors
        assert arrived, "the writers stand still"

    def tell_to_stop(self) -> None:
        self._is_stopped.set()

    def stop(self) -> list[bytes]:
        self.tell_to_stop()
        for thread in self._threads:
            thread.join(60)
        assert not self._errors
        return self._acknowledged

    def start(self) -> None:
        for thread in self._threads:
            thread.start()


@contextmanager
def writing(root: Path):
    writers = Writers(root)
    writers.start()
    try:
        yield writers
    finally:
        writers.tell_to_stop()


def values(root: Path) -> list[Any]:
    with Consumer(
        "t", root=root, auto_offset_reset="earliest", consumer_timeout_ms=500
    ) as consumer:
        return [record.value for record in consumer]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a cluster of three brokers with a topic of three replicas."""
    admin = Admin(tmp_path / "root")
    for broker_id in (1, 2):
        admin.register_broker(broker_id, tmp_path / f"b{broker_id}")
    admin.create_topics([NewTopic("t", num_partitions=PARTITIONS, replication_factor=3)])
    return tmp_path / "root"


@pytest.mark.parametrize(
    "how",
    # Another test moves a root away: processes see a root that is not there, as a removed one.
    [
        pytest.param("moved away", marks=pytest.mark.long),
        "removed",
        pytest.param("emptied", marks=pytest.mark.long),
    ],
)
def test_nothing_is_made_in_its_place_and_it_can_be_registered_again(root, tmp_path, how):
    broker_root = tmp_path / "b1"
    with writing(root) as writers:
        writers.wait_for_more()
        take_away(broker_root, how)
        writers.wait_for_more(200)
        assert not broker_root.exists() or not below(broker_root)

        admin = Admin(root)
        admin.fence_broker(1)
        admin.register_broker(1, broker_root)  # while the writers write
        writers.wait_for_more()
        command = [sys.executable, "-m", "spark_log", "replicate", "--root", str(root)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        writers.wait_for_more()
        acknowledged = writers.stop()
    (topic,) = admin.describe_topics(["t"])
    assert {len(partition.isr) for partition in topic.partitions} == {3}
    assert sorted(values(root)) == sorted(acknowledged)
    assert (broker_root / META_PROPERTIES).exists()


def test_a_root_that_was_moved_away_can_be_moved_back(root, tmp_path):
    broker_root = tmp_path / "b1"
    with writing(root) as writers:
        writers.wait_for_more()
        take_away(broker_root, "moved away")
        writers.wait_for_more(200)
        os.rename(f"{broker_root}.gone", broker_root)
        writers.wait_for_more(200)
        acknowledged = writers.stop()
    assert sorted(values(root)) == sorted(acknowledged)


@pytest.mark.parametrize("how", ["moved away", "removed"])
def test_the_directory_of_a_topic_is_not_made_again_on_one_of_three_roots(root, tmp_path, how):
    broker_root = tmp_path / "b1"
    with writing(root) as writers:
        writers.wait_for_more()
        (topic,) = broker_root.glob("t.*")
        take_away(topic, how)
        writers.wait_for_more(200)
        with Producer(root, acks="all") as late:  # of a process that has never seen it
            for partition in range(PARTITIONS):
                late.send("t", b"late", partition=partition).result(60)
        left = [each for each in broker_root.rglob("*") if each.is_file()]
        acknowledged = writers.stop()
    assert not [each for each in left if topic in each.parents]
    assert sorted(values(root)) == sorted([*acknowledged, *[b"late"] * PARTITIONS])


def test_a_writer_that_finds_no_directory_on_the_leader_goes_on_with_the_next(root, tmp_path):
    with Producer(root, acks="all") as producer:
        for partition in range(PARTITIONS):
            producer.send("t", b"first", partition=partition).result(60)
    (topic,) = (tmp_path / "b1").glob("t.*")
    take_away(topic, "removed")
    with Producer(root, acks="all") as producer:
        for partition in range(PARTITIONS):
            producer.send("t", b"second", partition=partition).result(60)
    assert not topic.exists()
    assert sorted(values(root)) == sorted([b"first", b"second"] * PARTITIONS)


@pytest.mark.parametrize("is_known", [True, False], ids=["seen by the writer", "never seen"])
def test_the_directory_of_a_topic_of_one_replica_is_not_made_again(tmp_path, is_known):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("t")])
    with Producer(root) as producer:
        producer.send("t", b"first").result(30)
    with Producer(root, linger_ms=0) as producer:
        if is_known:
            producer.send("t", b"second").result(30)
        (topic,) = root.glob("t.*")
        take_away(topic, "moved away")
        with pytest.raises(LogTruncatedError):
            producer.send("t", b"refused").result(30)
        assert not topic.exists()
        topic.with_name(f"{topic.name}.gone").rename(topic)
        assert producer.send("t", b"next").result(30).offset == 1 + is_known
