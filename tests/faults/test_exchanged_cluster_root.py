"""The root of the cluster is away, or is exchanged, under clients that have it open.

Whatever lies in its place: nothing is made or changed there, unless it is this root or a copy of
it. What a client does in a copy continues at the end that the copy's logs have.
"""

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from spark_log import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.cluster.verifier import ClusterVerifier
from spark_log.errors import (
    KafkaTimeoutError,
    ProducerFencedError,
    SparkLogError,
)
from spark_log.storage.reserve import RESERVE_NAME
from spark_log.transaction import TransactionCoordinator

P0 = TopicPartition("t", 0)


class Client:
    """A client that has a root open, and does one thing again and again."""

    def __init__(self, root: Path) -> None:
        self.done = 0

    def act(self) -> None:
        """Change something, or read it.

        Raises:
            SparkLogError: it was not done.
        """
        raise NotImplementedError

    def act_while_away(self) -> None:
        """Try it while the root is away: an error that a retry may mend says so."""
        with pytest.raises(SparkLogError, match="cannot be found") as caught:
            self.act()
        assert caught.value.retriable

    def close(self) -> None:
        """Close the client; what its root answers does not matter any more."""


class CreatesTopics(Client):
    def __init__(self, root):
        super().__init__(root)
        self.admin = Admin(root)

    def act(self):
        self.admin.create_topics([NewTopic(f"new-{self.done}")])
        self.done += 1


class Sends(Client):
    transactional_id: ClassVar[str | None] = None
    topic: ClassVar[str] = "t"

    def __init__(self, root):
        super().__init__(root)
        self.producer = Producer(root, linger_ms=0, transactional_id=self.transactional_id)

    def act(self):
        self.producer.send(self.topic, b"%d" % self.done, partition=0).result(30)
        self.done += 1

    def act_while_away(self):
        sent = self.producer.send(self.topic, b"waits", partition=0)
        with pytest.raises(KafkaTimeoutError):
            self.producer.flush(0.2)
        assert not sent.done()

    def close(self):
        self.producer.close(0)


class SendsToStripes(Sends):
    topic = "striped"


class SendsInTransactions(Sends):
    transactional_id = "tx"

    def __init__(self, root):
        super().__init__(root)
        self.is_begun = False
        self.producer.init_transactions()

    def act(self):
        try:
            if not self.is_begun:
                self.producer.begin_transaction()
            self.is_begun = False
            sent = self.producer.send("t", b"%d" % self.done, partition=0)
            self.producer.commit_transaction()
        except SparkLogError:
            self.producer.close(0)
            raise
        sent.result(30)
        self.done += 1

    def act_while_away(self):
        self.producer.begin_transaction()
        self.is_begun = True
        super().act_while_away()


class CommitsOffsets(Client):
    def __init__(self, root):
        super().__init__(root)
        self.consumer = Consumer(root=root, group_id="g", default_api_timeout_ms=400)
        self.consumer.assign([P0])

    def act(self):
        self.consumer.commit({P0: OffsetAndMetadata(self.done)})
        self.done += 1

    def close(self):
        self.consumer.close(autocommit=False)


class BeginsTransactions(Client):
    """Appends to the log of a transactional id."""

    def __init__(self, root):
        super().__init__(root)
        self.coordinator = TransactionCoordinator(Cluster(root), "id")

    def act(self):
        self.coordinator.initialize(60_000)
        self.done += 1


class TakesProducerIds(Client):
    def __init__(self, root):
        super().__init__(root)
        self.cluster = Cluster(root)

    def act(self):
        for _ in range(1_001):  # more than a block of them
            self.cluster.producer_ids.next_id()
        self.done += 1


CLIENTS = [
    CreatesTopics,
    Sends,
    SendsToStripes,
    SendsInTransactions,
    CommitsOffsets,
    BeginsTransactions,
    TakesProducerIds,
]


@pytest.fixture(params=CLIENTS, ids=lambda each: each.__name__)
def kind(request):
    return request.param


@contextmanager
def opened(kind, root, done=0):
    """Return a client that has done something in the root."""
    client = kind(root)
    client.done = done
    try:
        client.act()
        yield client
    finally:
        client.close()


def make_root(root: Path) -> None:
    striped = NewTopic("striped", topic_configs={"stripes": 2})
    Admin(root).create_topics([NewTopic("t"), striped])
    with Producer(root) as producer:
        for topic in ("t", "striped"):
            producer.send(topic, b"first").result(30)
    with Consumer(root=root, group_id="g") as consumer:
        consumer.assign([P0])
        consumer.commit({P0: OffsetAndMetadata(1)})


@pytest.fixture
def root(tmp_path):
    make_root(tmp_path / "root")
    return tmp_path / "root"


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"directory"
        for path in root.rglob("*")
        if path.name != RESERVE_NAME
    }


def moved_away(root: Path) -> Path:
    return root.rename(root.with_name("away"))


def put_in_place(root: Path, other: Path) -> None:
    """Put another root in the place of the one that clients have open."""
    if root.exists():
        shutil.move(root, root.with_name("away"))
    other.rename(root)


def test_made_in_the_empty_place_it_is_not_taken_for_the_one_that_is_mounted_there(
    kind, root, tmp_path
):
    mounted = moved_away(root).rename(tmp_path / "mounted")
    root.mkdir()
    make_root(root)  # a service that started too early
    with opened(kind, root) as client:
        shutil.rmtree(root)
        mounted.rename(root)
        before = files(root)
        for _ in range(1 if kind is SendsInTransactions else 3):
            with pytest.raises(SparkLogError, match="was opened as the root of the cluster"):
                client.act()
    assert files(root) == before


@pytest.mark.parametrize("place", ["no directory", "an empty directory"])
def test_that_is_away_is_not_made_again_and_is_used_when_it_is_back(kind, root, place):
    with opened(kind, root) as client:
        away = moved_away(root)
        if place == "an empty directory":
            root.mkdir()
        client.act_while_away()
        assert not root.exists() or not list(root.iterdir())
        if root.exists():
            root.rmdir()
        away.rename(root)
        client.act()
    assert findings(root) == []


def test_of_another_cluster_gets_nothing(kind, root, tmp_path):
    make_root(tmp_path / "other")
    with opened(kind, root) as client:
        put_in_place(root, tmp_path / "other")
        before = files(root)
        for _ in range(1 if kind is SendsInTransactions else 3):
            with pytest.raises(SparkLogError, match="was opened as the root of the cluster"):
                client.act()
    assert files(root) == before


def test_of_which_an_older_copy_is_restored_is_not_continued(kind, root, tmp_path):
    shutil.copytree(root, tmp_path / "older")
    with opened(kind, root) as client:
        client.act()
        put_in_place(root, tmp_path / "older")
        before = files(root)
        with pytest.raises(SparkLogError, match="files were removed"):
            client.act()
    assert files(root) == before


def test_of_which_a_newer_copy_is_put_there_is_continued_at_its_end(kind, root, tmp_path):
    with opened(kind, root) as client:
        shutil.copytree(root, tmp_path / "newer")
        with opened(kind, tmp_path / "newer", done=10) as other:
            other.act()
        put_in_place(root, tmp_path / "newer")
        if kind is SendsInTransactions:  # the other producer has the same transactional id
            with pytest.raises(ProducerFencedError):
                client.act()
        else:
            client.act()
    assert findings(root) == []


def findings(root: Path) -> list[object]:
    return [str(each) for each in ClusterVerifier(Cluster(root)).findings()]


def test_a_new_root_is_created_with_a_line_in_the_log(tmp_path, caplog):
    with caplog.at_level("INFO", logger="spark_log"):
        Admin(tmp_path / "new").create_topics([NewTopic("t")])
        Admin(tmp_path / "new").create_topics([NewTopic("u")])
    lines = [each.getMessage() for each in caplog.records if "new root" in each.getMessage()]
    cluster_id = Cluster(tmp_path / "new").cluster_id
    assert lines == [f"{tmp_path}/new: created a new root, of the cluster {cluster_id}"]


def test_a_root_that_is_open_in_the_process_is_not_created_again(root):
    with Producer(root):
        moved_away(root)
        with pytest.raises(KafkaTimeoutError, match=r"mount it again.*close its clients"):
            Admin(root, default_api_timeout_ms=200).create_topics([NewTopic("u")])
        assert not root.exists()


@pytest.mark.parametrize("group_id", [None, "reads"])
def test_a_consumer_waits_and_reads_nothing_of_another_root(root, tmp_path, group_id):
    make_root(tmp_path / "other")
    with Consumer(
        "t", root=root, group_id=group_id, auto_offset_reset="earliest", default_api_timeout_ms=500
    ) as consumer:
        assert values(consumer.poll(5_000)) == [b"first"]
        for place in (None, tmp_path / "other"):
            away = moved_away(root)
            if place is not None:
                place.rename(root)
            before = files(root)
            for _ in range(3):
                assert consumer.poll(50) == {}
            assert files(root) == before
            if place is not None:
                root.rename(place)
            away.rename(root)
            with Producer(root) as producer:
                producer.send("t", b"next").result(30)
            assert values(consumer.poll(5_000)) == [b"next"]


def values(polled) -> list[bytes]:
    return [record.value for records in polled.values() for record in records]
