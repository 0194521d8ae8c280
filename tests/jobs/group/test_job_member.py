"""Members of a group job on a real root, without Spark."""

import threading

import pytest

from spark_log import (
    Admin,
    ConsumerGroupMetadata,
    LogTruncatedError,
    NewTopic,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member import GroupMember
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.jobs.group.job_member import JobMember
from tests.datasource.streams import add_partitions, append, create_again, delete_records
from tests.waiting import wait_until

LIMIT_S = 120


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``, which has four partitions of ten records each."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=4)])
    for number in range(4):
        append(url, "t", number, range(10))
    return url


@pytest.fixture
def join(root):
    """Return a function that creates members, which leave at the end of the test."""
    made = []

    def join(*, topics="t", follow=False, max_records=None, **config):
        cluster = Cluster(root)
        options = parse_read_options({"path": root, "subscribe": topics, "group.id": "g"})
        settings = {"auto.offset.reset": "earliest", "retry.backoff.ms": "10", **config}
        parsed = ConsumerConfig.parse(settings)
        member = JobMember(cluster, options, parsed, follow=follow, max_records=max_records)
        made.append(member)
        member.join()
        return member

    yield join
    for member in made:
        member.close()


def until(happens, *others):
    """Wait for a condition, while the other members do what jobs do between batches."""
    return wait_until(happens, meanwhile=lambda: [each.next_batch() for each in others])


def committed(root):
    found = OffsetsTable(Cluster(root)).fetch("g")
    return {tp.partition: each.offset for tp, each in sorted(found.items())}


def ranges(batch):
    return {
        tp.partition: (start, batch.ends[tp])
        for tp, start in sorted(batch.starts.items())
        if start < batch.ends[tp]
    }


def commit_all(member, batch):
    return member.commit(batch, batch.ends)


class TestAMemberAlone:
    def test_has_everything_and_is_done_when_it_is_committed(self, root, join):
        member = join()
        batch, _ = member.next_batch()
        assert ranges(batch) == dict.fromkeys(range(4), (0, 10))
        assert batch.size == 40
        assert commit_all(member, batch) == frozenset()
        assert committed(root) == dict.fromkeys(range(4), 10)
        assert until(lambda: member.next_batch()[1])
        assert member.next_batch()[0].size == 0

    def test_goes_on_where_the_group_stands(self, root, join):
        position = {TopicPartition("t", 2): OffsetAndMetadata(7)}
        OffsetsTable(Cluster(root)).commit("g", position)
        assert ranges(join().next_batch()[0])[2] == (7, 10)

    def test_waits_for_a_transaction_that_commits_its_offset(self, root, join):
        topic = TopicPartition("t", 2)
        with Producer(root, transactional_id="tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                {topic: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g")
            )
            member, batches = join(), []
            waiting = threading.Thread(target=lambda: batches.append(member.next_batch()[0]))
            waiting.start()
            waiting.join(0.05)
            assert not batches
            producer.commit_transaction()
            waiting.join()
        assert ranges(batches[0])[2] == (7, 10)

    def test_takes_so_many_records_at_a_time(self, join):
        member = join(max_records=20)
        first, _ = member.next_batch()
        assert ranges(first) == dict.fromkeys(range(4), (0, 5))
        commit_all(member, first)
        assert ranges(member.next_batch()[0]) == dict.fromkeys(range(4), (5, 10))

    def test_reads_only_what_was_there_when_it_began(self, root, join):
        member = join()
        append(root, "t", 1, range(5))
        add_partitions(root, "t", 5)
        append(root, "t", 4, range(5))
        assert ranges(member.next_batch()[0])[1] == (0, 10)
        batch = until(lambda: len((found := member.next_batch()[0]).starts) == 5 and found)
        assert 4 not in ranges(batch)

    def test_that_follows_reads_what_comes_and_new_partitions_from_their_start(self, root, join):
        member = join(follow=True)
        commit_all(member, member.next_batch()[0])
        append(root, "t", 1, range(5))
        add_partitions(root, "t", 5)
        append(root, "t", 4, range(6))
        batch = until(lambda: len((found := member.next_batch()[0]).starts) == 5 and found)
        assert ranges(batch) == {1: (10, 15), 4: (0, 6)}
        assert not member.next_batch()[1], "a job that follows is never complete"

    def test_says_which_topic_there_is_not_before_it_joins(self, root, join):
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean t"):
            join(topics="tt")
        assert GroupCoordinator(Cluster(root), "g").describe().members == {}


class TestWhereNothingIsCommitted:
    def test_it_begins_at_the_end_and_that_is_known_at_once(self, root, join):
        member = join(**{"auto.offset.reset": "latest"})
        assert member.next_batch()[0].size == 0
        assert committed(root) == dict.fromkeys(range(4), 10)

    def test_or_it_does_not_begin(self, join):
        with pytest.raises(NoOffsetForPartitionError, match="no committed offset for t-0"):
            join(**{"auto.offset.reset": "none"}).next_batch()

    def test_any_more_it_goes_where_the_reset_says(self, root, join):
        OffsetsTable(Cluster(root)).commit("g", {TopicPartition("t", 0): OffsetAndMetadata(2)})
        delete_records(root, "t", 0, 5, segment=0)
        assert ranges(join().next_batch()[0])[0] == (5, 10)
        assert committed(root)[0] == 5

    def test_or_it_does_not_go(self, root, join):
        positions = {TopicPartition("t", each): OffsetAndMetadata(2) for each in range(4)}
        OffsetsTable(Cluster(root)).commit("g", positions)
        delete_records(root, "t", 0, 5, segment=0)
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 of t-0 is out of range"):
            join(**{"auto.offset.reset": "none"}).next_batch()

    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_a_log_that_ends_before_what_was_committed_lost_files(self, root, join, reset):
        OffsetsTable(Cluster(root)).commit("g", {TopicPartition("t", 0): OffsetAndMetadata(11)})
        with pytest.raises(LogTruncatedError, match="offset 11 was committed: files were removed"):
            join(**{"auto.offset.reset": reset}).next_batch()
        assert committed(root)[0] == 11

    def test_because_retention_was_faster(self, root, join):
        member = join(follow=True)
        commit_all(member, member.next_batch()[0])
        append(root, "t", 0, range(5))
        append(root, "t", 0, range(5))
        delete_records(root, "t", 0, 15, segment=15)
        assert ranges(member.next_batch()[0])[0] == (15, 20)


class TestTwoMembers:
    def test_share_the_partitions_and_do_all_of_them(self, root, join):
        one, two = join(), join()
        first = until(lambda: (b := one.next_batch()[0]) and len(b.starts) == 2 and b, two)
        second = until(lambda: (b := two.next_batch()[0]) and len(b.starts) == 2 and b, one)
        assert first.starts.keys() | second.starts.keys() == {
            TopicPartition("t", number) for number in range(4)
        }
        for member, batch in ((one, first), (two, second)):
            assert commit_all(member, batch) == frozenset()
            assert until(lambda member=member: member.next_batch()[1])
        assert committed(root) == dict.fromkeys(range(4), 10)

    def test_one_gives_up_nothing_while_its_batch_is_at_work(self, root, join):
        one = join()
        batch, _ = one.next_batch()
        two = join()
        for _ in range(3):
            found, is_last = two.next_batch()
            assert found.size == 0
            assert not is_last, "partitions are being moved to it"
            one.keep_alive()
        assert commit_all(one, batch) == frozenset()
        later = until(lambda: (b := two.next_batch()[0]) and len(b.starts) == 2 and b, one)
        assert later.size == 0, "the other member has read it"
        assert committed(root) == dict.fromkeys(range(4), 10)

    def test_one_that_was_expelled_commits_nothing_and_the_other_does_it_again(self, root, join):
        one = join()
        batch, _ = one.next_batch()
        members = GroupCoordinator(Cluster(root), "g")
        (expelled,) = members.describe().members
        two = join()
        members.describe()
        members.remove([expelled])
        all_of_it = until(lambda: (b := two.next_batch()[0]) and len(b.starts) == 4 and b)
        assert commit_all(one, batch) == batch.starts.keys()
        assert committed(root) == dict.fromkeys(range(4), 0)
        assert ranges(all_of_it) == dict.fromkeys(range(4), (0, 10))
        assert commit_all(two, all_of_it) == frozenset()
        again = until(lambda: (b := one.next_batch()[0]) and len(b.starts) == 2 and b, two)
        assert again.size == 0, "it has joined again, and there are no new records"

    def test_one_that_is_expelled_while_it_takes_partitions_over_joins_again(
        self, root, join, monkeypatch
    ):
        one = join()
        begin = GroupMember.begin

        def expelled_first(member, partitions):
            monkeypatch.setattr(GroupMember, "begin", begin)
            members = GroupCoordinator(Cluster(root), "g")
            members.describe()
            members.remove([member.poll().member_id])
            wait_until(member.is_changed)
            return begin(member, partitions)

        monkeypatch.setattr(GroupMember, "begin", expelled_first)
        assert ranges(one.next_batch()[0]) == dict.fromkeys(range(4), (0, 10))


class TestTopics:
    def test_that_are_deleted_meanwhile_take_only_their_own_offsets_along(self, root, join):
        Admin(root).create_topics([NewTopic("u", num_partitions=1)])
        append(root, "u", 0, range(3))
        member = join(topics="t,u")
        batch, _ = member.next_batch()
        Admin(root).delete_topics(["u"])
        assert commit_all(member, batch) == {TopicPartition("u", 0)}
        assert committed(root) == dict.fromkeys(range(4), 10)

    def test_that_are_created_again_are_read_from_their_start(self, root, join):
        member = join(follow=True)
        batch, _ = member.next_batch()
        create_again(root, "t", 2)
        append(root, "t", 1, range(3))
        assert commit_all(member, batch) == batch.starts.keys()
        found = until(lambda: (b := member.next_batch()[0]) and b.size and b)
        assert ranges(found) == {1: (0, 3)}
