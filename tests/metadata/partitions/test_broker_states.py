"""What becomes of partitions when brokers are fenced and unfenced."""

import pytest

from spark_log.metadata.partitions import (
    on_broker_fenced,
    on_broker_unfenced,
    on_configs_altered,
)
from spark_log.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from tests.metadata.partitions.support import (
    TOPIC_ID,
    after,
    fence,
    image_of,
    state_of,
    topic_config,
)


def fence_one(image, broker_id):
    """Fence a broker as the controller does; return the state of the partition."""
    records = on_broker_fenced(image, broker_id)
    fence(image, broker_id)
    return after(image, records)


def unfence_one(image, broker_id):
    records = on_broker_unfenced(image, broker_id)
    fence(image, broker_id, fenced=False)
    return after(image, records)


class TestFenced:
    def test_the_next_in_sync_leads_each_partition_and_others_lose_a_replica(self):
        image = image_of()
        for number, replicas in enumerate([(2, 1), (2, 3), (3,), (1,)], start=1):
            image.replay(
                PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition_id=number,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                )
            )
        fence_one(image, 1)
        partitions = image.find_by_id(TOPIC_ID).partitions
        assert [partition.isr for partition in partitions.values()] == [
            *[(2, 3), (2,), (2, 3), (3,), (1,)]
        ]
        assert [partition.leader for partition in partitions.values()] == [2, 2, 2, 3, -1]
        assert [partition.partition_epoch for partition in partitions.values()] == [1, 1, 0, 0, 1]

    def test_partitions_of_all_topics_change(self):
        image = image_of()
        image.replay(TopicRecord(name="a", topic_id="id-a"))
        image.replay(
            PartitionRecord(topic_id="id-a", partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1)
        )
        after(image, on_broker_fenced(image, 1))
        assert [topic.partitions[0].leader for topic in image.topics()] == [2, 2]

    def test_one_that_joins_does_not_any_more(self):
        image = image_of(isr=(1, 2), joining=(3,))
        state = fence_one(image, 3)
        assert (state.isr, state.joining, state.leader_epoch) == ((1, 2), (), 8)

    def test_the_last_one_in_sync_stays_so_without_leading(self):
        image = image_of(isr=(1,))
        state = fence_one(image, 1)
        assert (state.isr, state.leader, state.last_known_elr) == ((1,), -1, (1,))

    def test_several_brokers_one_after_the_other(self):
        image = image_of()
        for broker_id in (1, 2, 3):
            fence_one(image, broker_id)
        assert (state_of(image).isr, state_of(image).leader) == ((3,), -1)

    def test_an_eligible_replica_leads_if_none_is_in_sync(self):
        image = image_of(isr=(1,), eligible_leader_replicas=(3,), min_insync=2)
        state = fence_one(image, 1)
        assert (state.isr, state.leader, state.eligible_leader_replicas) == ((3,), 3, (1,))

    @pytest.mark.parametrize(("unclean", "leader"), [(False, -1), (True, 2)])
    def test_any_replica_leads_only_if_the_topic_allows_to_lose_records(self, unclean, leader):
        image = image_of(isr=(1,), unclean=unclean)
        assert fence_one(image, 1).leader == leader


class TestUnfenced:
    def test_a_partition_without_a_leader_gets_it_and_others_do_not_change(self):
        image = image_of(isr=(2, 1), leader=-1, fenced=(1, 2))
        image.replay(
            PartitionRecord(topic_id=TOPIC_ID, partition_id=1, replicas=(1, 2), isr=(2,), leader=2)
        )
        state = unfence_one(image, 1)
        assert (state.isr, state.leader, state.leader_epoch) == ((1,), 1, 8)
        assert image.find_by_id(TOPIC_ID).partitions[1].partition_epoch == 0

    def test_the_first_in_sync_keeps_the_others(self):
        image = image_of(isr=(2, 1), leader=-1, fenced=(1, 2))
        assert unfence_one(image, 2).isr == (2, 1)

    def test_an_eligible_replica_leads(self):
        image = image_of(
            isr=(2,), leader=-1, fenced=(1, 2), eligible_leader_replicas=(1,), min_insync=2
        )
        state = unfence_one(image, 1)
        assert (state.isr, state.leader, state.eligible_leader_replicas) == ((1,), 1, (2,))

    @pytest.mark.parametrize(("unclean", "leader"), [(False, -1), (True, 3)])
    def test_one_that_lacks_records_leads_only_if_the_topic_allows_it(self, unclean, leader):
        image = image_of(isr=(1,), leader=-1, fenced=(1, 2, 3), unclean=unclean)
        assert unfence_one(image, 3).leader == leader

    def test_another_broker_that_is_fenced_still_does_not_lead(self):
        image = image_of(isr=(1,), leader=-1, fenced=(1,))
        assert on_broker_unfenced(image, 4) == []


class TestConfigs:
    def alter(self, image, *records):
        changes = on_configs_altered(image, records)
        for record in records:
            image.replay(record)
        return after(image, changes)

    @pytest.mark.parametrize(("value", "leader"), [("true", 2), ("false", -1)])
    def test_an_unclean_election_is_held_when_it_is_allowed(self, value, leader):
        image = image_of(isr=(1,), leader=-1, fenced=(1,))
        state = self.alter(image, topic_config("unclean.leader.election.enable", value))
        assert state.leader == leader

    def test_a_leader_stays_when_unclean_elections_are_allowed(self):
        record = topic_config("unclean.leader.election.enable", "true")
        assert on_configs_altered(image_of(isr=(2,)), [record]) == []

    def test_with_a_lower_minimum_that_is_reached_nobody_is_eligible(self):
        image = image_of(isr=(1,), eligible_leader_replicas=(2, 3), min_insync=3)
        state = self.alter(image, topic_config("min.insync.replicas", 2))
        assert state.eligible_leader_replicas == (2, 3)
        state = self.alter(image, topic_config("min.insync.replicas", 1))
        assert (state.eligible_leader_replicas, state.leader_epoch) == ((), 7)

    def test_the_minimum_of_the_cluster_counts_too(self):
        image = image_of(isr=(1,), eligible_leader_replicas=(2,))
        key = "min.insync.replicas"
        cluster = ConfigRecord(resource_type="broker", resource_name="", name=key, value="2")
        image.replay(cluster)
        image.replay(
            ConfigRecord(resource_type="topic", resource_name="flights", name=key, value=None)
        )
        assert on_configs_altered(image, [cluster]) == []
        state = self.alter(image, cluster.model_copy(update={"value": "1"}))
        assert state.eligible_leader_replicas == ()

    def test_a_higher_minimum_makes_nobody_eligible(self):
        image = image_of(isr=(1,))
        assert on_configs_altered(image, [topic_config("min.insync.replicas", 3)]) == []

    def test_others_change_nothing(self):
        image = image_of(isr=(1, 2), eligible_leader_replicas=(3,))
        assert on_configs_altered(image, [topic_config("retention.ms", 5)]) == []
