"""In-sync replicas of a partition: who leaves, who leads then, and how one comes back."""

import pytest

from spark_log.metadata.partitions import begin_joining, complete_joining, shrink_isr
from tests.metadata.partitions.support import TOPIC_ID, after, image_of, state_of


def leave(image, *brokers, epoch=7):
    return shrink_isr(image, TOPIC_ID, 0, brokers, leader_epoch=epoch)


def begin(image, broker_id, *, epoch=7, directory=0):
    return begin_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch, directory=directory)


def complete(image, broker_id, *, epoch=7):
    return complete_joining(image, TOPIC_ID, 0, broker_id, leader_epoch=epoch)


class TestLeave:
    @pytest.mark.parametrize(
        ("gone", "isr"),
        [((3,), (1, 2)), ((2,), (1, 3)), ((1,), (2, 3)), ((1, 3), (2,)), ((2, 3), (1,))],
    )
    def test_the_first_that_is_left_leads_in_the_next_epoch(self, gone, isr):
        image = image_of()
        state = after(image, leave(image, *gone))
        assert (state.isr, state.leader) == (isr, isr[0])
        assert (state.leader_epoch, state.partition_epoch) == (8, 1)
        assert state.replicas == (1, 2, 3)

    def test_the_order_is_that_of_the_isr_and_not_that_of_the_replicas(self):
        image = image_of(isr=(3, 1, 2))
        state = after(image, leave(image, 3))
        assert (state.isr, state.leader) == ((1, 2), 1)

    def test_a_fenced_broker_does_not_lead_and_leaves_with_those_before_it(self):
        image = image_of(fenced=(2,))
        state = after(image, leave(image, 1))
        assert (state.isr, state.leader) == ((3,), 3)

    def test_a_fenced_broker_behind_the_leader_stays(self):
        image = image_of(fenced=(3,))
        assert after(image, leave(image, 1)).isr == (2, 3)

    def test_if_all_leave_all_stay_and_none_leads(self):
        image = image_of(isr=(2, 1))
        state = after(image, leave(image, 1, 2, 3))
        assert (state.isr, state.leader, state.leader_epoch) == ((2, 1), -1, 8)

    def test_if_the_others_are_fenced_all_stay_and_none_leads(self):
        image = image_of(fenced=(2, 3))
        state = after(image, leave(image, 1))
        assert (state.isr, state.leader) == ((1, 2, 3), -1)

    def test_without_a_leader_there_is_nothing_to_leave_again(self):
        image = image_of(isr=(1,), leader=-1)
        assert leave(image, 1) == []

    def test_one_that_joins_leaves_too(self):
        image = image_of(isr=(1,), joining=(3, 2))
        state = after(image, leave(image, 3))
        assert (state.isr, state.leader, state.joining, state.leader_epoch) == ((1,), 1, (2,), 8)

    def test_others_join_on_when_the_leader_leaves(self):
        image = image_of(isr=(1, 2), joining=(3,))
        state = after(image, leave(image, 1))
        assert (state.isr, state.joining) == ((2,), (3,))

    def test_one_that_joins_is_not_elected(self):
        image = image_of(isr=(1,), joining=(3,))
        state = after(image, leave(image, 1))
        assert (state.isr, state.leader) == ((1,), -1)

    @pytest.mark.parametrize("gone", [(), (3,), (4,), (99,)])
    def test_nothing_changes_by_who_is_not_in_sync(self, gone):
        assert leave(image_of(isr=(1, 2)), *gone) == []

    @pytest.mark.parametrize("epoch", [6, 8])
    def test_what_was_noticed_in_another_epoch_changes_nothing(self, epoch):
        assert leave(image_of(), 1, epoch=epoch) == []

    def test_a_partition_that_does_not_exist_is_not_changed(self):
        image = image_of()
        assert shrink_isr(image, TOPIC_ID, 1, (1,), leader_epoch=7) == []
        assert shrink_isr(image, "id-other", 0, (1,), leader_epoch=7) == []


class TestEligibleLeaderReplicas:
    """Below min.insync.replicas nothing is acknowledged, so who leaves then lacks nothing."""

    def test_who_leaves_is_eligible_below_the_minimum_only(self):
        image = image_of(min_insync=2)
        assert after(image, leave(image, 3)).eligible_leader_replicas == ()
        assert after(image, leave(image, 2, epoch=8)).eligible_leader_replicas == (2,)

    def test_who_left_with_enough_others_in_sync_is_not(self):
        image = image_of(replicas=(1, 2, 3, 4), min_insync=3)
        after(image, leave(image, 4))
        state = after(image, leave(image, 2, 3, epoch=8))
        assert (state.isr, state.eligible_leader_replicas) == ((1,), (2, 3))

    def test_a_fenced_broker_before_the_leader_is_eligible(self):
        image = image_of(min_insync=3, fenced=(2,))
        state = after(image, leave(image, 1))
        assert (state.isr, state.eligible_leader_replicas) == ((3,), (1, 2))

    def test_who_leaves_later_is_eligible_too(self):
        image = image_of(min_insync=3)
        after(image, leave(image, 3))
        state = after(image, leave(image, 1, epoch=8))
        assert (state.isr, state.eligible_leader_replicas) == ((2,), (1, 3))

    def test_the_minimum_is_at_most_the_number_of_replicas(self):
        image = image_of(replicas=(1, 2), min_insync=3)
        assert after(image, leave(image, 1)).eligible_leader_replicas == (1,)
        assert leave(image_of(replicas=(1,), min_insync=3), 1)[0].eligible_leader_replicas is None

    def test_when_enough_are_in_sync_again_nobody_is_eligible(self):
        image = image_of(isr=(1,), joining=(2, 3), eligible_leader_replicas=(2, 3), min_insync=3)
        state = after(image, complete(image, 2))
        assert (state.isr, state.eligible_leader_replicas) == ((1, 2), (3,))
        state = after(image, complete(image, 3, epoch=8))
        assert (state.isr, state.eligible_leader_replicas) == ((1, 2, 3), ())

    def test_another_one_that_comes_back_makes_enough_too(self):
        image = image_of(isr=(1,), joining=(3,), eligible_leader_replicas=(2,), min_insync=2)
        assert after(image, complete(image, 3)).eligible_leader_replicas == ()

    def test_a_writer_does_not_elect_who_is_eligible(self):
        image = image_of(isr=(1,), eligible_leader_replicas=(2,), min_insync=2)
        state = after(image, leave(image, 1))
        assert (state.isr, state.leader, state.eligible_leader_replicas) == ((1,), -1, (2,))

    def test_the_last_leader_is_known_while_there_is_none(self):
        image = image_of(isr=(2, 1))
        state = after(image, leave(image, 1, 2))
        assert (state.leader, state.last_known_elr) == (-1, (2,))
        state = after(image, leave(image, 2, epoch=8))
        assert (state.isr, state.leader, state.last_known_elr) == ((1,), 1, ())


class TestBeginJoining:
    def test_the_replica_is_the_last_one_that_joins(self):
        image = image_of(isr=(1,), joining=(3,))
        state = after(image, begin(image, 2))
        assert (state.isr, state.joining, state.leader_epoch) == ((1,), (3, 2), 8)
        assert state.directories == ()

    def test_the_directory_is_that_of_this_replica_alone(self):
        image = image_of(isr=(1,), directories=(0, 0, 5))
        state = after(image, begin(image, 2, directory=3))
        assert state.directories == (0, 3, 5)
        assert [state.directory_of(broker) for broker in (1, 2, 3)] == [0, 3, 5]

    def test_a_replica_comes_back_in_its_present_directory(self):
        image = image_of(isr=(1,), directories=(0, 2, 0))
        (record,) = begin(image, 2, directory=2)
        assert record.directories is None
        assert record.joining == (2,)

    @pytest.mark.parametrize("broker_id", [1, 3, 4, 99])
    def test_one_in_sync_or_joining_or_without_a_replica_does_not_join(self, broker_id):
        assert begin(image_of(isr=(1, 2), joining=(3,)), broker_id, directory=1) == []

    def test_a_fenced_broker_does_not_join(self):
        assert begin(image_of(isr=(1,), fenced=(2,)), 2) == []

    def test_nobody_joins_without_a_leader(self):
        assert begin(image_of(isr=(1,), leader=-1), 2) == []

    @pytest.mark.parametrize("epoch", [6, 8])
    def test_what_was_copied_in_another_epoch_does_not_join(self, epoch):
        assert begin(image_of(isr=(1,)), 2, epoch=epoch) == []


class TestCompleteJoining:
    def test_the_replica_becomes_the_last_one_in_sync(self):
        image = image_of(isr=(2,), joining=(1, 3))
        state = after(image, complete(image, 3))
        assert (state.isr, state.leader, state.joining) == ((2, 3), 2, (1,))
        assert state.leader_epoch == 8

    def test_one_that_does_not_join_does_not_enter(self):
        assert complete(image_of(isr=(1,), joining=(2,)), 3) == []

    def test_nobody_enters_without_a_leader(self):
        assert complete(image_of(isr=(1,), leader=-1, joining=(2,)), 2) == []

    @pytest.mark.parametrize("epoch", [6, 8])
    def test_a_barrier_of_another_epoch_is_not_enough(self, epoch):
        assert complete(image_of(isr=(1,), joining=(2,)), 2, epoch=epoch) == []

    def test_a_replica_leaves_and_comes_back_at_the_end(self):
        image = image_of()
        after(image, leave(image, 1))
        after(image, begin(image, 1, epoch=8, directory=1))
        state = after(image, complete(image, 1, epoch=9))
        assert (state.isr, state.leader, state.leader_epoch) == ((2, 3, 1), 2, 10)
        assert state == state_of(image)
        assert state.directories == (1, 0, 0)
