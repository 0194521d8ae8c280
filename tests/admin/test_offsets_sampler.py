"""Offsets of partitions and groups, read as one cut."""

import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from spark_log.admin import OffsetsSampler
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import CorruptRecordError
from spark_log.util.clock import ManualClock
from spark_log.util.suppressed import SuppressedErrors
from tests.record.samples import record_batch, row
from tests.store_calls import counted_calls

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FAST = {"flush.on.append": False}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cluster(tmp_path, clock):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", 2, topic_configs=FAST)])
    return Cluster(root, clock=clock)


def append(cluster, *ages_s, partition=0):
    """Append a record of each age, by the cluster's clock, each as one segment."""
    log = cluster.partition_log(cluster.topic("t"), partition)
    for age_s in ages_s:
        log.append(record_batch([row(b"v", timestamp=cluster.clock.time_us() - age_s * 1_000_000)]))


def commit(cluster, group, offset, *partitions):
    offsets = {tp: OffsetAndMetadata(offset) for tp in partitions}
    Admin(cluster.root).alter_group_offsets(group, offsets)


def positions(sample, group="g"):
    return {
        key.partition: (found.offset, found.lag, found.lag_ms)
        for key, found in sample.groups[group].items()
    }


def ends(sample):
    return [sample.partitions[key].log_end_offset for key in sorted(sample.partitions)]


def test_lag_is_told_in_records_and_in_the_age_of_the_first_unread_one(cluster):
    append(cluster, 9, 5, 2)
    commit(cluster, "g", 1, P0)
    commit(cluster, "h", 3, P0)
    sampler = OffsetsSampler(cluster, with_details=True)
    sample = sampler.sample()
    assert (ends(sample), positions(sample)) == ([3, 0], {0: (1, 2, 5000)})
    assert positions(sample, "h") == {0: (3, 0, 0)}
    cluster.clock.advance_ms(1000)
    assert positions(sampler.sample()) == {0: (1, 2, 6000)}, "the record is a second older"
    assert positions(OffsetsSampler(cluster).sample()) == {0: (1, 2, None)}, "times are not wanted"


def test_a_lag_counts_what_can_be_read_and_what_was_deleted_is_told_apart(cluster):
    append(cluster, 9, 5, 2)
    append(cluster, 9, 5, partition=1)
    commit(cluster, "g", 0, P0, P1)
    commit(cluster, "beyond", 7, P0)
    Admin(cluster.root).delete_records({P0: 2, P1: 2})
    failures = SuppressedErrors()
    sample = OffsetsSampler(cluster, with_details=True, failures=failures).sample()
    assert positions(sample) == {0: (0, 1, 2000), 1: (0, 0, 0)}, "the age of what is left"
    assert [each.deleted for each in sample.groups["g"].values()] == [2, 2]
    assert positions(sample, "beyond") == {0: (7, 0, 0)}
    assert [each.deleted for each in sample.groups["beyond"].values()] == [0]
    assert failures.counts() == cluster.suppressed.counts() == {}


def test_a_later_sample_tells_what_was_deleted_and_the_age_of_what_is_left(cluster):
    append(cluster, 9, 5, 2)
    commit(cluster, "g", 0, P0)
    sampler = OffsetsSampler(cluster, with_details=True)
    assert positions(sampler.sample()) == {0: (0, 3, 9000)}
    Admin(cluster.root).delete_records({P0: 2})
    append(cluster, 1)  # so that the partition is listed again
    sample = sampler.sample()
    assert positions(sample) == {0: (0, 2, 2000)}
    assert [each.deleted for each in sample.groups["g"].values()] == [2]


def test_no_committed_offset_is_behind_the_end_that_was_read_with_it(cluster, monkeypatch):
    sampler = OffsetsSampler(cluster)
    read = OffsetsTable.all_committed_offsets

    def committing_meanwhile(table):
        append(cluster, 0)
        commit(cluster, "g", 1, P0)
        return read(table)

    monkeypatch.setattr(OffsetsTable, "all_committed_offsets", committing_meanwhile)
    sample = sampler.sample()
    assert (ends(sample), positions(sample)) == ([1, 0], {0: (1, 0, 0)})


@pytest.mark.partition_logs_only("counts and damages files of a partition")
def test_a_position_is_looked_up_once(cluster):
    append(cluster, 9, 5, 2)
    commit(cluster, "g", 1, P0)
    commit(cluster, "h", 1, P0)
    sampler = OffsetsSampler(cluster, with_details=True)
    sampler.sample()

    def calls():
        with counted_calls() as found:
            sampler.sample()
        return sum(found[name, path] for name, path in found if "t-0" in path)

    assert calls() == 1, "the name of the next segment"
    commit(cluster, "g", 2, P0)
    assert calls() > 1
    assert calls() == 1


def test_lookups_of_times_are_limited_to_the_largest_lags(cluster, monkeypatch):
    monkeypatch.setattr("spark_log.admin.offsets_sampler.MAX_TIME_LOOKUPS", 1)
    append(cluster, 9, 5, 2)
    append(cluster, 7, partition=1)
    commit(cluster, "g", 0, P0, P1)
    sampler = OffsetsSampler(cluster, with_details=True)
    assert positions(sampler.sample()) == {0: (0, 3, 9000), 1: (0, 1, None)}
    assert positions(sampler.sample()) == {0: (0, 3, 9000), 1: (0, 1, 7000)}, "in a later sample"


@pytest.mark.partition_logs_only("counts and damages files of a partition")
def test_a_partition_that_cannot_be_read_is_left_out_and_counted(cluster, tmp_path):
    append(cluster, 1)
    append(cluster, 1, partition=1)
    commit(cluster, "g", 0, P0, P1)
    (segment,) = tmp_path.glob("root/t.*/t-0/*.log")
    segment.write_bytes(b"damaged")
    failures = SuppressedErrors()
    sample = OffsetsSampler(cluster, failures=failures).sample()
    assert [key.partition for key in sample.partitions] == [1]
    assert positions(sample) == {1: (0, 1, None)}
    assert failures.counts() == {"partition sample": 1}
    with pytest.raises(CorruptRecordError):
        OffsetsSampler(cluster).sample()


def test_a_partition_with_another_setting_is_read_by_it(cluster):
    append(cluster, 1)
    sampler = OffsetsSampler(cluster, with_details=True)
    sampler.sample()
    setting = {"file.delete.delay.ms": "1000"}
    Admin(cluster.root).alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", setting)])
    with counted_calls() as calls:
        assert ends(sampler.sample()) == [1, 0]
        assert sum(n for (name, path), n in calls.items() if name == "list" and "t-" in path) == 2
        cluster.clock.advance_ms(600)  # half of the new delay
        calls.clear()
        sampler.sample()
        assert sum(n for (name, path), n in calls.items() if name == "list" and "t-" in path) == 2
