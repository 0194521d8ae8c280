"""`Admin` on topics, also from several processes at the same time."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from spark_log import (
    Admin,
    NewPartitions,
    NewTopic,
)
from spark_log.admin import _runtime
from spark_log.admin import topics as admin_module
from spark_log.cluster import Cluster
from spark_log.cluster import cluster as cluster_module
from spark_log.cluster.topic_deletion import mark_deleted
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaTimeoutError,
    LogTruncatedError,
    RootNotFoundError,
    SparkLogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from spark_log.storage import open_store
from spark_log.util.clock import ManualClock
from tests.log.support import values
from tests.metadata.support import append, metadata_files, topic_names
from tests.record.samples import numbered
from tests.slow_store import SlowStore, rounds

TRIES = 8


class TestRounds:
    @pytest.mark.partition_logs_only("each stripe is read for its topic")
    def test_partitions_of_many_topics_are_described_at_the_same_time(self, root, monkeypatch):
        Admin(root).create_topics([NewTopic(f"topic-{number}", 2) for number in range(8)])
        stores = []

        def open_slow_store(*args, **kwargs):
            stores.append(SlowStore(open_store(*args, **kwargs)))
            return stores[-1]

        monkeypatch.setattr(cluster_module, "open_store", open_slow_store)
        monkeypatch.setattr(_runtime, "open_store", open_slow_store)
        admin = Admin(root)
        admin.list_topics()
        taken: list[int] = []
        # A busy machine makes a request late, which may cost a round. It never saves one.
        while len(taken) < TRIES and min(taken, default=8) >= 8:
            stores[-1].requests.clear()
            assert len(admin.describe_topics()) == 8
            taken.append(rounds(stores[-1].requests))
        assert min(taken) < 8, "fewer rounds than topics"


class TestCreate:
    def test_the_first_topic_creates_the_root(self, admin, root):
        ids = admin.create_topics([NewTopic("flights", 4), NewTopic("weather")])
        assert sorted(ids) == ["flights", "weather"]
        assert admin.list_topics() == Admin(root).list_topics() == ["flights", "weather"]

    def test_it_is_told_with_the_id_that_it_has(self, admin):
        ids = admin.create_topics([NewTopic("a"), NewTopic("b")])
        assert len(set(ids.values())) == 2
        assert {each.name: each.topic_id for each in admin.describe_topics()} == ids

    def test_many_topics_are_one_change(self, admin, root):
        admin.create_topics([NewTopic(f"topic-{number}", 3) for number in range(10)])
        assert len(metadata_files(root)) == 1
        assert len(topic_names(root)) == 10

    @pytest.mark.partition_logs_only("tells all configs that a topic has set")
    def test_configs_are_kept_as_they_were_checked(self, admin, root):
        configs = {
            "segment.bytes": "1048576",
            "file_delete_delay_ms": 5,
            "flush.on.append": False,
            "compression.type": "zstd",
        }
        admin.create_topics([NewTopic("a", topic_configs=configs)])
        (described,) = admin.describe_topics()
        assert described.configs == {
            "segment.bytes": "1048576",
            "file.delete.delay.ms": "5",
            "flush.on.append": "false",
            "compression.type": "zstd",
        }
        config = Cluster(root).topic("a").config()
        assert (config.segment_bytes, config.file_delete_delay_ms) == (1_048_576, 5)
        assert (config.flush_on_append, config.compression_type) == (False, "zstd")

    def test_the_longest_name_can_be_written_to(self, admin, root):
        name = "n" * 249
        admin.create_topics([NewTopic(name, 2)])
        cluster = Cluster(root)
        cluster.partition_log(cluster.topic(name), 1).append(numbered(0, 1))
        admin.delete_topics([name])
        assert admin.list_topics() == []


REFUSED = [
    (NewTopic("bad name"), InvalidTopicError),
    (NewTopic("n" * 250), InvalidTopicError),
    (NewTopic("__consumer_offsets"), InvalidTopicError),
    (NewTopic("old_topic"), InvalidTopicError),
    (NewTopic("old.topic"), TopicAlreadyExistsError),
    (NewTopic("new"), TopicAlreadyExistsError),
    (NewTopic("a", 0), InvalidPartitionsError),
    (NewTopic("a", -3), InvalidPartitionsError),
    (NewTopic("a", 200_001), InvalidPartitionsError),
    (NewTopic("a", "3"), InvalidPartitionsError),  # type: ignore[arg-type]
    (NewTopic("a", None), InvalidPartitionsError),  # type: ignore[arg-type]
    (NewTopic("a", 3.0), InvalidPartitionsError),  # type: ignore[arg-type]
    (NewTopic("a", True), InvalidPartitionsError),
    (NewTopic("a", "1", replica_assignment={0: [0]}), InvalidPartitionsError),  # type: ignore[arg-type]
    (NewTopic("a", replication_factor=0), InvalidReplicationFactorError),
    (NewTopic("a", replication_factor=2), InvalidReplicationFactorError),
    (NewTopic("a", topic_configs={"segment.byte": 1}), InvalidConfigurationError),
    (NewTopic("a", topic_configs={"segment.bytes": 1}), InvalidConfigurationError),
    (NewTopic("a", topic_configs={"segment.bytes": "big"}), InvalidConfigurationError),
]


class TestAllOrNone:
    @pytest.mark.parametrize("validate_only", [True, False])
    @pytest.mark.parametrize(
        ("refused", "error"), REFUSED, ids=lambda case: getattr(case, "name", "")
    )
    def test_one_topic_that_is_refused_keeps_all_from_being_created(
        self, admin, root, refused, error, validate_only
    ):
        admin.create_topics([NewTopic("old.topic")])
        before = metadata_files(root)
        with pytest.raises(SparkLogError) as caught:
            admin.create_topics(
                [NewTopic("new"), refused, NewTopic("another")], validate_only=validate_only
            )
        assert type(caught.value) is error
        assert topic_names(root) == ["old.topic"]
        assert metadata_files(root) == before

    def test_a_refusal_names_what_was_wrong_and_what_is_known(self, admin):
        with pytest.raises(InvalidConfigurationError) as caught:
            admin.create_topics([NewTopic("a", topic_configs={"segment.byte": 1})])
        assert (caught.value.key, caught.value.nearest) == ("segment.byte", "segment.bytes")
        with pytest.raises(InvalidPartitionsError, match="topic 'a': 0 partitions; give 1 to"):
            admin.create_topics([NewTopic("a", 0)])

    def test_a_refused_topic_creates_no_root(self, admin, root):
        with pytest.raises(InvalidTopicError):
            admin.create_topics([NewTopic("bad name")])
        assert not root.exists()


class TestValidateOnly:
    def test_it_writes_nothing(self, admin, root):
        admin.create_topics([NewTopic("old")])
        before = {path: os.stat(path).st_mtime_ns for path in root.rglob("*")}
        admin.create_topics([NewTopic("new", 3)], validate_only=True)
        assert {path: os.stat(path).st_mtime_ns for path in root.rglob("*")} == before
        assert admin.list_topics() == ["old"]

    def test_where_there_is_no_root_it_checks_and_makes_none(self, admin, root):
        admin.create_topics([NewTopic("new")], validate_only=True)
        with pytest.raises(InvalidTopicError):
            admin.create_topics([NewTopic("bad name")], validate_only=True)
        assert not root.exists()


class TestDescribe:
    @pytest.mark.partition_logs_only("tells all configs that a topic has set")
    def test_it_tells_offsets_sizes_and_segments_of_every_partition(self, admin, root):
        ids = admin.create_topics([NewTopic("a", 2)])
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.topic("a"), 1)
        log.append(numbered(0, 3))
        log.append(numbered(3, 2))
        (described,) = admin.describe_topics(["a"])
        assert (described.name, described.topic_id, described.configs) == ("a", ids["a"], {})
        empty, full = described.partitions
        assert (empty.partition, empty.log_start_offset, empty.log_end_offset) == (0, 0, 0)
        assert (empty.size_bytes, empty.segments) == (0, 0)
        assert (full.partition, full.log_start_offset, full.log_end_offset) == (1, 0, 5)
        assert full.segments == 2
        files = [file.size_bytes for file in cluster.store.list(log.directory)]
        assert full.size_bytes == sum(files)
        assert (full.leader, full.replicas, full.isr) == (0, (0,), (0,))

    def test_all_topics_come_by_name_and_named_ones_as_named(self, admin):
        admin.create_topics([NewTopic("b"), NewTopic("a"), NewTopic("c")])
        assert [each.name for each in admin.describe_topics()] == ["a", "b", "c"]
        assert [each.name for each in admin.describe_topics(["c", "a"])] == ["c", "a"]
        assert admin.describe_topics([]) == []

    def test_a_topic_that_is_not_there_is_refused_with_near_names(self, admin):
        admin.create_topics([NewTopic("flights"), NewTopic("weather")])
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            admin.describe_topics(["weather", "fligths"])
        assert (caught.value.topic, caught.value.near) == ("fligths", ("flights",))

    @pytest.mark.partition_logs_only("tells all configs that a topic has set")
    def test_a_description_stays_what_it_was(self, admin, root):
        admin.create_topics([NewTopic("a", topic_configs={"segment.bytes": 2**20})])
        (described,) = admin.describe_topics()
        described.configs.pop("segment.bytes", None)
        assert admin.describe_topics()[0].configs == {"segment.bytes": "1048576"}

    def test_without_a_root_everything_but_creating_says_so(self, admin, root):
        for use in (
            admin.list_topics,
            admin.describe_topics,
            lambda: admin.describe_topics(["a"]),
            lambda: admin.delete_topics(["a"]),
        ):
            with pytest.raises(RootNotFoundError):
                use()
        assert not root.exists()
        admin.create_topics([NewTopic("a")])
        assert admin.list_topics() == ["a"], "the handle works once there is a root"


class TestDelete:
    def test_a_deleted_topic_is_gone_with_its_data(self, admin, root):
        admin.create_topics([NewTopic("a"), NewTopic("b")])
        cluster = Cluster(root)
        for name in ("a", "b"):
            cluster.partition_log(cluster.topic(name), 0).append(numbered(0, 3))
        gone, kept = (root / cluster.topic(name).directory for name in ("a", "b"))
        admin.delete_topics(["a"])
        assert admin.list_topics() == topic_names(root) == ["b"]
        assert not gone.exists()
        assert kept.exists()

    def test_one_that_is_created_again_meanwhile_is_marked_before_it_is_deleted(
        self, admin, root, monkeypatch
    ):
        """After a crash between the two, data would be left that no cleaner removes."""
        admin.create_topics([NewTopic("a", 1)])
        marked: list[list[bool]] = []
        other, mark = Admin(root), mark_deleted

        def create_again_once(store, topics):
            topics = list(topics)
            if not marked:
                monkeypatch.setattr(admin_module, "mark_deleted", mark)
                other.delete_topics(["a"])
                other.create_topics([NewTopic("a", 1)])
                monkeypatch.setattr(admin_module, "mark_deleted", create_again_once)
            there = {topic.topic_id for topic in Cluster(root).image().topics()}
            marked.append([topic.topic_id in there for topic in topics])
            mark(store, topics)

        monkeypatch.setattr(admin_module, "mark_deleted", create_again_once)
        admin.delete_topics(["a"])
        assert marked == [[False], [True]], "the second one while it is there"
        assert admin.list_topics() == []

    def test_a_deletion_by_id_does_not_hit_a_topic_that_is_created_again_meanwhile(
        self, admin, root, monkeypatch
    ):
        old_id = admin.create_topics([NewTopic("a")])["a"]
        new_ids, other, mark = [], Admin(root), mark_deleted

        def create_again_once(store, topics):
            monkeypatch.setattr(admin_module, "mark_deleted", mark)
            other.delete_topics(["a"])
            new_ids.append(other.create_topics([NewTopic("a")])["a"])
            mark(store, topics)

        monkeypatch.setattr(admin_module, "mark_deleted", create_again_once)
        with pytest.raises(UnknownTopicOrPartitionError, match=old_id):
            admin.delete_topics(topic_ids=[old_id])
        assert admin.describe_topics(["a"])[0].topic_id == new_ids[0]
        admin.delete_topics(topic_ids=new_ids)
        assert admin.list_topics() == []

    def test_one_that_is_given_by_name_and_by_id_is_deleted_once(self, admin, root):
        topic_id = admin.create_topics([NewTopic("a"), NewTopic("b")])["a"]
        admin.delete_topics(["a"], topic_ids=[topic_id])
        assert admin.list_topics() == ["b"]

    def test_all_or_none_are_deleted(self, admin, root):
        admin.create_topics([NewTopic("a"), NewTopic("b")])
        before = metadata_files(root)
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            admin.delete_topics(["a", "no-such"])
        assert caught.value.topic == "no-such"
        assert admin.list_topics() == ["a", "b"]
        assert metadata_files(root) == before

    def test_several_are_one_change_and_one_named_twice_is_one(self, admin, root):
        admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
        admin.delete_topics(["a", "b", "a"])
        assert admin.list_topics() == ["c"]
        assert len(metadata_files(root)) == 2

    @pytest.mark.partition_logs_only("an append to a deleted stripe has another error")
    def test_a_topic_created_again_is_another_topic_with_none_of_the_old_data(self, admin, root):
        old_id = admin.create_topics([NewTopic("a")])["a"]
        cluster = Cluster(root)
        old_topic = cluster.topic("a")
        old_log = cluster.partition_log(old_topic, 0)
        old_log.append(numbered(0, 3))
        admin.delete_topics(["a"])
        new_id = admin.create_topics([NewTopic("a")])["a"]
        new_topic = Cluster(root).topic("a")
        assert new_topic.topic_id == new_id != old_id
        assert new_topic.directory != old_topic.directory
        new_log = cluster.partition_log(new_topic, 0)
        assert new_log.observe().log_end_offset == 0
        with pytest.raises(LogTruncatedError):
            old_log.append(numbered(0, 2, mark="late"))
        assert new_log.append(numbered(0, 1)).base_offset == 0
        assert values(new_log) == [(0, b"record:0")], "a late writer of the old one is not seen"


class TestCreatePartitions:
    def test_a_topic_grows_and_keeps_what_it_has(self, admin, root):
        admin.create_topics([NewTopic("a", 2), NewTopic("b")])
        append(root, "a", 3, partition=1)
        totals = {"a": 4, "b": 2}
        assert admin.create_partitions({"a": NewPartitions(4), "b": 2}) == totals
        described = {each.name: each.partitions for each in admin.describe_topics()}
        assert {name: len(partitions) for name, partitions in described.items()} == totals
        assert [each.log_end_offset for each in described["a"]] == [0, 3, 0, 0]
        append(root, "a", 1, partition=3)
        assert len(metadata_files(root)) == 2, "one change"

    def test_who_has_the_topic_open_sees_them_when_it_looks_again(self, admin, root):
        admin.create_topics([NewTopic("a")])
        running = Cluster(root)
        before = running.topic("a")
        Admin(root).create_partitions({"a": 3})
        assert before.num_partitions == 1, "an image stays as it is"
        log = running.partition_log(running.topic("a"), 2)
        assert log.append(numbered(0, 1)).base_offset == 0

    @pytest.mark.parametrize("validate_only", [True, False])
    @pytest.mark.parametrize(
        ("count", "message"),
        [
            (3, "topic 'a' already has 3 partitions"),
            (2, "2 would not be an increase"),
            (-1, "-1 would not be an increase"),
            (200_001, "give 4 to 200000"),
            ("4", "'4' partitions; give a whole number"),
        ],
    )
    def test_it_only_grows_all_or_none(self, admin, root, count, message, validate_only):
        admin.create_topics([NewTopic("a", 3), NewTopic("b")])
        before = metadata_files(root)
        with pytest.raises(InvalidPartitionsError, match=message):
            admin.create_partitions({"b": 5, "a": count}, validate_only=validate_only)
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.create_partitions({"b": 5, "no-such": 2}, validate_only=validate_only)
        assert metadata_files(root) == before

    def test_validate_only_writes_nothing(self, admin, root):
        admin.create_topics([NewTopic("a")])
        assert admin.create_partitions({"a": 3}, validate_only=True) == {"a": 3}
        assert len(admin.describe_topics()[0].partitions) == 1

    def test_of_two_that_grow_it_at_once_none_undoes_the_other(self, admin, root):
        admin.create_topics([NewTopic("a")])
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda count: grow(root, count), [3, 7, 5, 2]))
        partitions = admin.describe_topics()[0].partitions
        assert [each.partition for each in partitions] == list(range(7))


class TestRaces:
    def test_of_threads_that_create_one_topic_exactly_one_does(self, root):
        barrier = threading.Barrier(8)

        def create(number):
            admin = Admin(root)
            barrier.wait(timeout=60)
            ids: dict[str, str] = {}
            for name in ("same", f"own-{number}"):
                try:
                    ids |= admin.create_topics([NewTopic(name, 2)])
                except TopicAlreadyExistsError:
                    continue
            return ids

        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(create, range(8)))
        (winner,) = [ids["same"] for ids in created if "same" in ids]
        described = {each.name: each for each in Admin(root).describe_topics()}
        assert described["same"].topic_id == winner
        assert sorted(described) == sorted(["same", *(f"own-{number}" for number in range(8))])
        assert {len(each.partitions) for each in described.values()} == {2}

    def test_of_processes_that_create_and_delete_none_undoes_anothers_work(self, root):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        with ProcessPoolExecutor(2, context, meet_at, (barrier,)) as pool:
            futures = [pool.submit(create_and_delete, root, mark) for mark in range(2)]
            created = [future.result(timeout=120) for future in futures]
        assert sorted(created[0] + created[1]).count("same") == 1
        expected = {"same", *(f"kept-{mark}-{number}" for mark in range(2) for number in range(5))}
        assert set(Admin(root).list_topics()) == expected


def grow(root, count):
    try:
        Admin(root).create_partitions({"a": count})
    except InvalidPartitionsError:
        return  # another one was faster, and further


process_barrier: Any = None


def meet_at(barrier):
    global process_barrier  # noqa: PLW0603 - the only way to hand a barrier to a pool's process
    process_barrier = barrier


def create_and_delete(root, mark):
    admin = Admin(root)
    process_barrier.wait(timeout=60)
    for number in range(5):
        admin.create_topics([NewTopic(f"kept-{mark}-{number}"), NewTopic(f"gone-{mark}-{number}")])
        admin.delete_topics([f"gone-{mark}-{number}"])
    try:
        admin.create_topics([NewTopic("same")])
    except TopicAlreadyExistsError:
        return []
    return ["same"]


class WaitingClock(ManualClock):
    """A clock that does something in each sleep, in place of another process."""

    def __init__(self, *actions):
        super().__init__()
        self.actions = list(actions)

    def sleep_ms(self, duration_ms):
        self.advance_ms(duration_ms)
        if self.actions:
            self.actions.pop(0)()


class TestWait:
    def test_topics_that_exist_are_not_waited_for(self, admin, root):
        admin.create_topics([NewTopic("a"), NewTopic("b")])
        clock = WaitingClock(lambda: pytest.fail("it has slept"))
        Admin(root, clock=clock).wait_for_topics(["a", "b"], timeout_ms=0)

    def test_it_returns_when_another_process_has_created_the_last_topic(self, admin, root):
        clock = WaitingClock(
            lambda: admin.create_topics([NewTopic("a")]),
            lambda: admin.create_topics([NewTopic("b")]),
        )
        Admin(root, clock=clock).wait_for_topics(["a", "b"])
        assert clock.actions == []
        assert clock.monotonic_ms() < 10_000

    def test_after_the_timeout_the_missing_topics_are_named(self, admin, root):
        admin.create_topics([NewTopic("a")])
        clock = WaitingClock()
        with pytest.raises(KafkaTimeoutError, match=r"after 250 ms; missing: b, c"):
            Admin(root, clock=clock).wait_for_topics(["a", "b", "c"], timeout_ms=250)
        assert clock.monotonic_ms() == 250
