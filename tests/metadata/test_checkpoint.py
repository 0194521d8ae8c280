"""The metadata's checkpoint: opening a root costs as much after many changes as after few."""

import json
from random import Random

import pytest

from spark_log.cluster import Cluster
from spark_log.cluster import cluster as cluster_module
from spark_log.errors import CorruptRecordError, LogTruncatedError
from spark_log.log import LocalLog
from spark_log.metadata import MetadataImage
from spark_log.metadata.checkpoint import MetadataCheckpoint
from spark_log.metadata.metadata_log import (
    METADATA_DIRECTORY,
    METADATA_MARKER,
    METADATA_TOPIC_ID,
    MetadataLog,
)
from spark_log.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    from_json,
)
from spark_log.util.clock import SYSTEM_CLOCK
from tests.record.samples import record_batch, row
from tests.slow_store import SlowStore, rounds

REQUESTS = ("open_buffer", "read", "read_tail", "list", "list_directories", "head")


def config(kind, name, key, value):
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def set_retention(number):
    """Decide to change the retention of topic t, which makes one small record."""
    return lambda image: [config("topic", "t", "retention.ms", str(number))]


def create_t(image):
    return [
        TopicRecord(name="t", topic_id="id-t"),
        PartitionRecord(topic_id="id-t", partition_id=0),
    ]


def content(image):
    """All that an image holds, to be compared."""
    return {key: value for key, value in vars(image).items() if key != "_unshared"}


def with_changes(store, clock, count):
    log = MetadataLog(store, clock, cluster_id="c" * 22)
    log.commit(create_t)
    for number in range(1, count):
        log.commit(set_retention(number))
    return log


class CountingStore(SlowStore):
    """A store like an object store, which notes its requests."""

    def _do(self, operation, path, call):
        self.calls.append((operation, path))
        return super()._do(operation, path, call)


@pytest.fixture
def remote(memory_store, monkeypatch):
    """A root whose requests are counted; `Cluster` takes it for one on an object store."""
    store = CountingStore(memory_store)
    monkeypatch.setattr("tests.slow_store.REQUEST_S", 0.0)
    monkeypatch.setattr(cluster_module, "open_store", lambda *_, **__: store)
    Cluster(memory_store.url, create=True)
    return store


def reads_of(store, call):
    store.calls.clear()
    result = call()
    return [(name, path) for name, path in store.calls if name in REQUESTS], result


class TestOpening:
    @pytest.mark.parametrize("changes", [1, 104, 700])
    def test_a_root_of_any_age_is_opened_by_three_requests(self, remote, clock, changes):
        cluster = Cluster("r", clock=clock)
        cluster.metadata.commit(create_t)
        for number in range(1, changes):
            cluster.metadata.commit(set_retention(number))
        reads, opened = reads_of(remote, lambda: Cluster("r", clock=clock))
        more, image = reads_of(remote, opened.image)
        assert sorted(reads) == [("list", ".quorum/voters"), ("open_buffer", METADATA_MARKER.path)]
        assert more == [("list", METADATA_DIRECTORY)]
        assert content(image) == content(cluster.image())
        assert opened.cluster_id == cluster.cluster_id

    def test_two_of_the_three_requests_wait_for_each_other(self, remote, clock, monkeypatch):
        Cluster("r", clock=clock).metadata.commit(create_t)
        monkeypatch.setattr("tests.slow_store.REQUEST_S", 0.03)
        found: list[int] = []
        while len(found) < 6 and 2 not in found:  # a busy machine makes a request late
            remote.requests.clear()
            Cluster("r", clock=SYSTEM_CLOCK).image()
            found.append(rounds(remote.requests))
        assert min(found) == 2

    def test_a_root_without_a_checkpoint_is_opened_as_before(self, remote, clock):
        log = with_changes(remote, clock, 5)
        expected = content(log.image())
        for older in (b"5\n", None):  # as earlier versions put it, and removed
            remote.delete(METADATA_MARKER.path)
            if older:
                remote.put(METADATA_MARKER.path, older)
            cluster = Cluster("r", clock=clock)
            assert content(cluster.image()) == expected
            assert len(cluster.cluster_id) == 22

    def test_changes_of_others_since_the_checkpoint_are_read(self, remote, clock):
        log = with_changes(remote, clock, 3)
        old = remote.open_buffer(METADATA_MARKER.path).to_pybytes()
        log.commit(set_retention(77))
        log.commit(set_retention(78))
        remote.put(METADATA_MARKER.path, old)  # the writer died before it put the checkpoint
        image = MetadataLog(remote, clock).image()
        assert image.topic("t").overrides == {"retention.ms": "78"}

    def test_a_look_after_the_listing_has_expired_lists_the_end_of_the_log_alone(
        self, remote, clock
    ):
        log = with_changes(remote, clock, 20)
        clock.advance_ms(3_600_000)
        reads, _ = reads_of(remote, log.image)
        assert [name for name, _ in reads] == ["list"]
        reads, _ = reads_of(remote, log.image)
        assert [name for name, _ in reads] == ["read_tail"], "the next name"


class TestDamage:
    def test_a_damaged_checkpoint_changes_nothing(self, memory_store, clock):
        expected = content(with_changes(memory_store, clock, 4).image())
        good = memory_store.open_buffer(METADATA_MARKER.path).to_pybytes()
        random = Random(7)
        for _ in range(60):
            at = random.randrange(len(good))
            damaged = good[:at] + bytes([good[at] ^ 1 << random.randrange(8)]) + good[at + 1 :]
            for bad in (damaged, good[:at]):
                memory_store.put(METADATA_MARKER.path, bad)
                assert content(MetadataLog(memory_store, clock).image()) == expected

    def test_a_checkpoint_of_a_newer_format_is_not_used(self, memory_store, clock, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("spark_log.metadata.checkpoint._VERSION", 2)
            log = with_changes(memory_store, clock, 2)
        assert content(MetadataLog(memory_store, clock).image()) == content(log.image())

    def test_a_log_that_ends_before_its_checkpoint_was_truncated(self, memory_store, clock):
        with_changes(memory_store, clock, 4)
        memory_store.delete(f"{METADATA_DIRECTORY}/{4:020d}.log")
        for _ in range(2):
            log = MetadataLog(memory_store, clock)
            with pytest.raises(LogTruncatedError):
                log.image()
            with pytest.raises(LogTruncatedError):
                log.commit(set_retention(1))

    def test_a_gap_behind_the_checkpoint_is_damage(self, memory_store, clock):
        log = with_changes(memory_store, clock, 2)
        old = memory_store.open_buffer(METADATA_MARKER.path).to_pybytes()
        log.commit(set_retention(8))
        log.commit(set_retention(9))
        memory_store.put(METADATA_MARKER.path, old)
        memory_store.delete(f"{METADATA_DIRECTORY}/{3:020d}.log")
        with pytest.raises(CorruptRecordError):
            MetadataLog(memory_store, clock).image()


class TestContent:
    def test_records_of_an_image_make_it_again(self):
        random = Random(19)
        for _ in range(30):
            image = random_image(random)
            image.offset = 9
            again = MetadataImage()
            again.offset = 9
            for record in image.records():
                again.replay(from_json(record.to_json()))
            assert content(again) == content(image)
            checkpoint = MetadataCheckpoint.of_image(image, 9, 8, "c")
            assert checkpoint is not None
            assert content(MetadataCheckpoint.parse(checkpoint.to_bytes()).image()) == content(
                image
            )

    def test_what_a_newer_version_added_is_never_lost(self, memory_store, clock):
        """A process that does not understand a record writes no state without it."""
        with_changes(memory_store, clock, 1)
        newer = json.loads(config("topic", "t", "retention.ms", "1").to_json())
        newer["data"]["addedLater"] = "kept"
        plain = LocalLog(memory_store, METADATA_DIRECTORY, topic_id=METADATA_TOPIC_ID, partition=0)
        plain.append(record_batch([row(json.dumps(newer).encode())]))
        log = MetadataLog(memory_store, clock)
        log.commit(set_retention(2))
        found = MetadataCheckpoint.parse(
            memory_store.open_buffer(METADATA_MARKER.path).to_pybytes()
        )
        assert b"addedLater" in found.changes[-2], "as it lies in the log"
        assert not found.image().is_complete
        assert MetadataCheckpoint.of_image(found.image(), 1, 0, "c") is None

    def test_a_config_of_an_unknown_resource_is_not_understood(self):
        image = MetadataImage()
        image.replay(config("client-metrics", "g", "a", "b"))
        assert not image.copy().is_complete

    def test_the_state_is_written_anew_when_many_records_lie_behind_it(self, memory_store, clock):
        log = with_changes(memory_store, clock, 700)
        found = MetadataCheckpoint.parse(
            memory_store.open_buffer(METADATA_MARKER.path).to_pybytes()
        )
        assert len(found.changes) < 690
        assert content(found.image()) == content(log.image())


def random_image(random):
    image = MetadataImage()
    topics = [f"id-{number}" for number in range(4)]
    for number, topic_id in enumerate(topics):
        image.replay(TopicRecord(name=f"t-{number}", topic_id=topic_id))
        for partition in range(random.randrange(3)):
            image.replay(
                PartitionRecord(
                    topic_id=topic_id, partition_id=partition, replicas=(0, 1), isr=(0, 1)
                )
            )
            if random.random() < 0.5:
                image.replay(
                    PartitionChangeRecord(
                        topic_id=topic_id,
                        partition_id=partition,
                        isr=(1,),
                        leader=1,
                        eligible_leader_replicas=(0,),
                    )
                )
        if random.random() < 0.5:
            image.replay(config("topic", f"t-{number}", "retention.ms", "5"))
    image.replay(RemoveTopicRecord(topic_id=random.choice(topics)))
    if random.random() < 0.5:
        image.replay(config("broker", "", "min.insync.replicas", "2"))
    if random.random() < 0.5:
        image.replay(config("client", random.choice(["", "c"]), "producer_byte_rate", "5"))
    if random.random() < 0.5:
        image.replay(ProducerIdsRecord(next_producer_id=1000))
    if random.random() < 0.5:
        image.replay(RegisterControllerRecord(controller_epoch=3, incarnation_id="i"))
    for broker in range(1, random.randrange(1, 4)):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker, incarnation_id="i", broker_epoch=broker, root="r"
            )
        )
        change = random.choice(["fence", "leave", ""])
        if change == "fence":
            image.replay(
                BrokerRegistrationChangeRecord(
                    broker_id=broker, broker_epoch=broker, fenced=-1, rack="a"
                )
            )
        if change == "leave":
            image.replay(UnregisterBrokerRecord(broker_id=broker, broker_epoch=broker))
    if random.random() < 0.3:
        image.replay(BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=-1, rack="b"))
    return image
