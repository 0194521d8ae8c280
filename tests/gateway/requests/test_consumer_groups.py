"""Groups of the consumer protocol (KIP-848): each request, and two gateways of one group."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log import Admin, Consumer, NewTopic
from spark_log.errors import InconsistentGroupProtocolError
from spark_log.gateway.groups import GroupError
from spark_log.gateway.protocol import message_class
from spark_log.types import TopicPartition
from tests.gateway.support import running_gateway
from tests.waiting import wait_until

_Heartbeat = message_class("ConsumerGroupHeartbeatRequest")
_Commit = message_class("OffsetCommitRequest")
_Fetch = message_class("OffsetFetchRequest")
_Join = message_class("JoinGroupRequest")
_Leave = message_class("LeaveGroupRequest")


@pytest.fixture
def topic_id(gateway):
    Admin(gateway.cluster.root).create_topics([NewTopic("t", num_partitions=4)])
    return gateway.cluster.image().find("t").topic_id


class Member:
    """A member that does what clients do: it releases and takes what it is told, and tells it.

    Attributes:
        owned: the partitions of "t" that it has.
    """

    def __init__(self, gateway, topic_id, name, *, instance_id=None, version=1):
        self.client = gateway.client()
        self.topic_id = topic_id
        self.member_id = name
        self.instance_id = instance_id
        self.version = version
        self.epoch = 0
        self.owned = []

    def send(self, epoch, **fields):
        """Return the answer to one heartbeat; take over what it says."""
        answer = self.client.ask(
            "ConsumerGroupHeartbeat",
            self.version,
            group_id="g",
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            **fields,
        )
        if answer.error_code == GroupError.NONE:
            self.member_id = answer.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                found = {
                    each.topic_id: each.partitions for each in answer.assignment.topic_partitions
                }
                self.owned = found.get(self.topic_id, [])
        return answer

    def join(self, topics=("t",), **fields):
        return self.send(
            0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=None if topics is None else list(topics),
            topic_partitions=[],
            **fields,
        )

    def heartbeat(self, epoch=None, *, tells=True, **fields):
        owned = [_Heartbeat.TopicPartitions(topic_id=self.topic_id, partitions=self.owned)]
        return self.send(
            self.epoch if epoch is None else epoch,
            topic_partitions=(owned if self.owned else []) if tells else None,
            **fields,
        )

    def commit(self, offset, epoch=None, version=9, partition=0):
        topic = _Commit.OffsetCommitRequestTopic(
            name="t",
            partitions=[
                _Commit.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset
                )
            ],
        )
        answer = self.client.ask(
            "OffsetCommit",
            version,
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            topics=[topic],
        )
        return GroupError(answer.topics[0].partitions[0].error_code).name

    def fetch(self, epoch):
        group = _Fetch.OffsetFetchRequestGroup(
            group_id="g", member_id=self.member_id, member_epoch=epoch, topics=None
        )
        answer = self.client.ask("OffsetFetch", 9, groups=[group]).groups[0]
        if answer.error_code:
            return GroupError(answer.error_code).name
        return {
            each.partition_index: each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }


def error(answer):
    return GroupError(answer.error_code).name


@pytest.fixture
def member(gateway, topic_id):
    return lambda name, **how: Member(gateway, topic_id, name, **how)


def settle(*members):
    for _ in range(3):
        for each in members:
            assert error(each.heartbeat()) == "NONE"


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_partitions_are_revoked_before_another_member_gets_them(member, assignor):
    first, second = member("a"), member("b")
    assert error(first.join(server_assignor=assignor)) == "NONE"
    assert first.owned == [0, 1, 2, 3]
    assert error(second.join(server_assignor=assignor)) == "NONE"
    assert second.owned == []
    before = first.epoch
    first.heartbeat(tells=False)
    kept = first.owned
    assert len(kept) == 2
    assert first.epoch == before, "it has not released them yet"
    second.heartbeat()
    assert second.owned == []
    first.heartbeat()
    assert first.epoch > before
    second.heartbeat()
    assert sorted(kept + second.owned) == [0, 1, 2, 3]
    assert first.heartbeat().assignment is None, "nothing is new"


def test_heartbeats_without_news_do_not_touch_the_log(gateway, member):
    first = member("a")
    first.join()
    generation = described(gateway).group_epoch
    for _ in range(5):
        assert first.heartbeat().heartbeat_interval_ms == 5000
    assert described(gateway).group_epoch == generation == first.epoch


def test_epochs_are_fenced(member):
    first = member("a")
    assert error(first.heartbeat(1)) == "UNKNOWN_MEMBER_ID"
    first.join()
    assert error(first.heartbeat(first.epoch + 1)) == "FENCED_MEMBER_EPOCH"
    assert first.commit(3, first.epoch + 1) == "STALE_MEMBER_EPOCH"
    assert first.commit(3) == "NONE"
    assert first.fetch(first.epoch) == {0: 3}
    assert first.fetch(first.epoch + 1) == "STALE_MEMBER_EPOCH"
    assert first.commit(5, first.epoch + 1, version=8) == "UNSUPPORTED_VERSION"
    second = member("b")
    assert second.commit(4, first.epoch) == "UNKNOWN_MEMBER_ID"
    assert second.fetch(first.epoch) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_released_partitions_commits_with_its_new_epoch_alone(member):
    first, second = member("a"), member("b")
    first.join()
    old = first.epoch
    second.join()
    first.heartbeat()
    assert first.commit(7, old) == "NONE", "until it releases them"
    first.heartbeat()
    assert first.commit(8, old) == "STALE_MEMBER_EPOCH"
    assert first.commit(9) == "NONE"
    assert error(first.heartbeat(old)) == "NONE", "the answer with the new epoch was lost"
    assert error(first.heartbeat(old, tells=False)) == "FENCED_MEMBER_EPOCH"


def test_a_member_that_leaves_frees_its_partitions(gateway, member):
    first, second = member("a"), member("b")
    first.join()
    second.join()
    settle(first, second)
    assert first.send(-1).member_epoch == -1
    second.heartbeat()
    assert second.owned == [0, 1, 2, 3]
    assert second.commit(1) == "NONE"
    second.send(-1)
    assert described(gateway).group_state == "Empty"
    assert error(second.heartbeat(5)) == "UNKNOWN_MEMBER_ID"


def test_a_static_member_that_starts_again_keeps_its_partitions(member):
    first, second = member("a", instance_id="i"), member("b", instance_id="j")
    first.join()
    second.join()
    settle(first, second)
    owned = first.owned
    again = member("c", instance_id="i")
    assert error(again.join()) == "UNRELEASED_INSTANCE_ID"
    assert first.send(-2).member_epoch == -2
    second.heartbeat()
    assert len(second.owned) == 2
    assert error(again.join()) == "NONE"
    assert again.owned == owned
    assert error(first.heartbeat(1)) == "FENCED_INSTANCE_ID"
    assert first.commit(1, second.epoch) == "FENCED_INSTANCE_ID"


def test_a_join_whose_answer_was_lost_is_repeated(gateway, member):
    first = member("a")
    first.join()
    old = first.epoch
    assert error(first.join()) == "NONE"
    assert first.owned == [0, 1, 2, 3]
    assert first.commit(1, old) == "STALE_MEMBER_EPOCH", "it may have abandoned its partitions"
    assert first.commit(1) == "NONE"


def test_a_regular_expression_follows_topics(gateway, member):
    first = member("a")
    first.join(topics=None, subscribed_topic_regex="(t|u.*)")
    assert first.owned == [0, 1, 2, 3]
    assert described(gateway).members[0].subscribed_topic_regex == "(t|u.*)"
    assert error(first.heartbeat(subscribed_topic_regex="t|(")) == "INVALID_REGULAR_EXPRESSION"
    assert error(first.heartbeat(subscribed_topic_regex="(?=t)t")) == "INVALID_REGULAR_EXPRESSION"
    first.heartbeat(subscribed_topic_regex="x)|(t")
    first.heartbeat(subscribed_topic_regex="", subscribed_topic_names=[])
    first.heartbeat()
    assert first.owned == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"server_assignor": "sticky"}, "UNSUPPORTED_ASSIGNOR"),
        ({"instance_id": ""}, "INVALID_REQUEST"),
        ({"topic_partitions": None}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": -1}, "INVALID_REQUEST"),
        ({"subscribed_topic_names": None}, "INVALID_REQUEST"),
        ({"member_epoch": -3}, "INVALID_REQUEST"),
        ({"member_epoch": -2}, "INVALID_REQUEST"),
        ({"member_id": ""}, "INVALID_REQUEST"),
        ({"group_id": ""}, "INVALID_REQUEST"),
    ],
)
def test_a_wrong_request_is_refused_and_writes_nothing(gateway, client, fields, expected):
    right = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    answer = client.ask("ConsumerGroupHeartbeat", 1, **{**right, **fields})
    assert error(answer) == expected
    assert answer.error_message
    assert described(gateway).error_code == GroupError.GROUP_ID_NOT_FOUND


def test_version_0_gives_out_ids(member):
    first = member("", version=0)
    first.join()
    assert first.member_id
    assert error(first.heartbeat()) == "NONE"


def test_a_group_is_of_one_kind(gateway, member, client):
    first = member("a")
    first.join()
    root = gateway.cluster.root
    classic = client.ask(
        "JoinGroup",
        9,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[_Join.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert error(classic) == "INCONSISTENT_GROUP_PROTOCOL"
    with (
        pytest.raises(InconsistentGroupProtocolError),
        Consumer("t", root=root, group_id="g") as ours,
    ):
        ours.poll(timeout_ms=1000)
    first.send(-1)
    with Consumer("t", root=root, group_id="g") as ours:
        ours.poll(timeout_ms=1000)
        answer = first.join()
        assert error(answer) == "GROUP_ID_NOT_FOUND"
        assert "another kind" in answer.error_message
    assert error(first.join()) == "NONE"


def test_groups_are_listed_and_described_with_their_type(gateway, member, client):
    first = member("a", instance_id="i")
    first.join()
    (listed,) = client.ask("ListGroups", 5, states_filter=[], types_filter=["consumer"]).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "consumer", "Stable")
    assert client.ask("ListGroups", 5, states_filter=[], types_filter=["classic"]).groups == []
    group = described(gateway)
    assert (group.group_state, group.assignor_name) == ("Stable", "uniform")
    (found,) = group.members
    assert (found.member_id, found.instance_id, found.member_epoch) == ("a", "i", first.epoch)
    assert found.subscribed_topic_names == ["t"]
    (assigned,) = found.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1, 2, 3])
    (classic,) = client.ask("DescribeGroups", 6, groups=["g"]).groups
    assert classic.error_code == GroupError.GROUP_ID_NOT_FOUND


def test_a_group_without_members_has_the_assignor_that_is_kafkas_default(gateway, member):
    first = member("a")
    first.join()
    assert first.commit(7) == "NONE"
    first.heartbeat(-1)
    group = described(gateway)
    assert (group.group_state, group.members) == ("Empty", [])
    assert group.assignor_name == "uniform"


@pytest.mark.parametrize("is_late", [True, False])
def test_a_commit_is_refused_if_others_may_have_committed_since_it_arrived(
    gateway, member, is_late
):
    first = member("a")
    first.join()
    handlers = gateway.server.gateway
    turn = handlers.commit_order.turn("g", "a")
    gateway.run(turn.acquire())  # an earlier commit of the member is not done
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(first.commit, 5)
        wait_until(lambda: gateway.call(lambda: bool(turn._waiters)))  # noqa: SLF001
        handlers._member.term += is_late  # noqa: SLF001
        gateway.call(turn.release)
        assert answer.result() == ("COORDINATOR_NOT_AVAILABLE" if is_late else "NONE")


@pytest.mark.usefixtures("two_coordinators")
def test_another_gateway_continues_and_the_late_one_has_lost_the_group(gateway, member, topic_id):
    first, second = member("a"), member("b")
    first.join()
    second.join()
    settle(first, second)
    with running_gateway(gateway.cluster.root) as other:
        moved = Member(other, topic_id, "b")
        moved.epoch, moved.owned = second.epoch, second.owned
        assert error(moved.heartbeat()) == "NONE"
        assert moved.owned == second.owned
        moved.send(-1)
        mine = first.owned[0]
        assert first.commit(1, partition=mine) == "NOT_COORDINATOR"
        assert error(first.heartbeat()) == "NONE"
        assert first.owned == [0, 1, 2, 3]
        assert first.commit(1, partition=mine) == "NONE"
    assert (
        Admin(gateway.cluster.root).list_group_offsets("g")[TopicPartition("t", mine)].offset == 1
    )


def test_an_administrator_removes_members(gateway, topic_id):
    first, second = Member(gateway, topic_id, "first"), Member(gateway, topic_id, "second")
    static = Member(gateway, topic_id, "static", instance_id="i")
    assert [each.join().error_code for each in (first, second, static)] == [0] * 3
    named = (("first", None), ("nobody", None), ("other", "i"), ("", "i"), ("", "unknown"))
    wanted = [_Leave.MemberIdentity(member_id=name, group_instance_id=i) for name, i in named]
    with gateway.client() as client:
        answer = client.ask("LeaveGroup", 5, group_id="g", members=wanted)
        assert answer.error_code == 0
        assert [GroupError(each.error_code).name for each in answer.members] == [
            *("NONE", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "NONE", "UNKNOWN_MEMBER_ID")
        ]
        assert [each.member_id for each in described(gateway).members] == ["second"]
        assert first.heartbeat().error_code == GroupError.UNKNOWN_MEMBER_ID
        last = [_Leave.MemberIdentity(member_id=name) for name in ("second", "second")]
        answer = client.ask("LeaveGroup", 5, group_id="g", members=last)
        assert [each.error_code for each in answer.members] == [0, GroupError.UNKNOWN_MEMBER_ID]


def described(gateway):
    with gateway.client() as client:
        (found,) = client.ask(
            "ConsumerGroupDescribe", 1, group_ids=["g"], include_authorized_operations=True
        ).groups
    assert found.error_code or found.authorized_operations == 3400  # Kafka's without ACLs
    return found
