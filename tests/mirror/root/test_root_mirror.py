"""Topics are copied from root to root, with all offsets."""

import pytest

from spark_log import (
    Admin,
    Consumer,
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidTopicError,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.errors import LogTruncatedError, StorageError, StorageUnavailableError
from spark_log.log import DivergedReplicaError
from spark_log.mirror import RootMirror, TopicFilter
from tests.mirror.support import read_log
from tests.store_calls import counted_calls


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    configs = {"flush.on.append": False, "retention.ms": "-1"}
    Admin(root).create_topics([NewTopic("flights", 2, topic_configs=configs), NewTopic("weather")])
    return root


@pytest.fixture
def target(tmp_path):
    root = tmp_path / "target"
    Admin(root).create_topics([NewTopic("other")])
    return root


def send(root, count, first=0, **config):
    with Producer(root, linger_ms=0, **config) as producer:
        if config:
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(first, first + count):
            producer.send("flights", str(number).encode(), partition=number % 2)
            if number % 10 == 0:
                producer.flush()
        if config:
            producer.commit_transaction()


def mirror(source, target, *topics, **more):
    return RootMirror(Cluster(source), Cluster(target), TopicFilter.parse(topics or [".*"]), **more)


def test_records_offsets_ids_and_settings_are_the_same(source, target):
    send(source, 100)
    send(source, 50, first=100, transactional_id="t")
    done = mirror(source, target, "flights").copy()
    assert [each.lag for each in done] == [0, 0]
    assert read_log(target, "flights") == read_log(source, "flights")
    (here,), (there,) = (Admin(each).describe_topics(["flights"]) for each in (source, target))
    assert here.topic_id == there.topic_id
    assert here.configs == there.configs
    assert Admin(target).list_topics() == ["flights", "other"]


def test_only_what_is_new_is_copied(source, target):
    copies = mirror(source, target)
    send(source, 100)
    assert sum(each.copied_segments for each in copies.copy()) > 2
    assert sum(each.copied_segments for each in copies.copy()) == 0
    send(source, 10, first=100)
    Admin(source).create_partitions({"flights": 3})
    again = mirror(source, target)
    assert sum(each.copied_bytes for each in again.copy()) > 0
    assert again.metrics()["partition-count"] == 4
    assert read_log(target, "flights", 3) == read_log(source, "flights", 3)


def test_a_copy_that_was_cut_off_is_continued(source, target):
    send(source, 100)

    def cut_off(done_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror(source, target, on_progress=cut_off).copy()
    mirror(source, target).copy()
    assert read_log(target, "flights") == read_log(source, "flights")


def test_an_open_transaction_is_copied_when_it_has_ended(source, target):
    copies = mirror(source, target, "flights")
    with Producer(source, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("flights", b"open", partition=0).result()
        assert [each.end_offset for each in copies.copy()] == [0, 0]
        producer.commit_transaction()
    assert [each.end_offset for each in copies.copy()] == [2, 0]


def test_deleted_records_are_not_copied(source, target):
    send(source, 40)
    first = TopicPartition("flights", 0)
    Admin(source).delete_records({first: 7})
    mirror(source, target).copy()
    found = Admin(target).list_offsets({first: OffsetSpec.EARLIEST})
    assert found[first].offset == 7
    with Consumer(root=target, auto_offset_reset="earliest") as consumer:
        consumer.assign([first])
        assert consumer.poll(5000)[first][0].value == b"14"


def test_writers_move_to_the_target(source, target):
    send(source, 40, transactional_id="t")
    mirror(source, target).copy()
    send(target, 10, first=40)
    send(target, 10, first=50, transactional_id="t")
    values = [each[2] for each in read_log(target, "flights")[0]]
    assert values == [str(each).encode() for each in range(0, 60, 2)]


def test_another_topic_of_this_name_is_left_alone(source, target):
    Admin(target).create_topics([NewTopic("flights")])
    with pytest.raises(InvalidTopicError, match="delete it, or exclude it"):
        mirror(source, target).copy()
    assert Admin(target).list_topics() == ["flights", "other"]


def test_a_mirror_of_the_mirror_doubles_nothing(source, target):
    """A is mirrored to B, and B to A."""
    send(source, 40)
    there, back = mirror(source, target, "flights"), mirror(target, source, "flights")
    for _ in range(3):
        there.copy()
        assert [each.copied_segments for each in back.copy()] == [0, 0]
    assert read_log(target, "flights") == read_log(source, "flights")
    assert sum(map(len, read_log(source, "flights").values())) == 40
    send(source, 10, first=40)
    with pytest.raises(DivergedReplicaError):  # it does not take back what the first one has more
        back.copy()
    there.copy()
    assert sum(map(len, read_log(target, "flights").values())) == 50


def test_a_target_that_somebody_wrote_to_is_not_continued(source, target):
    send(source, 20)
    mirror(source, target).copy()
    send(target, 20, first=500)
    send(source, 60, first=20)
    before = read_log(target, "flights")
    with pytest.raises(DivergedReplicaError, match="another program has written"):
        mirror(source, target).copy()
    assert read_log(target, "flights") == before


def test_damage_is_not_copied(source, target):
    with Producer(source) as producer:
        producer.send("flights", b"damage me", partition=0)
    (damaged,) = source.glob("flights*/flights-0/*.log")
    content = damaged.read_bytes()
    damaged.chmod(0o600)
    damaged.write_bytes(content.replace(b"damage me", b"damaged !"))
    with pytest.raises(CorruptRecordError, match="flights"):
        mirror(source, target).copy()
    found = Admin(target).list_offsets({TopicPartition("flights", 0): OffsetSpec.LATEST})
    assert found[TopicPartition("flights", 0)].offset == 0


def test_a_root_is_not_copied_to_itself(source):
    with pytest.raises(InvalidConfigurationError, match="the same cluster id"):
        mirror(source, source).copy()


# --- what a copy asks for ------------------------------------------------------------------------


@pytest.fixture
def copied(source, target):
    """Return a mirror that has copied all records."""
    send(source, 40)
    copies = mirror(source, target, "flights")
    copies.copy()
    return copies


def test_a_copy_without_news_asks_each_log_for_its_next_segment_alone(copied):
    with counted_calls() as calls:
        copied.copy()
    assert not any(operation == "list" for operation, _ in calls)
    partitions = sum(count for (_, path), count in calls.items() if "flights" in path)
    assert partitions == 2 * 2
    assert sum(calls.values()) == partitions + 2  # the metadata of each root


def test_records_and_markers_are_found_between_two_listings(copied, source, target):
    for number in range(5):
        send(source, 10, first=40 + 20 * number)
        send(source, 10, first=50 + 20 * number, transactional_id="t")
        assert sum(each.copied_segments for each in copied.copy()) > 1
        assert sum(each.copied_segments for each in copied.copy()) == 0
        assert read_log(target, "flights") == read_log(source, "flights")


def test_records_that_somebody_writes_to_the_target_are_found_between_two_listings(copied, target):
    send(target, 2, first=500)
    for _ in range(2):
        with pytest.raises(DivergedReplicaError):
            copied.copy()


def test_another_mirror_may_copy_at_the_same_time(copied, source, target):
    other = mirror(source, target, "flights")
    for number in range(5):
        send(source, 10, first=40 + 10 * number)
        (other, copied)[number % 2].copy()
        (copied, other)[number % 2].copy()
        assert read_log(target, "flights") == read_log(source, "flights")


def test_deleted_records_are_deleted_when_the_log_is_listed(source, target, clock):
    send(source, 40)
    copies = RootMirror(
        Cluster(source, clock=clock), Cluster(target, clock=clock), TopicFilter.parse(["flights"])
    )
    copies.copy()
    first = TopicPartition("flights", 0)
    Admin(source).delete_records({first: 7})
    clock.advance_ms(60_000)  # file.delete.delay.ms
    copies.copy()
    found = Admin(target).list_offsets({first: OffsetSpec.EARLIEST})
    assert found[first].offset == 7


def test_new_partitions_are_copied_by_the_same_mirror(copied, source, target):
    Admin(source).create_partitions({"flights": 3})
    with Producer(source) as producer:
        producer.send("flights", b"new", partition=2)
    copied.copy()
    assert read_log(target, "flights", 3) == read_log(source, "flights", 3)


def test_a_copy_goes_on_after_a_failure(source, target):
    fails = [True, False]

    def fail_once(done_bytes):
        if fails.pop(0) if len(fails) > 1 else fails[0]:
            raise StorageError("for the test")

    copies = mirror(source, target, "flights", on_progress=fail_once)
    send(source, 40)
    with pytest.raises(StorageError):
        copies.copy()
    copies.copy()
    assert read_log(target, "flights") == read_log(source, "flights")


def test_a_target_that_is_taken_away_is_not_made_again(source, target):
    copies = mirror(source, target, "flights")
    send(source, 20)
    copies.copy()
    before = read_log(target, "flights")
    away = target.rename(target.with_name("away"))
    send(source, 20, first=20)
    with pytest.raises(StorageUnavailableError, match="cannot be found"):
        copies.copy()
    assert not target.exists()
    away.rename(target)
    assert read_log(target, "flights") == before
    copies.copy()
    assert read_log(target, "flights") == read_log(source, "flights")


def test_a_topic_of_the_target_that_is_removed_is_not_made_again(source, target):
    copies = mirror(source, target, "flights")
    send(source, 20)
    copies.copy()
    (topic,) = target.glob("flights.*")
    topic.rename(target.with_name("away"))
    send(source, 20, first=20)
    for each in (copies, mirror(source, target, "flights")):
        with pytest.raises(LogTruncatedError):
            each.copy()
    assert not topic.exists()


def end_of(root, topic):
    (found,) = Admin(root).list_offsets({TopicPartition(topic, 0): OffsetSpec.LATEST}).values()
    return found.offset


def test_a_source_is_read_at_its_last_replica_and_others_are_copied_without_it(target, tmp_path):
    source = tmp_path / "replicated"
    admin = Admin(source)
    admin.create_topics([NewTopic("first")])
    for broker_id in (1, 2):
        admin.register_broker(broker_id, tmp_path / f"b{broker_id}")
    topics = {"alone": [1], "flights": [1, 2], "safe": [0]}
    for topic, replicas in topics.items():
        admin.create_topics([NewTopic(topic, replica_assignment={0: replicas})])
        with Producer(source) as producer:
            producer.send(topic, b"x").get(30)
    copying = mirror(source, target, *topics)
    (tmp_path / "b1").rename(tmp_path / "away")  # the leader of the first two
    with pytest.raises(StorageError, match="broker 1") as raised:
        copying.copy()
    assert raised.value.retriable
    assert end_of(target, "flights") == 1
    assert end_of(target, "safe") == 1
    assert copying.metrics()["partition-count"] == 2
    (tmp_path / "away").rename(tmp_path / "b1")
    assert [each.lag for each in copying.copy()] == [0, 0, 0]
    assert end_of(target, "alone") == 1
