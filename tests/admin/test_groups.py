"""Groups as `Admin` lists, describes and changes them."""

import socket
from typing import Any

import pytest

from spark_log import (
    Admin,
    ConsumerGroupMetadata,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    NewTopic,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    OffsetSpec,
    OffsetTimestamp,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.errors import (
    IllegalGenerationError,
    InvalidConfigurationError,
    InvalidTimestampError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from spark_log.log import PartitionLog
from spark_log.util.clock import ManualClock
from tests.record.samples import START_US, numbered, record_batch, row
from tests.transactions import TransactionWriter

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def admin(cluster):
    return Admin(cluster.root, clock=cluster.clock)


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


def joined(cluster, group="g", topics=("t",), **options):
    member = GroupCoordinator(cluster, group)
    member.join(topics, **options)
    return member


def offsets(admin, group):
    return {tp: each.offset for tp, each in admin.list_group_offsets(group).items()}


def test_groups_with_members_or_positions_are_listed(cluster, admin, table):
    assert admin.list_groups() == []
    table.commit("a", {P0: OffsetAndMetadata(1)})
    joined(cluster, "b")
    joined(cluster, "gone").leave()
    joined(cluster, "ü" * 200)

    listed = [(each.group_id, each.protocol_type, each.group_state) for each in admin.list_groups()]
    assert listed == [
        ("a", "", "Empty"),
        ("b", "consumer", "Stable"),
        ("ü" * 200, "consumer", "Stable"),
    ]
    assert [each.group_id for each in admin.list_groups(states_filter=["empty"])] == ["a"]


def test_a_description_says_who_has_what(cluster, admin):
    member = joined(cluster, client_id="c", instance_id="i")
    described = admin.describe_groups(["g"])["g"]
    assert (described.group_state, described.protocol, described.generation) == (
        "Stable",
        "range",
        1,
    )
    (only,) = described.members
    assert (only.member_id, only.client_id, only.group_instance_id) == (member.member_id, "c", "i")
    assert only.client_host == socket.gethostname()
    assert only.assignment == tuple(TopicPartition("t", at) for at in range(4))


def test_a_group_that_is_not_there_is_named_with_those_that_look_like_it(admin, table):
    table.commit("orders", {P0: OffsetAndMetadata(1)})
    with pytest.raises(GroupIdNotFoundError, match="did you mean 'orders'") as missing:
        admin.describe_groups(["order"])
    assert missing.value.group_id == "order"
    assert admin.list_group_offsets("order") == {}


def test_lag_is_told_in_records_and_in_time(cluster, admin, table):
    clock: ManualClock = cluster.clock
    log = cluster.partition_log(cluster.topic("t"), 0)
    for age_s in (9, 5, 2):
        log.append(record_batch([row(b"v", timestamp=clock.time_us() - age_s * 1_000_000)]))
    table.commit("g", {P0: OffsetAndMetadata(1, "note"), P1: OffsetAndMetadata(0)})
    joined(cluster)

    behind, done, *never = admin.group_lag("g")

    assert (behind.current_offset, behind.log_end_offset, behind.lag) == (1, 3, 2)
    assert (behind.lag_ms, behind.metadata, behind.member.client_id) == (5000, "note", "")
    assert (done.lag, done.lag_ms) == (0, 0)
    assert [(each.current_offset, each.lag, each.lag_ms) for each in never] == [(None,) * 3] * 2


def test_the_lags_of_several_groups_are_one_cut(cluster, admin, table, monkeypatch):
    log = cluster.partition_log(cluster.topic("t"), 0)
    log.append(numbered(0, 3))
    table.commit("behind", {P0: OffsetAndMetadata(1)})
    table.commit("late", {P0: OffsetAndMetadata(2)})
    positions = OffsetsTable.committed_offsets

    def reading_on(self, group):
        log.append(numbered(3, 1))  # records that are appended while offsets are read
        return positions(self, group)

    monkeypatch.setattr(OffsetsTable, "committed_offsets", reading_on)
    lags = admin.group_lags(["behind", "late"])
    end = log.observe().log_end_offset
    assert end > 3
    assert {group: [each.lag for each in found] for group, found in lags.items()} == {
        "behind": [end - 1],
        "late": [end - 2],
    }


def append_aged(cluster, *ages_s):
    """Append a record of each age, by the cluster's clock, each as one segment."""
    log = cluster.partition_log(cluster.topic("t"), 0)
    for age_s in ages_s:
        log.append(record_batch([row(b"v", timestamp=cluster.clock.time_us() - age_s * 1_000_000)]))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (1, (2, 0, 5000)),
        (2, (1, 1, 2000)),  # the age of the first record that is left
        (3, (0, 2, 0)),  # nothing is left to read
    ],
)
def test_lag_counts_what_can_be_read_and_tells_what_was_deleted_unread(
    cluster, admin, table, start, expected
):
    append_aged(cluster, 9, 5, 2)
    table.commit("g", {P0: OffsetAndMetadata(1)})
    admin.delete_records({P0: start})
    (found,) = admin.group_lag("g")
    assert (found.lag, found.deleted, found.lag_ms) == expected
    assert (found.current_offset, found.log_end_offset) == (1, 3)
    assert admin._runtime.cluster().suppressed.counts() == {}  # noqa: SLF001


@pytest.mark.partition_logs_only("deletes records while a partition is listed")
def test_records_that_are_deleted_while_a_lag_is_read_are_no_error(
    cluster, admin, table, monkeypatch
):
    append_aged(cluster, 9, 5, 2)
    table.commit("g", {P0: OffsetAndMetadata(0)})
    observe = PartitionLog.observe

    def deleting_then(self, **options):
        view = observe(self, **options)
        monkeypatch.undo()
        Admin(cluster.root, clock=cluster.clock).delete_records({P0: 2})
        return view

    monkeypatch.setattr(PartitionLog, "observe", deleting_then)
    (found,) = admin.group_lag("g")
    assert (found.lag, found.deleted, found.lag_ms) == (3, 0, 2000)
    assert admin._runtime.cluster().suppressed.counts() == {}  # noqa: SLF001


def test_a_committed_offset_beyond_the_end_has_no_lag_and_nothing_was_deleted(
    cluster, admin, table
):
    append_aged(cluster, 9)
    table.commit("g", {P0: OffsetAndMetadata(7)})
    (found,) = admin.group_lag("g")
    assert (found.lag, found.deleted, found.lag_ms) == (0, 0, 0)


def test_offsets_of_a_topic_that_was_created_again_are_not_compared_with_the_new_one(
    cluster, admin, table, monkeypatch
):
    """The topic is replaced by one with fewer partitions while the committed offsets are read."""
    append_aged(cluster, 9, 5, 2)
    table.commit("g", {P0: OffsetAndMetadata(2), P1: OffsetAndMetadata(0)})
    positions = OffsetsTable.committed_offsets

    def then_replaced(self, group):
        found = positions(self, group)
        if cluster.image().find("t").num_partitions > 1:
            other = Admin(cluster.root, clock=cluster.clock)
            other.delete_topics(["t"])
            other.create_topics([NewTopic("t", 1)])
        return found

    described = admin.describe_groups(["g"])
    monkeypatch.setattr(OffsetsTable, "committed_offsets", then_replaced)
    assert admin._runtime.groups().lags(described.values()) == {"g": []}  # noqa: SLF001


def test_lag_of_committed_reads_ends_at_the_last_stable_offset(cluster, admin, table):
    log = cluster.partition_log(cluster.topic("t"), 0)
    log.append(numbered(0, 3))
    writer = TransactionWriter(log)
    writer.send(b"open", b"too")
    table.commit("g", {P0: OffsetAndMetadata(1)})

    def lag(**isolation):
        (found,) = admin.group_lag("g", **isolation)
        return found.log_end_offset, found.lag

    assert (lag(), lag(isolation_level="read_committed")) == ((5, 4), (3, 2))
    writer.commit()
    assert lag(isolation_level="read_committed") == lag() == (6, 5)
    with pytest.raises(InvalidConfigurationError, match="isolation_level is 'serializable'"):
        admin.group_lag("g", isolation_level="serializable")


def test_stable_offsets_are_those_behind_all_transactions(cluster, admin, table):
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
    with Producer(cluster.root, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({P0: OffsetAndMetadata(7)}, ConsumerGroupMetadata("g"))
        assert offsets(admin, "g") == {P0: 1, P1: 1}
        assert admin.list_group_offsets("g", [P1], require_stable=True) == {
            P1: OffsetAndMetadata(1)
        }
        for call in (
            lambda: admin.list_group_offsets("g", require_stable=True),
            lambda: admin.list_consumer_group_offsets({"g": [P0]}, require_stable=True),
        ):
            with pytest.raises(UnstableOffsetCommitError, match="'tx', which is not decided yet"):
                call()
        producer.commit_transaction()
    assert admin.list_consumer_group_offsets({"g": [P0], "h": None}, require_stable=True) == {
        "g": {P0: OffsetAndMetadata(7)},
        "h": {},
    }


def test_positions_are_altered_all_or_none(admin):
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(3, "note"), P1: OffsetAndMetadata(0)})
    assert admin.list_group_offsets("g", [P0]) == {P0: OffsetAndMetadata(3, "note")}
    assert admin.list_consumer_group_offsets({"g": [P1], "h": None}) == {
        "g": {P1: OffsetAndMetadata(0)},
        "h": {},
    }
    for wrong, error in (
        (TopicPartition("t", 4), UnknownTopicOrPartitionError),
        (TopicPartition("nope", 0), UnknownTopicOrPartitionError),
    ):
        with pytest.raises(error):
            admin.alter_group_offsets("g", {P0: OffsetAndMetadata(9), wrong: OffsetAndMetadata(0)})
    with pytest.raises(OffsetOutOfRangeError):
        admin.alter_group_offsets("g", {P0: OffsetAndMetadata(9), P1: OffsetAndMetadata(-1)})
    assert offsets(admin, "g") == {P0: 3, P1: 0}


def test_positions_of_a_group_with_members_are_not_altered_nor_is_it_deleted(cluster, admin, table):
    member = joined(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    for change in (
        lambda: admin.alter_group_offsets("g", {P0: OffsetAndMetadata(0)}),
        lambda: admin.delete_groups(["g"]),
    ):
        with pytest.raises(GroupNotEmptyError) as refused:
            change()
        assert refused.value.members == (member.member_id,)
    assert offsets(admin, "g") == {P0: 5}
    member.leave()
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(0)})
    assert offsets(admin, "g") == {P0: 0}


def test_a_member_that_joins_during_a_reset_refuses_it_once_it_has_begun(
    cluster, admin, table, monkeypatch
):
    table.commit("g", {P0: OffsetAndMetadata(5)})
    change = OffsetsTable.change
    begun: list[Any] = []

    def join_first(self, *arguments, **options):
        if not begun:
            begun.append(joined(cluster))
            OffsetsTable(Cluster(cluster.root)).fence("g", 1)
        return change(self, *arguments, **options)

    monkeypatch.setattr(OffsetsTable, "change", join_first)
    with pytest.raises(GroupNotEmptyError):
        admin.alter_group_offsets("g", {P0: OffsetAndMetadata(0)})
    assert offsets(admin, "g") == {P0: 5}


def test_offsets_of_topics_that_no_member_subscribes_to_are_deleted(cluster, admin, table):
    Admin(cluster.root).create_topics([NewTopic("other")])
    other = TopicPartition("other", 0)
    joined(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5), other: OffsetAndMetadata(6)}, generation=1)

    with pytest.raises(GroupSubscribedToTopicError):
        admin.delete_group_offsets("g", [other, P0])
    assert offsets(admin, "g") == {P0: 5, other: 6}
    assert admin.delete_group_offsets("g", [other]) == {other}
    assert admin.delete_group_offsets("g", [other]) == set()
    assert offsets(admin, "g") == {P0: 5}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("nope", [P0])


def test_a_topic_that_a_pattern_matches_is_subscribed_to(cluster, admin, table):
    joined(cluster, topics=(), pattern="t")
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    with pytest.raises(GroupSubscribedToTopicError):
        admin.delete_group_offsets("g", [P0])


def test_a_deleted_group_is_gone_and_its_zombies_stay_fenced(cluster, admin, table):
    member = joined(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    member.leave()
    table.commit("h", {P0: OffsetAndMetadata(1)})
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_groups(["g", "nope"])
    assert offsets(admin, "g") == {P0: 5}

    admin.delete_groups(["g"])

    assert [each.group_id for each in admin.list_groups()] == ["h"]
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_groups(["g"])
    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(6)}, generation=1)
    assert GroupCoordinator(cluster, "g").join(["t"]).generation == 3


def test_members_are_removed_by_name(cluster, admin):
    member = joined(cluster)
    with pytest.raises(UnknownMemberIdError, match="'nope' is not in group 'g'"):
        admin.remove_group_members("g", ["nope"])
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    admin.remove_group_members("g", [member.member_id])
    assert admin.describe_groups(["g"])["g"].members == ()


def test_topics_are_administered_by_the_same_object(admin):
    with admin:
        assert admin.list_topics() == ["t"]


class TestResetOffsets:
    @pytest.fixture
    def log(self, cluster, admin):
        log = cluster.partition_log(cluster.topic("t"), 0)
        log.append(numbered(0, 10))
        admin.delete_records({P0: 2})
        return log

    @pytest.mark.parametrize(
        ("spec", "offset"),
        [
            (OffsetSpec.EARLIEST, 2),
            (OffsetSpec.LATEST, 10),
            (OffsetSpec.MAX_TIMESTAMP, 9),
            (OffsetTimestamp(START_US // 1000 + 4), 4),
            (OffsetTimestamp(START_US // 1000 + 1000), 10),
            (7, 7),
            (0, 2),
            (-1, 2),
            (11, 10),
        ],
    )
    def test_specs_times_and_offsets_become_offsets_of_the_log(self, log, admin, spec, offset):
        assert admin.reset_group_offsets("g", {P0: spec}) == {P0: OffsetAndMetadata(offset)}
        assert offsets(admin, "g") == {P0: offset}

    def test_other_partitions_keep_their_offsets(self, log, admin, table):
        table.commit("g", {P0: OffsetAndMetadata(3), P1: OffsetAndMetadata(0)})
        admin.reset_group_offsets("g", {P0: OffsetSpec.LATEST})
        assert offsets(admin, "g") == {P0: 10, P1: 0}

    def test_a_group_with_members_is_not_reset(self, log, admin, table, cluster):
        table.commit("g", {P0: OffsetAndMetadata(3)})
        joined(cluster)
        with pytest.raises(GroupNotEmptyError):
            admin.reset_group_offsets("g", {P0: OffsetSpec.LATEST})
        assert offsets(admin, "g") == {P0: 3}

    @pytest.mark.parametrize(
        ("specs", "error"),
        [
            ({TopicPartition("t", 99): 0}, UnknownTopicOrPartitionError),
            ({TopicPartition("u", 0): OffsetSpec.LATEST}, UnknownTopicOrPartitionError),
            ({P0: OffsetTimestamp(-1)}, InvalidTimestampError),
            ({P0: "latest"}, InvalidConfigurationError),
            ({P0: True}, InvalidConfigurationError),
            ({"t": 0}, InvalidConfigurationError),
        ],
        ids=str,
    )
    def test_one_wrong_spec_changes_nothing(self, log, admin, specs, error):
        with pytest.raises(error):
            admin.reset_group_offsets("g", {P1: 0, **specs})
        assert offsets(admin, "g") == {}
