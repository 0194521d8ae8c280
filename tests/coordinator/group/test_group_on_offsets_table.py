"""Members of a group with the real offsets table: which commits take effect."""

import pytest

from spark_log.config import ConsumerConfig
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member import GroupMember
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.errors import CommitFailedError
from spark_log.types import OffsetAndMetadata, TopicPartition

P0, P3 = TopicPartition("t", 0), TopicPartition("t", 3)


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


def joined(cluster, client_id):
    coordinator = GroupCoordinator(cluster, "g")
    coordinator.join(["t"], client_id=client_id)
    return coordinator


def commits_of(coordinator, table):
    def refresh():
        coordinator.describe()
        return coordinator.status()

    return MemberCommits(table, "g", coordinator.status, refresh)


def at(offset, *partitions):
    return {each: OffsetAndMetadata(offset) for each in partitions}


def test_a_zombies_late_commit_changes_nothing(cluster, table):
    """It read the group before it expired, and commits after the new owner has started."""
    ids = {"t": cluster.topic("t").topic_id}
    zombie = joined(cluster, "a")
    late = commits_of(zombie, table)
    late.commit(at(100, P0, P3), ids)
    heir = joined(cluster, "b")
    heir.remove([zombie.member_id])
    begun = commits_of(heir, table).begin(heir.heartbeat().assigned)
    assert {tp: each and each.offset for tp, each in begun.items()} == {
        **dict.fromkeys(heir.status().assigned),
        **{P0: 100, P3: 100},
    }
    with pytest.raises(CommitFailedError, match="nothing was committed"):
        late.commit(at(120, P0), ids)
    assert table.fetch("g")[P0].offset == 100
    commits_of(heir, table).commit(at(110, P0), ids)
    committed = table.fetch("g")[P0]
    assert (committed.offset, committed.member_id) == (110, heir.member_id)
    assert committed.generation == heir.status().generation


def test_a_member_with_its_thread_commits_and_the_next_one_goes_on_there(cluster, table):
    ids = {"t": cluster.topic("t").topic_id}
    config = ConsumerConfig(client_id="a")
    with GroupMember(cluster, "g", table, config=config) as first:
        assigned = first.join(["t"]).assigned
        assert first.begin(assigned) == dict.fromkeys(assigned)
        first.commit(at(7, P0), ids)
    with GroupMember(cluster, "g", table, config=config) as second:
        begun = second.begin(second.join(["t"]).assigned)
        assert begun == {**dict.fromkeys(assigned), P0: 7}
    with pytest.raises(CommitFailedError):
        first.commit(at(9, P0), ids)
