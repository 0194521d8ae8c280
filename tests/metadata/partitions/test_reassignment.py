"""Reassignments: how replicas are added and removed, what survives, and how it is cancelled."""

import pytest

from spark_log.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from spark_log.metadata.partitions import (
    advance_reassignment,
    begin_joining,
    cancel_reassignment,
    complete_joining,
    list_reassignments,
    reassign_partition,
    shrink_isr,
)
from spark_log.metadata.partitions.reassignment import is_reassigning
from spark_log.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord
from spark_log.types import PartitionReassignment, TopicPartition
from tests.metadata.partitions.support import TOPIC_ID, after, fence, image_of, state_of


def reassign(image, *target):
    return after(image, reassign_partition(image, TOPIC_ID, 0, target))


def advance(image):
    return after(image, advance_reassignment(image, TOPIC_ID, 0))


def cancel(image):
    return after(image, cancel_reassignment(image, TOPIC_ID, 0))


def join(image, *brokers):
    """Let brokers join and become in-sync replicas; return the state of the partition."""
    for broker_id in brokers:
        epoch = state_of(image).leader_epoch
        after(image, begin_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch, directory=0))
        after(image, complete_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch + 1))
    return state_of(image)


def leave(image, *brokers):
    epoch = state_of(image).leader_epoch
    return after(image, shrink_isr(image, TOPIC_ID, 0, brokers, leader_epoch=epoch))


class TestBegin:
    @pytest.mark.parametrize(
        ("target", "replicas", "adding", "removing"),
        [
            ((3, 2, 1, 5, 4), (3, 2, 1, 5, 4), (5, 4), ()),
            ((4, 5, 1), (4, 5, 1, 2, 3), (4, 5), (2, 3)),
            ((4,), (4, 1, 2, 3), (4,), (1, 2, 3)),
        ],
    )
    def test_new_replicas_are_added_before_others_are_removed(
        self, target, replicas, adding, removing
    ):
        state = reassign(image_of(), *target)
        assert state.replicas == replicas
        assert (state.adding_replicas, state.removing_replicas) == (adding, removing)
        assert (state.isr, state.leader, state.leader_epoch) == ((1, 2, 3), 1, 7)

    def test_another_order_is_complete_at_once(self):
        state = reassign(image_of(isr=(1, 2)), 3, 1, 2)
        assert (state.replicas, state.isr, state.leader) == ((3, 1, 2), (1, 2), 1)
        assert not is_reassigning(state)
        assert state.leader_epoch == 7

    def test_fewer_replicas_that_are_in_sync_are_complete_at_once(self):
        state = reassign(image_of(isr=(2, 1, 3)), 1, 3)
        assert (state.replicas, state.isr, state.leader) == ((1, 3), (1, 3), 1)
        assert not is_reassigning(state)
        assert state.leader_epoch == 8

    def test_fewer_replicas_wait_until_they_are_in_sync(self):
        state = reassign(image_of(isr=(1, 2)), 3)
        assert (state.replicas, state.removing_replicas) == ((3, 1, 2), (1, 2))

    def test_the_present_replicas_are_no_change(self):
        assert reassign_partition(image_of(), TOPIC_ID, 0, [1, 2, 3]) == []

    def test_directories_stay_with_their_replicas(self):
        image = image_of(directories=(0, 4, 2))
        state = reassign(image, 5, 3, 1)
        assert state.replicas == (5, 3, 1, 2)
        assert state.directories == (0, 2, 0, 4)
        assert advance(image) == state
        after(image, shrink_isr(image, TOPIC_ID, 0, [2], leader_epoch=7))
        assert join(image, 5).directories == (0, 2, 0, 4)
        assert advance(image).directories == (0, 2, 0)

    @pytest.mark.parametrize(
        ("target", "why"),
        [
            ((), "no replica is assigned"),
            ((1, 1), "broker 1 is assigned twice"),
            ((1, 9), "broker 9 is not registered"),
            ((4,), "all fenced"),
            ((1, 5), "broker 5 is not registered"),
        ],
    )
    def test_brokers_that_cannot_hold_it_are_refused(self, target, why):
        image = image_of(fenced=(4,))
        image.replay(
            BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=5, in_controlled_shutdown=1)
        )
        with pytest.raises(InvalidReplicaAssignmentError, match=why) as caught:
            reassign(image, *target)
        assert caught.value.partition == 0

    def test_a_broker_that_is_being_unregistered_keeps_its_replica(self):
        image = image_of()
        image.replay(
            BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, in_controlled_shutdown=1)
        )
        assert reassign(image, 3, 1).replicas == (3, 1)

    def test_a_partition_that_does_not_exist_is_not_changed(self):
        assert reassign_partition(image_of(), TOPIC_ID, 1, [1]) == []
        assert advance_reassignment(image_of(), TOPIC_ID, 1) == []
        assert cancel_reassignment(image_of(), TOPIC_ID, 1) == []


class TestAdvance:
    def test_waits_until_all_of_the_target_is_in_sync(self):
        image = image_of()
        reassign(image, 4, 5, 1)
        assert advance_reassignment(image, TOPIC_ID, 0) == []
        join(image, 4)
        assert advance_reassignment(image, TOPIC_ID, 0) == []
        join(image, 5)
        state = advance(image)
        assert (state.replicas, state.isr, state.leader) == ((4, 5, 1), (1, 4, 5), 1)
        assert (state.adding_replicas, state.removing_replicas) == ((), ())

    def test_the_first_of_the_target_in_sync_leads_if_the_leader_is_removed(self):
        image = image_of()
        reassign(image, 4, 5)
        epoch = join(image, 5, 4).leader_epoch
        state = advance(image)
        assert (state.replicas, state.isr, state.leader) == ((4, 5), (5, 4), 5)
        assert state.leader_epoch == epoch + 1

    def test_waits_if_all_of_the_target_are_fenced(self):
        image = image_of()
        reassign(image, 4, 5)
        state = join(image, 4, 5)
        fence(image, 4, 5)
        assert advance_reassignment(image, TOPIC_ID, 0) == []
        assert state.leader == 1

    def test_one_that_is_removed_does_not_join_any_more(self):
        image = image_of(isr=(1,), joining=(3, 2), removing_replicas=(3,))
        assert advance_reassignment(image, TOPIC_ID, 0) == []
        after(image, complete_joining(image, TOPIC_ID, 0, 2, leader_epoch=7))
        state = advance(image)
        assert (state.replicas, state.joining) == ((1, 2), ())

    def test_nothing_to_complete_without_a_reassignment(self):
        assert advance_reassignment(image_of(), TOPIC_ID, 0) == []

    def test_more_replicas_then_fewer_are_where_it_began(self):
        image = image_of(replicas=(1,), min_insync=2)
        assert image.find_by_id(TOPIC_ID).min_insync_replicas(0) == 1
        reassign(image, 1, 2, 3)
        assert image.find_by_id(TOPIC_ID).min_insync_replicas(0) == 1, "writers need not wait"
        join(image, 2, 3)
        assert advance(image).replicas == (1, 2, 3)
        assert image.find_by_id(TOPIC_ID).min_insync_replicas(0) == 2
        state = reassign(image, 1)
        assert (state.replicas, state.isr, state.leader) == ((1,), (1,), 1)

    def test_one_eligible_that_is_removed_is_not_eligible_any_more(self):
        image = image_of(isr=(1,), eligible_leader_replicas=(2, 3), min_insync=3)
        state = reassign(image, 1)
        assert (state.replicas, state.eligible_leader_replicas) == ((1,), ())


class TestAnotherTarget:
    def test_replicas_that_were_being_added_are_removed_and_the_leader_stays_a_replica(self):
        image = image_of(replicas=(1, 2), brokers=6)
        reassign(image, 3, 4)
        join(image, 3)
        assert leave(image, 1, 2).leader == 3
        state = reassign(image, 5, 6)
        assert state.replicas == (5, 6, 3, 4, 1, 2)
        assert (state.adding_replicas, state.removing_replicas) == ((5, 6, 3, 4), (3, 4, 1, 2))
        assert state.leader == 3
        join(image, 5, 6)
        state = advance(image)
        assert (state.replicas, state.isr, state.leader) == ((5, 6), (5, 6), 5)

    def test_cancelling_restores_the_replicas_from_before_the_first_one(self):
        image = image_of(replicas=(2, 1))
        reassign(image, 3, 4)
        reassign(image, 4, 5)
        assert cancel(image).replicas == (2, 1)

    def test_the_original_replicas_as_target_keep_the_others_until_they_are_in_sync(self):
        image = image_of(isr=(1, 2))
        reassign(image, 4, 5)
        join(image, 4)
        state = reassign(image, 1, 2, 3)
        assert (state.replicas, state.removing_replicas) == ((1, 2, 3, 4, 5), (4, 5))
        assert state.isr == (1, 2, 4)
        join(image, 3)
        assert advance(image).replicas == (1, 2, 3)


class TestCancel:
    def test_restores_the_replicas_in_their_order(self):
        image = image_of(replicas=(3, 1, 2))
        reassign(image, 4, 5)
        state = cancel(image)
        assert (state.replicas, state.isr, state.leader) == ((3, 1, 2), (3, 1, 2), 3)
        assert not is_reassigning(state)
        assert state.leader_epoch == 7

    def test_added_replicas_leave_and_do_not_join(self):
        image = image_of()
        reassign(image, 4, 5)
        epoch = join(image, 4).leader_epoch
        after(image, begin_joining(image, TOPIC_ID, 0, 5, leader_epoch=epoch, directory=0))
        state = cancel(image)
        assert (state.isr, state.joining) == ((1, 2, 3), ())

    def test_an_original_replica_leads_if_an_added_one_did(self):
        image = image_of(isr=(4, 1), replicas=(4, 1, 2), adding_replicas=(4,))
        state = cancel(image)
        assert (state.replicas, state.isr, state.leader) == ((1, 2), (1,), 1)

    def test_is_refused_if_it_would_lose_records(self):
        image = image_of(isr=(4,), replicas=(4, 1, 2), adding_replicas=(4,), removing_replicas=(1,))
        with pytest.raises(InvalidReplicaAssignmentError) as caught:
            cancel(image)
        assert caught.value.message == (
            "partition flights-0: none of the original replicas [1, 2] can lead without a loss of "
            "records, in sync are [4]; wait for the reassignment, or set "
            "unclean.leader.election.enable and unfence one"
        )

    def test_an_eligible_original_replica_loses_nothing(self):
        image = image_of(
            isr=(4,),
            replicas=(4, 1, 2),
            adding_replicas=(4,),
            eligible_leader_replicas=(2,),
            min_insync=2,
        )
        state = cancel(image)
        assert (state.replicas, state.isr, state.leader) == ((1, 2), (2,), 2)

    def test_may_lose_records_where_the_topic_allows_it(self):
        fields = {"isr": (4,), "replicas": (4, 1, 2), "adding_replicas": (4,), "unclean": True}
        state = cancel(image_of(**fields, fenced=(1,)))
        assert (state.replicas, state.isr, state.leader) == ((1, 2), (2,), 2)
        with pytest.raises(InvalidReplicaAssignmentError, match="unfence one"):
            cancel(image_of(**fields, fenced=(1, 2)))

    def test_without_a_leader_the_original_replicas_wait_for_one(self):
        image = image_of(isr=(1, 4), leader=-1, replicas=(4, 1, 2), adding_replicas=(4,))
        fence(image, 1, 4)
        state = cancel(image)
        assert (state.replicas, state.isr, state.leader) == ((1, 2), (1,), -1)

    def test_needs_a_reassignment(self):
        with pytest.raises(NoReassignmentInProgressError, match="partition flights-0: no re"):
            cancel(image_of())


class TestList:
    def test_has_what_is_in_progress(self):
        image = image_of()
        for number in (2, 1, 10):
            image.replay(
                PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition_id=number,
                    replicas=(4, 1),
                    isr=(1,),
                    leader=1,
                    adding_replicas=(4,) if number > 1 else (),
                )
            )
        moving = PartitionReassignment((4, 1), (4,), ())
        two, ten = (TopicPartition("flights", number) for number in (2, 10))
        assert list(list_reassignments(image).items()) == [(two, moving), (ten, moving)]
        assert list_reassignments(image, [ten, TopicPartition("flights", 1)]) == {ten: moving}

    def test_is_empty_without_any(self):
        assert list_reassignments(image_of()) == {}
