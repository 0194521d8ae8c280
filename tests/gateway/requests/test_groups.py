"""Groups of Kafka's clients: each request in its versions, and two gateways of one group."""

import threading
from functools import partial

import pytest

from spark_log import Admin, Consumer, NewTopic
from spark_log.coordinator import OffsetsTable
from spark_log.errors import InconsistentGroupProtocolError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.groups import GroupError
from spark_log.gateway.protocol import message_class
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.gateway.support import running_gateway
from tests.waiting import wait_until

_Join = message_class("JoinGroupRequest")
_Sync = message_class("SyncGroupRequest")
_Leave = message_class("LeaveGroupRequest")
_Commit = message_class("OffsetCommitRequest")
_Fetch = message_class("OffsetFetchRequest")
_Delete = message_class("OffsetDeleteRequest")

T0 = TopicPartition("t", 0)


class Member:
    """A member of a group on a connection of its own."""

    def __init__(self, gateway, group="g", *, versions=(9, 5, 4, 5), instance_id=None):
        self.client = gateway.client()
        self.group = group
        self.join_version, self.sync_version, self.heartbeat_version, self.leave_version = versions
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def send_join(self, protocols=("range",), session_ms=10_000):
        self.client.send(
            "JoinGroup",
            self.join_version,
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                _Join.JoinGroupRequestProtocol(name=name, metadata=name.encode())
                for name in protocols
            ],
        )

    def receive_join(self):
        _, answer = self.client.receive()
        if answer.error_code in (GroupError.NONE, GroupError.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            self.generation = answer.generation_id
        return answer

    def join(self, **how):
        self.send_join(**how)
        answer = self.receive_join()
        if answer.error_code == GroupError.MEMBER_ID_REQUIRED:
            self.send_join(**how)
            answer = self.receive_join()
        return answer

    def send_sync(self, **assignments):
        self.client.send(
            "SyncGroup",
            self.sync_version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                _Sync.SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in assignments.items()
            ],
        )

    def sync(self, **assignments):
        self.send_sync(**assignments)
        return self.client.receive()[1]

    def heartbeat(self):
        answer = self.client.ask(
            "Heartbeat",
            self.heartbeat_version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return GroupError(answer.error_code)

    def leave(self):
        if self.leave_version < 3:
            return self.client.ask(
                "LeaveGroup", self.leave_version, group_id=self.group, member_id=self.member_id
            ).error_code
        answer = self.client.ask(
            "LeaveGroup",
            self.leave_version,
            group_id=self.group,
            members=[
                _Leave.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            ],
        )
        return answer.error_code or answer.members[0].error_code

    def commit(self, offset, **fields):
        self.send_commit(offset, **fields)
        return self.receive_commit()

    def receive_commit(self):
        _, answer = self.client.receive()
        return answer.topics[0].partitions[0].error_code

    def send_commit(self, offset, *, partition=0, topic="t", metadata="m", version=9):
        self.client.send(
            "OffsetCommit",
            version,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                _Commit.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        _Commit.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=0,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )

    def stable(self):
        """Join alone, and take an assignment."""
        assert self.join().error_code == GroupError.NONE
        assert self.sync(**{self.member_id: b"mine"}).assignment == b"mine"
        return self


@pytest.fixture
def topic(gateway):
    admin = Admin(gateway.cluster.root)
    admin.create_topics([NewTopic("t", num_partitions=2)])
    return admin


@pytest.mark.parametrize("versions", [(0, 0, 0, 0), (3, 2, 2, 2), (5, 3, 3, 3), (9, 5, 4, 5)])
def test_two_members_share_a_group_and_leave_it(gateway, versions):
    leader, follower = (Member(gateway, versions=versions) for _ in range(2))
    leader.stable()
    follower.send_join()
    if versions[0] >= 4:
        follower.receive_join()
        follower.send_join()
    wait_until(lambda: leader.heartbeat() is not GroupError.NONE)
    again = leader.join()
    joined = follower.receive_join()
    assert (again.generation_id, joined.generation_id) == (2, 2)
    assert {each.member_id for each in again.members} == {leader.member_id, follower.member_id}
    assert {each.metadata for each in again.members} == {b"range"}
    assert (joined.leader, joined.members) == (leader.member_id, [])
    follower.send_sync()
    assert leader.sync(**{leader.member_id: b"1", follower.member_id: b"2"}).assignment == b"1"
    assert follower.client.receive()[1].assignment == b"2"
    assert [leader.heartbeat(), follower.heartbeat()] == [GroupError.NONE] * 2
    assert follower.leave() == GroupError.NONE
    assert follower.heartbeat() is GroupError.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() is GroupError.REBALANCE_IN_PROGRESS
    assert leader.leave() == GroupError.NONE


@pytest.mark.usefixtures("two_coordinators")
def test_a_second_gateway_goes_on_and_the_first_one_has_lost_the_group(gateway, topic):
    """The first gateway still thinks that it coordinates: its members' commits are refused."""
    with running_gateway(gateway.cluster.root) as other:
        first = Member(gateway).stable()
        assert first.commit(1) == GroupError.NONE
        # The same member at the other gateway, and a new one.
        moved = Member(other)
        moved.member_id, moved.generation = first.member_id, first.generation
        assert moved.heartbeat() is GroupError.NONE
        newcomer = Member(other)
        newcomer.send_join()
        newcomer.receive_join()
        newcomer.send_join()
        wait_until(lambda: moved.heartbeat() is not GroupError.NONE)
        moved.send_join()
        moved.receive_join()
        newcomer.receive_join()
        assert moved.generation == newcomer.generation == 2
        moved.sync(**{newcomer.member_id: b"yours"})
        assert newcomer.sync().assignment == b"yours"
        assert newcomer.commit(5) == GroupError.NONE
        # It answers heartbeats from memory, and learns of its loss by the first change or commit.
        assert first.heartbeat() is GroupError.NONE
        assert first.commit(2) == GroupError.NOT_COORDINATOR
        assert first.heartbeat() is GroupError.ILLEGAL_GENERATION
        offsets = topic.list_group_offsets("g")
        assert offsets[T0].offset == 5


@pytest.mark.usefixtures("two_coordinators")
def test_a_gateway_that_lost_a_race_answers_not_coordinator(gateway):
    with running_gateway(gateway.cluster.root) as other:
        first = Member(gateway).stable()
        moved = Member(other)
        moved.member_id, moved.generation = first.member_id, first.generation
        assert moved.leave() == GroupError.NONE
        assert first.join().error_code == GroupError.NOT_COORDINATOR
        assert first.join().error_code == GroupError.UNKNOWN_MEMBER_ID


def test_commits_are_in_the_table_of_all_consumers(gateway, topic):
    member = Member(gateway).stable()
    assert member.commit(7, metadata="hello") == GroupError.NONE
    assert topic.list_group_offsets("g") == {T0: OffsetAndMetadata(7, "hello", 0)}
    codes = [
        member.commit(1, topic="absent"),
        member.commit(1, partition=2),
        member.commit(1, metadata="x" * 4097),
        member.commit(-1),
    ]
    assert codes == [3, 3, 12, 1]
    member.generation = 9
    assert member.commit(8) == GroupError.ILLEGAL_GENERATION
    member.member_id = "other"
    assert member.commit(8) == GroupError.UNKNOWN_MEMBER_ID
    assert topic.list_group_offsets("g")[T0].offset == 7


@pytest.mark.parametrize("version", range(2, 11))
def test_a_client_without_membership_commits_and_fetches(gateway, client, topic, version):
    topic_id = gateway.cluster.image().topic("t").topic_id
    partition = _Commit.OffsetCommitRequestPartition(
        partition_index=1, committed_offset=3, committed_metadata=None
    )
    wanted = _Commit.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[partition])
    for member_id in ("", "an id of its own"):
        answer = client.ask(
            "OffsetCommit", version, group_id="g", member_id=member_id, topics=[wanted]
        )
        assert answer.topics[0].partitions[0].error_code == GroupError.NONE
    if version < 8:
        topics = [_Fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        found = client.ask("OffsetFetch", version, group_id="g", topics=topics).topics
    else:
        group = _Fetch.OffsetFetchRequestGroup(
            group_id="g",
            topics=[
                _Fetch.OffsetFetchRequestTopics(
                    name="t", topic_id=topic_id, partition_indexes=[0, 1]
                )
            ],
        )
        found = client.ask("OffsetFetch", version, groups=[group]).groups[0].topics
    assert [(each.committed_offset, each.metadata) for each in found[0].partitions] == [
        (-1, ""),
        (3, ""),
    ]


def test_all_offsets_of_a_group_are_fetched(client, topic):
    topic.alter_group_offsets("g", {T0: OffsetAndMetadata(4, "", -1)})
    answer = client.ask("OffsetFetch", 5, group_id="g", topics=None)
    assert [each.partitions[0].committed_offset for each in answer.topics] == [4]
    group = _Fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    none = _Fetch.OffsetFetchRequestGroup(group_id="nobody", topics=None)
    answer = client.ask("OffsetFetch", 8, groups=[group, none], require_stable=True)
    assert [len(each.topics) for each in answer.groups] == [1, 0]


def test_a_consumer_of_this_package_and_kafkas_clients_refuse_each_other(gateway, topic):
    member = Member(gateway).stable()
    with (
        Consumer("t", root=gateway.cluster.root, group_id="g") as ours,
        pytest.raises(InconsistentGroupProtocolError, match="Kafka's clients"),
    ):
        ours.poll(timeout_ms=5000)
    assert member.leave() == GroupError.NONE
    with Consumer("t", root=gateway.cluster.root, group_id="g") as ours:
        ours.poll(timeout_ms=0)
        assert ours.assignment()
        assert member.join().error_code == GroupError.INCONSISTENT_GROUP_PROTOCOL
        assert member.commit(1) == GroupError.UNKNOWN_MEMBER_ID
        member.member_id, member.generation = "", -1
        assert member.commit(1) == GroupError.UNKNOWN_MEMBER_ID
    assert member.stable().generation > 1


def test_groups_are_listed_described_and_deleted(gateway, client, topic):
    member = Member(gateway).stable()
    member.commit(1)
    listed = client.ask("ListGroups", 5, states_filter=["stable"], types_filter=["Classic"]).groups
    assert [(each.group_id, each.protocol_type, each.group_state) for each in listed] == [
        ("g", "consumer", "Stable")
    ]
    assert client.ask("ListGroups", 4, states_filter=["Empty"]).groups == []
    (described, absent) = client.ask(
        "DescribeGroups", 6, groups=["g", "absent"], include_authorized_operations=True
    ).groups
    assert described.authorized_operations == 3400  # Kafka's without ACLs
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (found,) = described.members
    assert (found.member_id, found.client_id) == (member.member_id, "a-test")
    assert (found.member_metadata, found.member_assignment) == (b"range", b"mine")
    assert (absent.group_state, absent.error_code) == ("Dead", 69)
    assert absent.error_message == "Group absent not found."
    (absent,) = client.ask("DescribeGroups", 0, groups=["absent"]).groups
    assert (absent.group_state, absent.error_code) == ("Dead", 0)
    codes = [
        each.error_code for each in client.ask("DeleteGroups", 2, groups_names=["g", "x"]).results
    ]
    assert codes == [68, 69]
    member.leave()
    assert client.ask("DeleteGroups", 0, groups_names=["g"]).results[0].error_code == 0
    assert topic.list_group_offsets("g") == {}


def test_a_group_that_never_committed_is_deleted_once(gateway, client, topic):
    def delete():
        return client.ask("DeleteGroups", 2, groups_names=["g"]).results[0].error_code

    for _ in range(2):
        member = Member(gateway).stable()
        assert delete() == ErrorCode.NON_EMPTY_GROUP
        member.leave()
        assert delete() == GroupError.NONE
        assert delete() == GroupError.GROUP_ID_NOT_FOUND
    member = Member(gateway).stable()
    assert member.commit(1) == GroupError.NONE
    member.leave()
    assert [delete(), delete()] == [GroupError.NONE, GroupError.GROUP_ID_NOT_FOUND]


def test_offsets_are_deleted(client, topic):
    topic.alter_group_offsets("g", {T0: OffsetAndMetadata(4, "", -1)})
    wanted = _Delete.OffsetDeleteRequestTopic(
        name="t",
        partitions=[
            _Delete.OffsetDeleteRequestPartition(partition_index=number) for number in (0, 9)
        ],
    )
    answer = client.ask("OffsetDelete", 0, group_id="g", topics=[wanted])
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 3]
    assert client.ask("OffsetDelete", 0, group_id="absent", topics=[wanted]).error_code == 69


def test_the_last_offset_of_a_group_is_deleted_before_a_topic_without_offsets(client, topic):
    topic.alter_group_offsets("g", {T0: OffsetAndMetadata(4, "", -1)})
    topic.create_topics([NewTopic("without")])
    partition = _Delete.OffsetDeleteRequestPartition(partition_index=0)
    topics = [
        _Delete.OffsetDeleteRequestTopic(name=name, partitions=[partition])
        for name in ("t", "unknown", "without")
    ]
    answer = client.ask("OffsetDelete", 0, group_id="g", topics=topics)
    assert answer.error_code == 0
    assert [each.partitions[0].error_code for each in answer.topics] == [0, 3, 0]
    assert client.ask("OffsetDelete", 0, group_id="g", topics=topics).error_code == 69


def test_a_group_that_never_had_members_has_no_type(client, topic):
    topic.alter_group_offsets("g", {T0: OffsetAndMetadata(4, "", -1)})
    (described,) = client.ask("DescribeGroups", 6, groups=["g"]).groups
    assert (described.error_code, described.group_state) == (0, "Empty")
    assert (described.protocol_type, described.protocol_data) == ("", "")


def test_the_first_group_finalizes_the_feature(gateway):
    features = lambda: gateway.cluster.image().features  # noqa: E731
    assert "group.version" not in features()
    Member(gateway).stable()
    assert features()["group.version"].feature_level == 1


def test_a_gateway_that_stops_sends_waiting_members_away(tmp_path):
    """Without that, ``stop`` would close their connections without an answer after a time."""
    with running_gateway(tmp_path / "root") as gateway:
        rebalancing = Member(gateway, "joining").stable()
        joining = Member(gateway, "joining")
        joining.send_join()
        joining.receive_join()
        joining.send_join()
        leader = Member(gateway, "syncing").stable()
        syncing = Member(gateway, "syncing")
        syncing.send_join()
        syncing.receive_join()
        syncing.send_join()
        wait_until(lambda: leader.heartbeat() is not GroupError.NONE)
        leader.join()
        syncing.receive_join()
        syncing.send_sync()
        requests = lambda: [each.in_flight for each in gateway.server.connections]  # noqa: E731
        wait_until(lambda: sorted(gateway.call(requests)) == [0, 0, 1, 1])
        gateway.run(gateway.server.stop())
        assert joining.receive_join().error_code == GroupError.NOT_COORDINATOR
        assert syncing.client.receive()[1].error_code == GroupError.NOT_COORDINATOR
        for each in (rebalancing, leader, joining, syncing):
            assert each.client.is_closed()


def test_a_request_without_a_group_is_refused(gateway, client):
    assert Member(gateway, "").join().error_code == GroupError.INVALID_GROUP_ID
    assert client.ask("Heartbeat", 4, group_id="").error_code == GroupError.INVALID_GROUP_ID
    assert client.ask("LeaveGroup", 4, group_id="").error_code == GroupError.INVALID_GROUP_ID
    assert client.ask("SyncGroup", 5, group_id="").error_code == GroupError.INVALID_GROUP_ID


def test_commits_of_one_connection_take_effect_in_their_order(gateway, topic, monkeypatch):
    """They are made on several threads; here each first one is the slower one."""
    member = Member(gateway).stable()
    commit = OffsetsTable.commit
    first_ended = threading.Event()
    begun = []

    def slow_commit(table, group, offsets, **options):
        begun.append(offsets[T0].offset)
        if len(begun) == 1:
            first_ended.wait(0.2)
        commit(table, group, offsets, **options)
        first_ended.set()

    monkeypatch.setattr(OffsetsTable, "commit", slow_commit)
    for offset in (1, 2):
        member.send_commit(offset)
    for _ in range(2):
        assert member.receive_commit() == GroupError.NONE
    assert begun == [1, 2]
    assert topic.list_group_offsets("g")[T0].offset == 2


def test_a_commit_waits_until_the_others_know_that_its_gateway_is_active(tmp_path):
    """Kafka's clients do not repeat an asynchronous commit that is refused."""
    never = {"broker_heartbeat_interval_ms": 3_600_000, "broker_session_timeout_ms": 7_200_000}
    root = tmp_path / "root"
    with (
        running_gateway(root, **never) as first,
        running_gateway(root, **never, broker_join_delay_ms=0) as second,
        Admin(root) as admin,
    ):
        admin.create_topics([NewTopic("t", 1)])
        second.run(second.server.gateway.tick())  # it becomes active
        own = second.server.gateway.registered.incarnation_id
        coordinator = partial(second.server.gateway.coordinator, "group")
        group = next(
            name for name in map(str, range(100)) if coordinator(name).incarnation_id == own
        )
        member = Member(second, group)
        assert member.heartbeat() is GroupError.NOT_COORDINATOR
        member.member_id, member.generation = "", -1
        member.send_commit(3)
        for each in (first, second):
            each.run(each.server.gateway.tick())
        assert member.receive_commit() == GroupError.NONE
        assert admin.list_group_offsets(group)[T0].offset == 3
