"""Elections: who may lead, what they leave behind, and what Kafka answers."""

import pytest

from spark_log.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from spark_log.metadata.partitions import (
    begin_joining,
    complete_joining,
    elect_leader,
    elect_online_leader,
    imbalanced_partitions,
    rebalance_leader,
)
from spark_log.metadata.records import ConfigRecord, PartitionRecord
from spark_log.types import ElectionType
from tests.metadata.partitions.support import TOPIC_ID, after, fence, image_of, state_of


def elect(image, election_type=ElectionType.PREFERRED):
    return elect_leader(image, TOPIC_ID, 0, election_type)


def elect_unclean(image):
    return elect(image, ElectionType.UNCLEAN)


def elect_online(image, *brokers, epoch=7):
    return elect_online_leader(image, TOPIC_ID, 0, brokers, leader_epoch=epoch)


class TestPreferred:
    @pytest.mark.parametrize(
        ("isr", "left"), [((2, 3, 1), (1,)), ((2, 1, 3), (1, 3)), ((3, 1), (1,))]
    )
    def test_the_first_replica_leads_and_those_before_it_leave(self, isr, left):
        image = image_of(isr=isr)
        state = after(image, elect(image))
        assert (state.isr, state.leader, state.leader_epoch) == (left, 1, 8)

    def test_is_refused_if_too_few_would_be_left(self):
        with pytest.raises(PreferredLeaderNotAvailableError) as caught:
            elect(image_of(isr=(2, 3, 1), min_insync=2))
        assert caught.value.message == (
            "partition flights-0: with broker 1 as the leader, [1] of [2, 3, 1] would stay in "
            "sync, and min.insync.replicas is 2; the controller moves the leadership step by step "
            "if auto.leader.rebalance.enable is true"
        )
        assert (caught.value.topic, caught.value.partition) == ("flights", 0)

    def test_is_done_if_just_enough_are_left(self):
        image = image_of(isr=(2, 1, 3), min_insync=2)
        assert after(image, elect(image)).isr == (1, 3)

    def test_is_not_needed_if_it_leads(self):
        with pytest.raises(ElectionNotNeededError, match="broker 1 leads it already"):
            elect(image_of(isr=(1,)))

    @pytest.mark.parametrize(
        ("fields", "why"),
        [({"isr": (2, 3)}, "is not in sync"), ({"isr": (2, 1), "fenced": (1,)}, "is fenced")],
    )
    def test_one_that_is_not_in_sync_or_fenced_is_not_available(self, fields, why):
        with pytest.raises(PreferredLeaderNotAvailableError, match=f"preferred leader, {why}"):
            elect(image_of(**fields))

    def test_another_replica_in_sync_leads_if_none_does(self):
        image = image_of(isr=(3, 2), leader=-1)
        state = after(image, elect(image))
        assert (state.isr, state.leader) == ((3, 2), 3)

    def test_is_never_unclean(self):
        image = image_of(isr=(3,), leader=-1, fenced=(3,), unclean=True)
        with pytest.raises(PreferredLeaderNotAvailableError, match=r"only \[3\] can lead without"):
            elect(image)

    def test_a_partition_that_does_not_exist_is_not_changed(self):
        assert elect_leader(image_of(), TOPIC_ID, 1, ElectionType.PREFERRED) == []


class TestUnclean:
    def test_the_first_replica_that_is_not_fenced_leads_alone(self):
        image = image_of(
            isr=(3,), leader=-1, fenced=(1, 3), joining=(2,), unclean=True, last_known_elr=(3,)
        )
        state = after(image, elect_unclean(image))
        assert (state.isr, state.leader, state.leader_epoch) == ((2,), 2, 8)
        assert (state.joining, state.last_known_elr) == ((), ())

    def test_nobody_who_lost_nothing_is_eligible_after_it(self):
        image = image_of(isr=(3,), leader=-1, fenced=(3,), unclean=True, min_insync=2)
        assert after(image, elect_unclean(image)).eligible_leader_replicas == ()

    def test_one_without_a_loss_is_preferred(self):
        image = image_of(
            isr=(2,), leader=-1, fenced=(2,), eligible_leader_replicas=(3,), min_insync=2
        )
        state = after(image, elect_unclean(image))
        assert (state.isr, state.eligible_leader_replicas) == ((3,), (2,))

    def test_is_refused_where_the_topic_does_not_allow_it(self):
        with pytest.raises(EligibleLeadersNotAvailableError) as caught:
            elect_unclean(image_of(isr=(3,), leader=-1, fenced=(3,)))
        assert caught.value.message == (
            "partition flights-0: only [3] can lead without a loss, and all are fenced; unfence "
            "one; to elect another replica and lose records, set unclean.leader.election.enable"
        )

    def test_is_allowed_by_the_setting_of_the_cluster(self):
        image = image_of(isr=(3,), leader=-1, fenced=(3,))
        for resource, name, value in (("topic", "flights", None), ("broker", "", "true")):
            image.replay(
                ConfigRecord(
                    resource_type=resource,
                    resource_name=name,
                    name="unclean.leader.election.enable",
                    value=value,
                )
            )
        assert after(image, elect_unclean(image)).leader == 1

    def test_no_replica_is_available_if_all_are_fenced(self):
        image = image_of(isr=(3,), leader=-1, fenced=(1, 2, 3), unclean=True)
        with pytest.raises(EligibleLeadersNotAvailableError, match=r"unfence one$"):
            elect_unclean(image)

    def test_is_not_needed_if_there_is_a_leader(self):
        with pytest.raises(ElectionNotNeededError, match="broker 2 leads it"):
            elect_unclean(image_of(isr=(2,), unclean=True))


class TestOnline:
    def test_the_first_in_sync_that_works_leads(self):
        image = image_of(isr=(1, 2, 3), leader=-1)
        state = after(image, elect_online(image, 2, 3))
        assert (state.isr, state.leader, state.leader_epoch) == ((2, 3), 2, 8)

    def test_an_eligible_one_leads_alone_and_the_others_are_eligible(self):
        image = image_of(
            isr=(1,), leader=-1, eligible_leader_replicas=(2, 3), min_insync=2, joining=(3,)
        )
        state = after(image, elect_online(image, 3))
        assert (state.isr, state.eligible_leader_replicas) == ((3,), (1, 2))
        assert state.joining == (), "it may have copied what the new leader does not have"

    def test_in_sync_ones_go_before_eligible_ones(self):
        image = image_of(isr=(3,), leader=-1, eligible_leader_replicas=(1,), min_insync=2)
        assert after(image, elect_online(image, 1, 3)).leader == 3

    @pytest.mark.parametrize(
        "fields",
        [
            {"isr": (1,), "leader": -1, "unclean": True},
            {"isr": (2,), "leader": -1, "fenced": (2,)},
            {"isr": (1, 2)},
        ],
    )
    def test_nobody_leads_who_lacks_records_or_is_fenced_and_a_leader_stays(self, fields):
        assert elect_online(image_of(**fields), 2) == []

    @pytest.mark.parametrize("epoch", [6, 8])
    def test_what_was_found_in_another_epoch_elects_nobody(self, epoch):
        assert elect_online(image_of(isr=(1,), leader=-1), 1, epoch=epoch) == []


class TestRebalance:
    def test_leaders_leave_and_come_back_until_the_preferred_one_leads(self):
        image = image_of(isr=(2, 3, 1), min_insync=2)
        isrs = []
        while records := rebalance_leader(image, TOPIC_ID, 0):
            state = after(image, records)
            isrs.append(state.isr)
            (left,) = {1, 2, 3} - {*state.isr}
            join_again(image, left)
        assert isrs == [(3, 1), (1, 2)]
        assert state_of(image).isr == (1, 2, 3)

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"isr": (2, 1)},
            {"isr": (2, 3, 1), "min_insync": 3},
            {"isr": (2, 3, 1), "fenced": (1,)},
            {"isr": (2, 3, 1), "fenced": (3,)},
            {"isr": (2, 3, 1), "leader": -1},
            {"isr": (2, 3, 1), "adding_replicas": (1,)},
            {"isr": (2, 3, 1), "removing_replicas": (2,)},
            {"isr": (2, 3), "joining": (1,)},
        ],
    )
    def test_nothing_moves_without_need_or_safety(self, fields):
        assert rebalance_leader(image_of(**fields), TOPIC_ID, 0) == []


def join_again(image, broker_id):
    epoch = state_of(image).leader_epoch
    begun = begin_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch, directory=0)
    after(image, begun)
    after(image, complete_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch + 1))


class TestImbalance:
    def partitions(self, *, led_by_others, percentage="10"):
        """Return the imbalanced ones of 20 partitions whose preferred leader is broker 1."""
        image = image_of()
        for number in range(20):
            isr = (2, 1) if number < led_by_others else (1, 2)
            image.replay(
                PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition_id=number,
                    replicas=(1, 2),
                    isr=isr,
                    leader=isr[0],
                )
            )
        image.replay(
            ConfigRecord(
                resource_type="broker",
                resource_name="",
                name="leader.imbalance.per.broker.percentage",
                value=percentage,
            )
        )
        return list(imbalanced_partitions(image))

    def test_partitions_of_a_broker_that_leads_too_few_of_them_are_told(self):
        assert self.partitions(led_by_others=2) == []
        assert self.partitions(led_by_others=3) == [(TOPIC_ID, number) for number in range(3)]

    def test_the_share_is_a_setting(self):
        assert self.partitions(led_by_others=3, percentage="15") == []
        assert len(self.partitions(led_by_others=1, percentage="0")) == 1

    def test_brokers_are_looked_at_one_by_one(self):
        image = image_of(isr=(2, 3))
        for number in range(1, 20):
            image.replay(
                PartitionRecord(
                    topic_id=TOPIC_ID, partition_id=number, replicas=(2,), isr=(2,), leader=2
                )
            )
        assert list(imbalanced_partitions(image)) == [(TOPIC_ID, 0)]

    def test_a_partition_without_a_leader_is_not_led_by_its_preferred_one(self):
        image = image_of(leader=-1)
        fence(image, 1, 2, 3)
        assert list(imbalanced_partitions(image)) == [(TOPIC_ID, 0)]
