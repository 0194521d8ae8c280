"""Samples of topics with stripes: a request for each stripe, and none for a partition."""

from itertools import pairwise

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.admin import OffsetsSampler
from spark_log.cluster import Cluster
from spark_log.errors import CorruptRecordError
from spark_log.log.segment import BatchAppend
from spark_log.log.stripe import StripeEntry, StripeReader
from spark_log.util.clock import ManualClock
from spark_log.util.suppressed import SuppressedErrors
from tests.record.samples import numbered
from tests.store_calls import counted_calls

PARTITIONS, STRIPES = 40, 2
DELAY_MS = 60_000


@pytest.fixture
def cluster(tmp_path):
    root = str(tmp_path / "root")
    settings = {"flush.on.append": False, "stripes": STRIPES}
    Admin(root).create_topics([NewTopic("t", PARTITIONS, topic_configs=settings)])
    return Cluster(root, clock=ManualClock())


@pytest.fixture
def writer(cluster):
    return Cluster(cluster.root, clock=cluster.clock)


@pytest.fixture(params=[True, False], ids=["with details", "without details"])
def sampler(request, cluster):
    return OffsetsSampler(cluster, with_details=request.param)


def append(writer, count, partitions=range(PARTITIONS)):
    """Append records to partitions, by one put for each stripe."""
    for stripe in writer.stripes(writer.topic("t")):
        number = stripe.directory.stripe
        entries = [
            StripeEntry(each, BatchAppend(numbered(0, count)))
            for each in partitions
            if each % STRIPES == number
        ]
        for result in stripe.appends.append(entries):
            assert not isinstance(result, Exception), result


def of_topic(calls):
    """Return the number of calls in the topic's directories: at stripes, and in partitions."""
    found = [
        sum(count for (_, path), count in calls.items() if path.startswith("t.") and where(path))
        for where in (lambda path: "__stripes" in path, lambda path: "/t-" in path)
    ]
    calls.clear()
    return tuple(found)


def ends(sample):
    return {key.partition: each.log_end_offset for key, each in sample.partitions.items()}


def test_a_sample_costs_requests_for_stripes_and_none_for_a_partition(cluster, writer, sampler):
    append(writer, 3)
    with counted_calls() as calls:
        sample = sampler.sample()
        assert ends(sample) == dict.fromkeys(range(PARTITIONS), 3)
        assert of_topic(calls)[1] == 0, "nothing is at home"
        details = STRIPES * bool(sample.stripes)  # a listing of each
        for _ in range(3):
            sampler.sample()
            assert of_topic(calls) == (STRIPES + details, 0)
        append(writer, 2)
        of_topic(calls)
        sample = sampler.sample()
        assert ends(sample) == dict.fromkeys(range(PARTITIONS), 5)
        assert {each.appended for each in sample.partitions.values()} == {2}
        assert of_topic(calls) == (2 * STRIPES + details, 0), "an object, and the end, of each"
        for _ in range(5):
            cluster.clock.advance_ms(10_000)
            sampler.sample()
        assert of_topic(calls)[1] == 0


def test_sizes_and_appended_bytes_are_those_of_a_first_sample(cluster, writer, sampler):
    append(writer, 3)
    before = sampler.sample()
    samples = [before]
    for count in (1, 2, 7):
        append(writer, count, range(0, PARTITIONS, 3))
        samples.append(sampler.sample())
    fresh = OffsetsSampler(Cluster(cluster.root)).sample()
    assert samples[-1].partitions.keys() == fresh.partitions.keys()
    for key, last in samples[-1].partitions.items():
        assert (last.log_start_offset, last.log_end_offset, last.size_bytes) == (
            fresh.partitions[key].log_start_offset,
            fresh.partitions[key].log_end_offset,
            fresh.partitions[key].size_bytes,
        )
        for one, next_one in pairwise(samples):
            grown = next_one.partitions[key].size_bytes - one.partitions[key].size_bytes
            assert round(next_one.partitions[key].appended_bytes) == grown


def test_partitions_are_listed_again_when_their_records_have_gone_home(cluster, writer, sampler):
    append(writer, 3)
    sampler.sample()
    tp = TopicPartition("t", 4)
    Admin(cluster.root).delete_records({tp: 2})  # takes its stripe home
    append(writer, 1)
    cluster.clock.advance_ms(DELAY_MS // 2)
    with counted_calls() as calls:
        sample = sampler.sample()
        assert of_topic(calls)[1] >= PARTITIONS // STRIPES
    found = {key.partition: each for key, each in sample.partitions.items()}
    assert (found[4].log_start_offset, found[4].log_end_offset, found[4].appended) == (2, 4, 1)
    assert (found[6].log_start_offset, found[6].log_end_offset, found[6].appended) == (0, 4, 1)
    with counted_calls() as calls:
        sampler.sample()
        assert of_topic(calls)[1] == 0


def test_a_stripe_that_cannot_be_read_leaves_its_partitions_out(cluster, writer, tmp_path):
    append(writer, 1)
    OffsetsSampler(cluster).sample()
    append(writer, 1)
    (newest,) = tmp_path.glob(f"root/t.*/__stripes/1/{1:020d}.stripe")
    newest.write_bytes(b"damaged")
    failures = SuppressedErrors()
    sampler = OffsetsSampler(Cluster(cluster.root), failures=failures)
    assert ends(sampler.sample()) == dict.fromkeys(range(0, PARTITIONS, 2), 2)
    assert failures.counts() == {"stripe sample": 1}
    with pytest.raises(CorruptRecordError):
        OffsetsSampler(Cluster(cluster.root)).sample()


def test_a_topic_that_is_deleted_while_a_stripe_is_read_is_left_out(cluster, sampler, monkeypatch):
    admin = Admin(cluster.root)
    admin.create_topics([NewTopic("u", 1, topic_configs={"flush.on.append": False})])

    def lose_files(reader):
        admin.delete_topics(["t"])
        raise CorruptRecordError(f"{reader.directory.path} has gaps")

    monkeypatch.setattr(StripeReader, "poll", lose_files)
    assert [topic.name for topic in sampler.sample().topics] == ["u"]


def test_a_lag_is_that_of_the_polled_end(cluster, writer, sampler):
    append(writer, 3)
    tp = TopicPartition("t", 7)
    Admin(cluster.root).alter_group_offsets("g", {tp: OffsetAndMetadata(1)})
    lags = []
    for _ in range(2):
        (lag,) = sampler.sample().groups["g"].values()
        lags.append(lag.lag)
        append(writer, 1, [7])
    assert lags == [2, 3]


def test_ages_of_unread_records_cost_no_request_for_objects_that_are_open(cluster, writer):
    append(writer, 3)
    offsets = {TopicPartition("t", each): OffsetAndMetadata(1) for each in range(PARTITIONS)}
    Admin(cluster.root).alter_group_offsets("g", offsets)
    sampler = OffsetsSampler(cluster, with_details=True)
    with counted_calls() as calls:
        found = sampler.sample()
        stripes, partitions = of_topic(calls)
    assert all(lag.lag == 2 and lag.lag_ms is not None for lag in found.groups["g"].values())
    assert stripes <= 6 * STRIPES
    assert partitions == 0, "nothing is at home"
