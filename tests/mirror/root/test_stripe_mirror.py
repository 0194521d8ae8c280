"""Topics with stripes are copied from root to root: their objects, or what is at home."""

import pytest

from spark_log import Admin, Consumer, CorruptRecordError, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterVerifier
from spark_log.errors import InvalidTopicError
from spark_log.log import DivergedReplicaError
from spark_log.log.stripe import free
from spark_log.log.verify import LogSeverity
from spark_log.mirror import RootMirror, TopicFilter
from tests.mirror.root.test_root_mirror import mirror, send
from tests.mirror.support import read_log
from tests.store_calls import counted_calls

HOUR_US = 3_600_000_000


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    configs = {"flush.on.append": False, "retention.ms": "-1", "stripes": 1}
    Admin(root).create_topics([NewTopic("flights", 2, topic_configs=configs)])
    return root


@pytest.fixture
def target(tmp_path):
    root = tmp_path / "target"
    Admin(root).create_topics([NewTopic("other")])
    return root


def stripe_of(root):
    cluster = Cluster(root)
    return cluster.stripe(cluster.topic("flights"), 0)


def assert_sound(root):
    found = list(ClusterVerifier(Cluster(root)).findings())
    assert [each for each in found if each.severity is not LogSeverity.NOTE] == []


def assert_equal(source, target):
    assert read_log(target, "flights") == read_log(source, "flights")
    assert_sound(target)


def free_all(root):
    """Delete what is below the newest home marker, as a cleaner does later."""
    directory = stripe_of(root).directory
    newest_us = directory.list().newest_us
    assert free(directory, now_us=newest_us + HOUR_US) > 0


def test_objects_are_copied_under_their_numbers(source, target):
    send(source, 30)
    send(source, 10, first=30, transactional_id="t")
    done = mirror(source, target, "flights").copy()
    assert [(each.lag, each.topic_partition.partition) for each in done] == [(0, 0), (0, 1)]
    assert sum(each.copied_segments for each in done) > 2
    here, there = (stripe_of(root).directory for root in (source, target))
    assert here.list().end_number == there.list().end_number
    assert here.open(0).append_id == there.open(0).append_id
    assert_equal(source, target)
    (topic,) = Admin(target).describe_topics(["flights"])
    assert topic.configs["stripes"] == "1"


def test_only_what_is_new_is_copied(source, target):
    copies = mirror(source, target, "flights")
    send(source, 20)
    copies.copy()
    with counted_calls() as calls:
        assert sum(each.copied_segments for each in copies.copy()) == 0
    assert sum(count for (_, path), count in calls.items() if "__stripes" in path) == 2
    send(source, 10, first=20)
    assert sum(each.copied_segments for each in copies.copy()) > 0
    assert_equal(source, target)


def test_what_was_freed_is_copied_from_home(source, target):
    send(source, 30)
    stripe_of(source).take_home()
    free_all(source)
    send(source, 10, first=30)
    done = mirror(source, target, "flights").copy()
    assert [each.lag for each in done] == [0, 0]
    assert stripe_of(target).directory.list().home_number > 0
    assert_equal(source, target)
    # A mirror that was away while more went home begins again at the marker.
    send(source, 10, first=40)
    stripe_of(source).take_home()
    free_all(source)
    send(source, 10, first=50)
    mirror(source, target, "flights").copy()
    assert_equal(source, target)


def test_objects_that_are_freed_during_a_copy_are_copied_from_home(source, target):
    send(source, 30)
    done: list[int] = []

    def free_them(done_bytes):
        if not done:
            stripe_of(source).take_home()
            free_all(source)
        done.append(done_bytes)

    mirror(source, target, "flights", on_progress=free_them).copy()
    assert len(done) > 1
    assert stripe_of(target).directory.list().home_number > 0
    assert_equal(source, target)


def test_a_copy_that_was_cut_off_is_continued(source, target):
    send(source, 30)
    stripe_of(source).take_home()
    free_all(source)
    send(source, 10, first=30)

    def cut_off(done_bytes):
        raise KeyboardInterrupt

    for _ in range(4):  # after a segment of each partition, and after an object
        with pytest.raises(KeyboardInterrupt):
            mirror(source, target, "flights", on_progress=cut_off).copy()
    mirror(source, target, "flights").copy()
    assert_equal(source, target)


def test_an_open_transaction_is_copied_when_it_has_ended(source, target):
    copies = mirror(source, target, "flights")
    with Producer(source, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("flights", b"open", partition=0).result()
        send(source, 4)
        done = copies.copy()
        assert [(each.end_offset, each.lag) for each in done] == [(0, 0), (0, 2)]
        producer.commit_transaction()
    assert [each.lag for each in copies.copy()] == [0, 0]
    assert_equal(source, target)


def test_an_open_transaction_at_home_is_waited_for(source, target):
    with Producer(source, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("flights", b"open", partition=0).result()
        stripe_of(source).take_home()
        free_all(source)
        copies = mirror(source, target, "flights")
        assert [each.end_offset for each in copies.copy()] == [0, 0]
        producer.commit_transaction()
    assert [each.end_offset for each in copies.copy()] == [2, 0]
    assert_equal(source, target)


def test_the_target_may_take_its_stripe_home_by_itself(source, target):
    copies = mirror(source, target, "flights")
    send(source, 20)
    copies.copy()
    stripe_of(target).take_home()
    free_all(target)
    send(source, 20, first=20)
    copies.copy()
    assert_equal(source, target)


def test_deleted_records_are_not_copied(source, target):
    send(source, 40)
    first = TopicPartition("flights", 0)
    Admin(source).delete_records({first: 7})
    mirror(source, target, "flights").copy()
    with Consumer(root=target, auto_offset_reset="earliest") as consumer:
        consumer.assign([first])
        assert consumer.poll(5000)[first][0].offset == 7
    assert_equal(source, target)


def test_writers_move_to_the_target(source, target):
    send(source, 40, transactional_id="t")
    mirror(source, target, "flights").copy()
    send(target, 10, first=40)
    send(target, 10, first=50, transactional_id="t")
    values = [each[2] for each in read_log(target, "flights")[0]]
    assert values == [str(each).encode() for each in range(0, 60, 2)]


def test_a_target_that_somebody_wrote_to_is_not_continued(source, target):
    send(source, 20)
    mirror(source, target, "flights").copy()
    send(target, 20, first=500)
    before = read_log(target, "flights")
    with pytest.raises(DivergedReplicaError, match="another program has written"):
        mirror(source, target, "flights").copy()
    send(source, 60, first=20)
    with pytest.raises(DivergedReplicaError, match="has another object"):
        mirror(source, target, "flights").copy()
    assert read_log(target, "flights") == before


def test_damage_is_not_copied(source, target):
    send(source, 1)
    with Producer(source) as producer:
        producer.send("flights", b"damage me", partition=0)
    damaged = max(source.glob("flights*/__stripes/0/*.stripe"))
    damaged.chmod(0o600)
    damaged.write_bytes(damaged.read_bytes().replace(b"damage me", b"damaged !"))
    with pytest.raises(CorruptRecordError, match="flights"):
        mirror(source, target, "flights").copy()
    assert len(read_log(target, "flights")[0]) == 1


def test_two_mirrors_copy_the_same_objects(source, target):
    send(source, 30)
    first, second = (
        RootMirror(Cluster(source), Cluster(target), TopicFilter.parse(["flights"]))
        for _ in range(2)
    )
    first.copy()
    second.copy()
    send(source, 10, first=30)
    first.copy()
    second.copy()
    assert_equal(source, target)


def test_a_copy_does_not_follow_a_change_of_the_number_of_stripes(source, target):
    send(source, 30)
    mirror(source, target, "flights").copy()
    before = read_log(target, "flights")
    Admin(source).alter_stripes({"flights": 2})
    send(source, 10, first=30)
    with pytest.raises(InvalidTopicError, match="has changed, which its copy cannot follow"):
        mirror(source, target, "flights").copy()
    assert read_log(target, "flights") == before
    assert_sound(target)
    fresh = target.parent / "fresh"
    Admin(fresh).create_topics([NewTopic("other")])
    with pytest.raises(InvalidTopicError, match="exclude the topic"):
        mirror(source, fresh, "flights").copy()
