"""Decisions in any order: the state stays consistent, and who leads has what was acknowledged."""

from random import Random

import pytest

from spark_log.errors import InvalidReplicaAssignmentError, ReplicationError
from spark_log.log.chain import NO_LEADER
from spark_log.metadata.partitions import (
    advance_reassignment,
    begin_joining,
    cancel_reassignment,
    complete_joining,
    elect_leader,
    elect_online_leader,
    on_broker_fenced,
    on_broker_unfenced,
    on_configs_altered,
    reassign_partition,
    rebalance_leader,
    shrink_isr,
)
from spark_log.metadata.partitions.reassignment import is_reassigning
from spark_log.types import ElectionType
from tests.metadata.partitions.support import (
    TOPIC_ID,
    after,
    fence,
    image_of,
    state_of,
    topic_config,
)

BROKERS = (1, 2, 3, 4, 5)


class Partition:
    """A partition whose producers append with ``acks=all`` whenever they may.

    Attributes:
        image: the metadata.
        acknowledged: how many records were acknowledged.
        held: broker → how many of them its replica holds.
    """

    def __init__(self, min_insync):
        self.image = image_of(min_insync=min_insync)
        self.acknowledged = 0
        self.held = dict.fromkeys(BROKERS, 0)

    @property
    def state(self):
        return state_of(self.image)

    def append(self):
        """Append a record; it is acknowledged if enough replicas are in sync."""
        if self.state.leader == NO_LEADER:
            return
        needed = self.image.find_by_id(TOPIC_ID).min_insync_replicas(0)
        if len(self.state.isr) >= needed:
            self.acknowledged += 1
            for broker_id in (*self.state.isr, *self.state.joining):
                self.held[broker_id] = self.acknowledged

    def replay(self, records):
        after(self.image, records)

    def begin(self, broker_id):
        epoch = self.state.leader_epoch
        self.replay(
            begin_joining(self.image, TOPIC_ID, 0, broker_id, leader_epoch=epoch, directory=0)
        )

    def complete(self, broker_id):
        state = self.state
        if broker_id in state.joining and state.leader != NO_LEADER:
            self.held[broker_id] = self.held[state.leader]
        self.replay(
            complete_joining(self.image, TOPIC_ID, 0, broker_id, leader_epoch=state.leader_epoch)
        )

    def leave(self, broker_id):
        epoch = self.state.leader_epoch
        self.replay(shrink_isr(self.image, TOPIC_ID, 0, [broker_id], leader_epoch=epoch))

    def fence(self, broker_id):
        records = on_broker_fenced(self.image, broker_id)
        fence(self.image, broker_id)
        self.replay(records)

    def unfence(self, broker_id):
        records = on_broker_unfenced(self.image, broker_id)
        fence(self.image, broker_id, fenced=False)
        self.replay(records)

    def elect(self, broker_id):
        epoch = self.state.leader_epoch
        self.replay(elect_online_leader(self.image, TOPIC_ID, 0, [broker_id], leader_epoch=epoch))

    def elect_preferred(self):
        self.replay(elect_leader(self.image, TOPIC_ID, 0, ElectionType.PREFERRED))

    def rebalance(self):
        self.replay(rebalance_leader(self.image, TOPIC_ID, 0))

    def reassign(self, *target):
        self.replay(reassign_partition(self.image, TOPIC_ID, 0, target))

    def advance(self):
        self.replay(advance_reassignment(self.image, TOPIC_ID, 0))

    def cancel(self):
        self.replay(cancel_reassignment(self.image, TOPIC_ID, 0))

    def set_min_insync(self, value):
        record = topic_config("min.insync.replicas", value)
        changes = on_configs_altered(self.image, [record])
        self.replay([record, *changes])

    def check(self):
        state = self.state
        assert state.isr
        assert state.leader in (state.isr[0], NO_LEADER)
        if state.leader != NO_LEADER:
            assert self.held[state.leader] == self.acknowledged
            assert not self.image.broker(state.leader).fenced
        for some in (
            *(state.isr, state.joining, state.eligible_leader_replicas),
            *(state.adding_replicas, state.removing_replicas),
        ):
            assert len({*some}) == len(some)
            assert {*some} <= {*state.replicas}
        assert not {*state.isr} & {*state.joining, *state.eligible_leader_replicas}


def random_step(random):
    """Return the name of a method of `Partition`, and its arguments."""
    one_broker = random.choice(BROKERS)
    return random.choice(
        [
            ("begin", one_broker),
            ("complete", one_broker),
            ("leave", one_broker),
            ("fence", one_broker),
            ("unfence", one_broker),
            ("elect", one_broker),
            ("elect_preferred",),
            ("rebalance",),
            ("reassign", *random.sample(BROKERS, random.randint(1, 3))),
            ("advance",),
            ("cancel",),
            ("set_min_insync", random.randint(1, 3)),
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_leader_has_what_was_acknowledged_and_a_reassignment_can_be_completed(seed):
    random = Random(seed)
    partition = Partition(random.randint(1, 3))
    for _ in range(100):
        name, *arguments = random_step(random)
        before = partition.state
        try:
            getattr(partition, name)(*arguments)
        except (InvalidReplicaAssignmentError, ReplicationError):
            assert partition.state == before
        partition.check()
        in_order = [broker for broker in before.isr if broker in partition.state.isr]
        assert [broker for broker in partition.state.isr if broker in in_order] == in_order
        partition.append()
    for broker_id in BROKERS:
        partition.unfence(broker_id)
        partition.elect(broker_id)
    for broker_id in partition.state.replicas:
        partition.begin(broker_id)
        partition.complete(broker_id)
    partition.advance()
    partition.check()
    assert not is_reassigning(partition.state)
    assert {*partition.state.isr} == {*partition.state.replicas}
