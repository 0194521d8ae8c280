"""Commits of members are fenced by generation: a late commit of a zombie changes nothing."""

import pytest

from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.errors import CommitFailedError, IllegalGenerationError, UnknownMemberIdError
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.coordinator.group_support import FakeCluster, join, partitions, settle

IDS = {"t": "id-t"}
P0, P2, P3 = (TopicPartition("t", number) for number in (0, 2, 3))


class Table:
    """An offsets table in memory with the interface of `FencedOffsets`."""

    def __init__(self):
        self.highest = 0
        self.positions = {}
        self.commits = []
        self.before_commit = self.before_fence = lambda: None

    def fence(self, group, generation):
        hook, self.before_fence = self.before_fence, lambda: None
        hook()
        self._check(generation)
        self.highest = generation

    def fetch(self, group):
        return dict(self.positions)

    def fetch_fenced(self, group, topic_ids):
        return {tp: at for tp, at in self.positions.items() if tp.topic in topic_ids}

    def commit(self, group, offsets, *, generation, member_id, topic_ids):
        hook, self.before_commit = self.before_commit, lambda: None
        hook()
        self._check(generation)
        self.highest = generation
        self.positions.update({tp: each.offset for tp, each in offsets.items()})
        self.commits.append((generation, member_id, dict(topic_ids)))

    def _check(self, generation):
        if generation < self.highest:
            raise IllegalGenerationError("old", generation=generation, current=self.highest)


@pytest.fixture
def cluster(memory_store, clock):
    return FakeCluster(memory_store, clock, t=4)


@pytest.fixture
def table():
    return Table()


def commits_of(coordinator, table):
    def refresh():
        coordinator.describe()
        return coordinator.status()

    return MemberCommits(table, "g", coordinator.status, refresh)


@pytest.fixture
def pair(cluster, table):
    """Two members that share the topic: the first has 0 and 1, the second 2 and 3."""
    a, b = cluster.member("t"), cluster.member("t")
    settle(a, b)
    return a, b


def at(offset, *partitions):
    return {each: OffsetAndMetadata(offset) for each in partitions}


def test_a_member_commits_what_it_has(pair, table):
    a, _ = pair
    commits_of(a, table).commit(at(5, P0), IDS)
    assert table.positions == {P0: 5}
    assert table.commits == [(3, a.member_id, IDS)]


def test_a_commit_that_includes_a_partition_of_another_member_commits_nothing(pair, table):
    a, _ = pair
    with pytest.raises(CommitFailedError, match="t-2 of group 'g' went to another member"):
        commits_of(a, table).commit(at(5, P0, P2), IDS)
    assert table.positions == {}, "all of it or none"


def test_what_is_revoked_may_be_committed_until_it_is_released(cluster, table):
    a, b = cluster.member("t"), cluster.member("t")
    revoking = a.heartbeat().revoking
    commits = commits_of(a, table)
    commits.commit(at(5, P2), IDS)
    a.release(revoking)
    with pytest.raises(CommitFailedError):
        commits.commit(at(6, P2), IDS)
    assert commits_of(b, table).begin(b.heartbeat().assigned) == {P2: 5, P3: None}


def test_who_begins_ends_all_commits_before(pair, table):
    """A zombie is fenced also if no other member has committed since."""
    a, b = pair
    zombie = commits_of(a, table)
    a_status = a.status()
    b.remove([a.member_id])
    commits_of(b, table).begin(b.heartbeat().assigned)
    assert table.highest == b.status().generation > a_status.generation
    assert a.status() == a_status, "the zombie has not seen it yet"
    with pytest.raises(CommitFailedError, match="nothing was committed"):
        zombie.commit(at(5, P0), IDS)
    assert table.positions == {}


def test_a_commit_that_stands_before_is_seen_by_who_begins(pair, table):
    a, b = pair
    zombie = commits_of(a, table)
    b.remove([a.member_id])
    b.heartbeat()
    zombie.commit(at(5, P0), IDS)
    assert commits_of(b, table).begin(b.heartbeat().assigned)[P0] == 5


def test_a_commit_that_comes_just_before_the_fence_is_seen_too(pair, table):
    """Offsets are read after the fence was raised, not before."""
    a, b = pair
    zombie = commits_of(a, table)
    b.remove([a.member_id])
    table.before_fence = lambda: zombie.commit(at(5, P0), IDS)
    assert commits_of(b, table).begin(b.heartbeat().assigned)[P0] == 5


def test_who_has_it_still_commits_in_the_newest_generation(cluster, pair, table):
    a, b = pair
    commits = commits_of(a, table)
    cluster.member("t", instance_id="third")
    generation = b.heartbeat().generation
    commits_of(b, table).begin(b.heartbeat().assigned)
    commits.commit(at(5, P0), IDS)
    assert table.commits == [(generation, a.member_id, IDS)]


def test_a_generation_that_begins_during_a_commit_is_seen(pair, table):
    a, b = pair

    def take_over():
        b.remove([a.member_id])
        commits_of(b, table).begin(b.heartbeat().assigned)

    table.before_commit = take_over
    with pytest.raises(CommitFailedError):
        commits_of(a, table).commit(at(5, P0), IDS)
    assert table.positions == {}


def test_positions_in_a_topic_that_was_created_again_are_refused(cluster, clock, table):
    a = cluster.member("t")
    cluster.topics["t"] = ("id-new", 4)
    clock.advance_ms(250)
    a.heartbeat()
    with pytest.raises(CommitFailedError):
        commits_of(a, table).commit(at(5, P0), IDS)
    commits_of(a, table).commit(at(1, P0), {"t": "id-new"})


def test_beginning_leaves_out_what_went_to_another_meanwhile(cluster, pair, table):
    a, b = pair
    table.positions = {P0: 1, P2: 2, P3: 3}
    assert commits_of(b, table).begin(partitions("t", 0, 2, 3)) == {P2: 2, P3: 3}
    c = cluster.member("t")
    settle(a, b, c)
    commits_of(c, table).begin(c.heartbeat().assigned)
    left = b.status().assigned
    assert commits_of(b, table).begin(partitions("t", 2, 3)).keys() == left


def test_who_is_no_member_does_not_begin(pair, table):
    a, b = pair
    b.remove([a.member_id])
    commits_of(b, table).begin(b.heartbeat().assigned)
    with pytest.raises(UnknownMemberIdError):
        commits_of(a, table).begin({P0})


def test_a_log_that_was_lost_is_noticed_and_can_be_set_right(cluster, table):
    a = cluster.coordinator()
    join(a, "t")
    table.highest = 10
    commits = commits_of(a, table)
    with pytest.raises(CommitFailedError, match="groups repair"):
        commits.begin({P0})
    with pytest.raises(CommitFailedError, match="groups repair"):
        commits.commit(at(5, P0), IDS)
    a.raise_generation(11)
    commits.begin({P0})
    commits.commit(at(5, P0), IDS)
    assert table.positions == {P0: 5}
