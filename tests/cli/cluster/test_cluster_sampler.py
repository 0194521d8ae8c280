"""Samples of a cluster: end offsets, sizes, lag, and rates between two samples."""

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cli.cluster.cluster_sampler import ClusterSampler
from spark_log.cluster import Cluster
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.util.clock import ManualClock
from tests.cli.support import append, segment_files
from tests.store_calls import counted_calls

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cluster(root, clock):
    return Cluster(root, clock=clock)


@pytest.fixture
def sampler(cluster):
    return ClusterSampler(cluster, None, [])


def commit(root, group, offset, *partitions):
    Admin(root).alter_group_offsets(group, {tp: OffsetAndMetadata(offset) for tp in partitions})


class TestTopics:
    def test_are_as_they_are_without_rates_at_first(self, root, sampler):
        append(root, "flights", b"a", b"b")
        append(root, "flights", b"c", partition=1)
        Admin(root).delete_records({P0: 1})
        sample = sampler.sample()
        assert sample.interval_ms is None
        flights, weather = sample.topics
        assert (flights.topic, flights.log_end_offsets, flights.records) == ("flights", (2, 1), 2)
        files = [*segment_files(root, "flights", 0), *segment_files(root, "flights", 1)]
        assert flights.size_bytes == sum(path.stat().st_size for path in files) > 0
        assert (flights.records_per_second, flights.bytes_per_second) == (None, None)
        assert (weather.log_end_offsets, weather.records, weather.size_bytes) == ((0,), 0, 0)

    def test_have_the_rates_of_what_was_appended_since(self, root, sampler, clock):
        append(root, "flights", b"a", b"b")
        sampler.sample()
        append(root, "flights", b"c", b"d", b"e")
        append(root, "flights", b"f", partition=1)
        clock.advance_ms(2000)
        sample = sampler.sample()
        assert sample.interval_ms == 2000
        flights, weather = sample.topics
        assert flights.records_per_second == 2
        new = [segment_files(root, "flights", 0)[1], *segment_files(root, "flights", 1)]
        assert flights.bytes_per_second == sum(path.stat().st_size for path in new) / 2
        assert (weather.records_per_second, weather.bytes_per_second) == (0, 0)
        clock.advance_ms(1000)
        assert sampler.sample().topics[0].records_per_second == 0

    def test_have_the_share_of_a_segment_that_was_merged_since(self, root, sampler, clock, shell):
        shell("configs", "alter", "flights", "--add-config", "retention.ms=-1")
        append(root, "flights", b"a")
        sampler.sample()
        for _ in range(15):
            append(root, "flights", b"b")
        shell("clean", "flights")
        (merged,) = (path for path in segment_files(root, "flights") if "-" in path.name)
        clock.advance_ms(1000)
        flights = sampler.sample().topics[0]
        assert flights.records_per_second == 15
        assert flights.bytes_per_second == pytest.approx(merged.stat().st_size * 15 / 16)

    def test_that_were_created_since_count_whole(self, root, sampler, clock):
        sampler.sample()
        Admin(root).create_topics([NewTopic("new")])
        append(root, "new", b"a", b"b")
        clock.advance_ms(1000)
        assert {each.topic: each.records_per_second for each in sampler.sample().topics} == {
            "flights": 0,
            "new": 2,
            "weather": 0,
        }

    def test_that_were_deleted_are_left_out(self, root, sampler):
        sampler.sample()
        Admin(root).delete_topics(["flights"])
        assert [each.topic for each in sampler.sample().topics] == ["weather"]

    def test_that_were_created_again_begin_at_zero(self, root, sampler, clock):
        append(root, "weather", b"a", b"b", b"c")
        sampler.sample()
        Admin(root).delete_topics(["weather"])
        Admin(root).create_topics([NewTopic("weather")])
        append(root, "weather", b"d")
        clock.advance_ms(1000)
        weather = sampler.sample().topics[1]
        assert (weather.log_end_offsets, weather.records_per_second) == ((1,), 1)

    def test_can_be_some(self, root, cluster):
        sampler = ClusterSampler(cluster, ["weather"], [])
        assert [each.topic for each in sampler.sample().topics] == ["weather"]
        Admin(root).delete_topics(["weather"])
        assert sampler.sample().topics == ()

    def test_have_to_exist_at_first(self, cluster):
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean weather"):
            ClusterSampler(cluster, ["wether"], []).sample()


class TestGroups:
    def test_have_the_lag_and_rate_of_their_commits_by_topic(self, root, sampler, clock):
        append(root, "flights", b"a", b"b", b"c")
        append(root, "flights", b"d", partition=1)
        append(root, "weather", b"e")
        commit(root, "g", 1, P0, P1)
        commit(root, "g", 0, TopicPartition("weather", 0))
        commit(root, "other", 3, P0)
        found = [
            (each.group_id, each.topic, each.partitions, each.lag, each.records_per_second)
            for each in sampler.sample().groups
        ]
        assert found == [
            ("g", "flights", 2, 2, None),
            ("g", "weather", 1, 1, None),
            ("other", "flights", 1, 0, None),
        ]
        commit(root, "g", 3, P0)
        commit(root, "other", 1, P0)
        clock.advance_ms(2000)
        later = [(each.lag, each.records_per_second) for each in sampler.sample().groups]
        assert later == [(0, 1), (1, 0), (2, -1)]

    def test_without_offsets_in_a_shown_topic_are_left_out(self, root, cluster):
        commit(root, "g", 0, P0)
        commit(root, "gone", 0, P0)
        Admin(root).delete_groups(["gone"])
        shown = ClusterSampler(cluster, None, []).sample().groups
        assert [each.group_id for each in shown] == ["g"]
        assert ClusterSampler(cluster, ["weather"], []).sample().groups == ()

    def test_can_be_some(self, root, cluster):
        for group in ("a", "b", "c"):
            commit(root, group, 0, P0)
        sampler = ClusterSampler(cluster, None, ["b"])
        assert [each.group_id for each in sampler.sample().groups] == ["b"]


IDLE = {
    ("open_buffer", "__cluster_metadata-0"): 1,
    ("open_buffer", "flights-0"): 1,
    ("open_buffer", "flights-1"): 1,
    ("open_buffer", "weather-0"): 1,
}
"""Calls of a sample when nothing has changed, without those for the offsets table."""


class TestRequests:
    def calls(self, sampler):
        """Return the calls of a sample by name and directory, and how many are to the Delta log."""
        with counted_calls() as calls:
            sampler.sample()
        in_delta_log = sum(count for (_, path), count in calls.items() if "_delta_log" in path)
        found = {
            (name, path.rpartition("/")[2]): count
            for (name, path), count in calls.items()
            if "_delta_log" not in path and not path.startswith("__witnesses")
        }
        return found, in_delta_log

    @pytest.fixture(autouse=True)
    def records(self, root):
        for number in range(3):
            append(root, "flights", b"a", b"b")
            append(root, "flights", b"c", partition=1)
            for group in ("g", "h", "i"):
                commit(root, group, number, P0)

    def test_are_one_for_each_partition_and_two_more_when_nothing_has_changed(self, sampler):
        sampler.sample()
        found, delta = self.calls(sampler)
        assert found == IDLE
        assert delta <= 3, "the next version; on a disk also two checks that cost nothing"

    def test_are_a_listing_and_a_read_more_where_records_are_new(self, sampler, root):
        sampler.sample()
        for _ in range(5):
            append(root, "flights", b"new")
        found, _ = self.calls(sampler)
        assert found == IDLE | {("open_buffer", "flights-0"): 2, ("list", "flights-0"): 1}
        assert self.calls(sampler)[0] == IDLE

    def test_are_a_listing_for_each_partition_when_the_last_is_old(self, sampler, clock, cluster):
        sampler.sample()
        delay_ms = cluster.topic("flights").config().file_delete_delay_ms
        clock.advance_ms(delay_ms / 2)
        found, _ = self.calls(sampler)
        assert {where for name, where in found if name == "list"} >= {
            "flights-0",
            "flights-1",
            "weather-0",
        }

    def test_read_each_file_of_the_offsets_table_once(self, sampler):
        found, _ = self.calls(sampler)
        assert found["open_buffer", "__consumer_offsets"] == 9

    def test_read_the_files_of_new_commits_alone(self, sampler, root):
        sampler.sample()
        commit(root, "g", 1, P1)
        found, _ = self.calls(sampler)
        assert found == IDLE | {("open_buffer", "__consumer_offsets"): 1}
