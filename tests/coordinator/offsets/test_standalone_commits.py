"""Commits without membership: refused while the group has members, and never overtaken by one."""

from collections.abc import Callable

import pytest

from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.coordinator.offsets.standalone_commits import StandaloneCommits
from spark_log.errors import CommitFailedError, IllegalGenerationError
from spark_log.types import OffsetAndMetadata, TopicPartition

P0 = TopicPartition("t", 0)


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


@pytest.fixture
def commits(cluster, table):
    return StandaloneCommits(cluster, table, "g")


def joined(cluster):
    member = GroupCoordinator(cluster, "g")
    member.join(["t"])
    return member


def begin(cluster, member):
    """Start as a member does, in another process."""
    table = OffsetsTable(Cluster(cluster.root))
    committed = MemberCommits(table, "g", member.status, member.heartbeat).begin([P0])[P0]
    return None if committed is None else committed.offset


def offset_of(table):
    found = table.fetch("g")
    return found[P0].offset if P0 in found else None


def test_are_refused_as_long_as_the_group_has_members(cluster, table, commits):
    commits.commit({P0: OffsetAndMetadata(5)})
    member = joined(cluster)
    with pytest.raises(CommitFailedError, match=f"group 'g' has members, {member.member_id}"):
        commits.commit({P0: OffsetAndMetadata(9)})
    assert offset_of(table) == 5
    member.leave()
    commits.commit({P0: OffsetAndMetadata(9)})
    found = table.fetch("g")[P0]
    assert (found.offset, found.member_id, found.generation) == (9, "", 2)


def test_are_in_the_generation_of_the_group_so_that_no_member_of_before_commits_behind_them(
    cluster, table, commits
):
    ids = {"t": cluster.topic("t").topic_id}
    member = joined(cluster)
    status = member.status()
    GroupCoordinator(cluster, "g").remove([member.member_id])
    commits.commit({P0: OffsetAndMetadata(5)})
    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(2)}, generation=status.generation, topic_ids=ids)
    assert offset_of(table) == 5


def test_a_commit_of_no_offsets_is_no_commit_and_allowed_beside_members(cluster, commits):
    joined(cluster)
    commits.commit({})


class TestAMemberJoinsAfterTheLookAtTheGroup:
    @pytest.fixture
    def before_the_commit(self, monkeypatch):
        """A function that a test adds here runs once: after the group was read, before a commit."""
        todo: list[Callable[[], object]] = []
        commit = OffsetsTable.commit

        def late(table, *arguments, **options):
            while todo:
                todo.pop()()
            commit(table, *arguments, **options)

        monkeypatch.setattr(OffsetsTable, "commit", late)
        return todo

    def test_and_begins_the_commit_is_refused(self, cluster, table, commits, before_the_commit):
        commits.commit({P0: OffsetAndMetadata(5)})
        begun = []
        before_the_commit.append(lambda: begun.append(begin(cluster, joined(cluster))))
        with pytest.raises(CommitFailedError, match="has members"):
            commits.commit({P0: OffsetAndMetadata(9)})
        assert begun == [5]
        assert offset_of(table) == 5

    def test_and_begins_later_it_begins_there(self, cluster, table, commits, before_the_commit):
        members = []
        before_the_commit.append(lambda: members.append(joined(cluster)))
        commits.commit({P0: OffsetAndMetadata(9)})
        assert begin(cluster, members[0]) == 9

    def test_and_is_gone_again_the_commit_takes_effect(
        self, cluster, table, commits, before_the_commit
    ):
        def come_and_go():
            member = joined(cluster)
            begin(cluster, member)
            member.leave()

        before_the_commit.append(come_and_go)
        commits.commit({P0: OffsetAndMetadata(9)})
        assert table.fetch("g")[P0].generation == 2
        assert offset_of(table) == 9
