"""Members of a group, each with its own coordinator, that share only the storage."""

import pytest

from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidConfigurationError,
    StorageError,
    UnknownMemberIdError,
    UnknownOutcomeError,
)
from tests.coordinator.group_support import (
    SESSION_MS,
    FakeCluster,
    assigned,
    join,
    live,
    partitions,
    settle,
)
from tests.log.support import HookedStore, failing

ALL = partitions("t", 0, 1, 2, 3)


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def cluster(store, clock):
    return FakeCluster(store, clock, t=4)


def heartbeat_files(store, group="g"):
    return [file.name for file in store.inner.list(f"{GroupLog.directory_of(group)}/members")]


class TestJoining:
    def test_the_first_one_has_everything(self, cluster):
        coordinator = cluster.coordinator()
        status = join(coordinator, "t")
        assert (status.assigned, status.generation, status.protocol) == (ALL, 1, "range")
        assert status.member_id == coordinator.member_id == "consumer-000"
        assert status.is_settled

    def test_members_share_and_never_have_one_partition_at_once(self, cluster):
        a, b = cluster.member("t"), cluster.member("t")
        assert assigned(b) == set()
        status = a.heartbeat()
        assert (status.assigned, status.revoking) == (
            partitions("t", 0, 1),
            partitions("t", 2, 3),
        )
        assert status.held == ALL, "it may commit until it has released"
        a.release(status.revoking)
        assert assigned(b) == partitions("t", 2, 3)

    def test_members_share_a_topic_stripe_by_stripe(self, cluster):
        cluster.stripes["t"] = 2
        a, b, c = cluster.member("t"), cluster.member("t"), cluster.member("t", group="other")
        settle(a, b)
        assert (assigned(a), assigned(b)) == (partitions("t", 0, 2), partitions("t", 1, 3))
        assert assigned(c) == ALL
        generation = a.describe().generation
        cluster.member("u", group="other")
        settle(a, b)
        assert a.describe().generation == generation, "the group's log need not have the stripes"

    def test_members_beyond_the_partitions_idle(self, cluster):
        members = [cluster.member("t") for _ in range(6)]
        settle(*members)
        assert sorted(len(assigned(each)) for each in members) == [0, 0, 1, 1, 1, 1]

    def test_groups_do_not_see_each_other(self, cluster):
        assert assigned(cluster.member("t", group="one")) == ALL
        assert assigned(cluster.member("t", group="two")) == ALL

    @pytest.mark.parametrize("group", ["a/b", "..", "größe", "x" * 5000, " "])
    def test_a_group_may_have_any_name(self, cluster, group):
        member = cluster.member("t", group=group)
        assert cluster.coordinator(group).describe().members.keys() == {member.member_id}

    def test_an_assignor_that_there_is_not_is_refused(self, cluster, store):
        with pytest.raises(InvalidConfigurationError, match="did you mean range"):
            cluster.member("t", assignors=["rang"])
        assert store.calls == []

    def test_who_is_refused_is_no_member(self, cluster, store):
        cluster.member("t")
        cluster.limits["group.max.size"] = "1"
        late = cluster.coordinator()
        with pytest.raises(GroupMaxSizeReachedError):
            join(late, "t")
        del cluster.limits["group.max.size"]
        with pytest.raises(InconsistentGroupProtocolError):
            cluster.member("t", assignors=["sticky"])
        with pytest.raises(UnknownMemberIdError):
            late.heartbeat()
        assert len(cluster.coordinator().describe().members) == 1
        assert len(heartbeat_files(store)) == 1

    def test_a_pattern_takes_in_topics_that_come(self, cluster, clock):
        member = cluster.member(pattern="t")
        cluster.topics["t2"] = ("id-t2", 1)
        live(clock, 250, member)
        assert assigned(member) == ALL | partitions("t2", 0)


class TestLeaving:
    def test_gives_its_partitions_to_the_others_at_once(self, cluster):
        a, b = cluster.member("t"), cluster.member("t")
        settle(a, b)
        a.leave()
        assert assigned(b) == ALL
        with pytest.raises(UnknownMemberIdError):
            a.heartbeat()

    def test_twice_is_harmless_and_leaves_no_files(self, cluster, store):
        a = cluster.member("t")
        a.leave()
        a.leave()
        assert heartbeat_files(store) == []
        assert cluster.coordinator().describe().state == "Empty"

    def test_who_left_may_come_back_as_somebody_else(self, cluster):
        a = cluster.member("t")
        before = a.member_id
        a.leave()
        join(a, "t")
        assert (assigned(a), a.member_id != before) == (ALL, True)


class TestSilence:
    def test_who_is_silent_for_the_session_timeout_is_expired(self, cluster, clock, store):
        a, b = cluster.member("t"), cluster.member("t")
        settle(a, b)
        live(clock, SESSION_MS - 500, b)
        assert assigned(b) == partitions("t", 2, 3)
        live(clock, 1000, b)
        assert assigned(b) == ALL
        with pytest.raises(UnknownMemberIdError, match=r"session\.timeout\.ms"):
            a.heartbeat()
        assert len(heartbeat_files(store)) == 1

    def test_who_was_expired_comes_back_as_a_new_member(self, cluster, clock):
        a, b = cluster.member("t"), cluster.member("t")
        settle(a, b)
        live(clock, SESSION_MS + 1000, b)
        with pytest.raises(UnknownMemberIdError):
            join(a, "t")
        a.forget()
        join(a, "t")
        settle(a, b)
        assert assigned(a) | assigned(b) == ALL
        assert len(assigned(a)) == 2

    def test_all_who_beat_stay(self, cluster, clock):
        members = [cluster.member("t") for _ in range(5)]
        settle(*members)
        generation = members[0].describe().generation
        live(clock, 3 * SESSION_MS, *members)
        assert members[0].describe().generation == generation

    def test_the_first_three_watch_and_when_they_die_others_do(self, cluster, clock):
        members = [cluster.member("t") for _ in range(6)]
        settle(*members)
        last = members[-1]
        live(clock, SESSION_MS + 500, last)
        assert len(last.describe().members) == 3, "who watches is watched"
        live(clock, SESSION_MS + 500, last)
        assert last.describe().members.keys() == {last.member_id}
        assert assigned(last) == ALL

    def test_one_behind_many_dead_ones_expires_them_all_in_two_timeouts(self, cluster, clock):
        """The members that a process leaves which restarts and crashes again and again."""
        *_, last = (cluster.member("t") for _ in range(32))
        live(clock, 2 * SESSION_MS + 1000, last)
        assert last.describe().members.keys() == {last.member_id}

    def test_where_one_watcher_is_silent_five_watch_and_not_all(self, cluster, clock, store):
        members = [cluster.member("t") for _ in range(12)]
        settle(*members)
        live(clock, SESSION_MS / 2, *members[1:])
        reads = []
        for member in members[1:]:
            clock.advance_ms(250)
            store.calls.clear()
            member.heartbeat()
            reads.append(sum("/members/" in path for path in store.called("open_buffer")))
        assert reads == [11] * 4 + [5] * 7

    def test_only_watchers_read_all_heartbeats(self, cluster, clock, store):
        members = [cluster.member("t") for _ in range(8)]
        settle(*members)
        clock.advance_ms(250)
        store.calls.clear()
        members[-1].heartbeat()
        assert sum("/members/" in path for path in store.called("open_buffer")) == 3
        store.calls.clear()
        members[0].heartbeat()
        assert sum("/members/" in path for path in store.called("open_buffer")) == 7

    def test_a_heartbeat_that_fails_is_tried_again_soon(self, cluster, clock, store):
        a = cluster.member("t")
        clock.advance_ms(1000)
        store.once("put", failing(StorageError("down")))
        a.heartbeat()
        assert 0 < a.next_duty_ms() <= 100
        clock.advance_ms(100)
        store.calls.clear()
        a.heartbeat()
        assert len(store.called("put")) == 1

    def test_with_nothing_due_and_nothing_new_it_looks_for_one_name(self, cluster, store):
        a = cluster.member("t")
        a.heartbeat()
        store.calls.clear()
        a.heartbeat()
        assert len(store.calls) == 1


class TestStaticMembers:
    def test_who_comes_back_has_its_partitions_and_fences_who_was_there(self, cluster):
        a, b = cluster.member("t", instance_id="i"), cluster.member("t")
        settle(a, b)
        back = cluster.member("t", instance_id="i")
        assert assigned(back) == partitions("t", 0, 1)
        status = b.heartbeat()
        assert (status.assigned, status.revoking) == (partitions("t", 2, 3), set())
        for call in (a.heartbeat, lambda: join(a, "u"), lambda: a.release(partitions("t", 0))):
            with pytest.raises(FencedInstanceIdError, match=r"group\.instance\.id 'i'"):
                call()

    def test_partitions_wait_for_who_leaves_until_the_session_timeout(self, cluster, clock):
        a, b = cluster.member("t", instance_id="i"), cluster.member("t")
        settle(a, b)
        a.leave(is_final=False)
        live(clock, SESSION_MS - 1000, b)
        assert assigned(b) == partitions("t", 2, 3)
        live(clock, 2000, b)
        assert assigned(b) == ALL

    def test_an_older_one_whose_join_had_no_answer_does_not_fence_a_newer(self, cluster, store):
        """It reads the log first, and finds that its change was made and that it was replaced."""
        older = cluster.coordinator()

        def lose(path, call):
            call()
            newer = cluster.member("t", instance_id="i")
            store.once("list", failing(StorageError("down")))
            cluster.newer = newer
            raise UnknownOutcomeError("no answer")

        older.describe()
        store.once("put_if_absent", lose)
        with pytest.raises(FencedInstanceIdError):
            join(older, "t", instance_id="i")
        assert assigned(cluster.newer) == ALL


class TestTopics:
    def test_partitions_that_come_are_shared(self, cluster, clock):
        a, b = cluster.member("t"), cluster.member("t")
        settle(a, b)
        cluster.topics["t"] = ("id-t", 6)
        live(clock, 250, a, b)
        settle(a, b)
        assert (assigned(a), assigned(b)) == (partitions("t", 0, 1, 2), partitions("t", 3, 4, 5))

    def test_a_deleted_topic_is_nobodys(self, cluster, clock):
        a = cluster.member("t")
        del cluster.topics["t"]
        live(clock, 250, a)
        assert assigned(a) == set()

    def test_a_topic_created_again_is_told_by_its_id(self, cluster, clock):
        a = cluster.member("t")
        cluster.topics["t"] = ("id-new", 2)
        live(clock, 250, a)
        status = a.heartbeat()
        assert status.assigned == partitions("t", 0, 1)
        assert status.topics["t"].topic_id == "id-new"

    def test_metadata_is_read_after_the_group(self, cluster, clock):
        """Otherwise a change of a topic that another member applied would be undone."""
        a, b = cluster.member("t"), cluster.member("t")
        settle(a, b)
        changed: list[bool] = []
        image = cluster.image

        def change_first():
            if not changed:
                changed.append(True)
                cluster.topics["t"] = ("id-t", 6)
                clock.advance_ms(250)
                b.heartbeat()
            return image()

        cluster.image = change_first
        a.release(())  # nothing: no image is read
        live(clock, 250, a)
        assert a.describe().topics["t"].partitions == 6


def test_whoever_looks_need_not_be_a_member(cluster):
    looker = cluster.coordinator()
    assert looker.describe().state == "Empty"
    a, b = cluster.member("t", client_id="app"), cluster.member("t")
    group = looker.describe()
    assert group.state == "Reconciling"
    assert [member.client_id for member in group.members.values()] == ["app", ""]
    settle(a, b)
    assert looker.describe().state == "Stable"
    looker.remove([a.member_id])
    assert assigned(b) == ALL
