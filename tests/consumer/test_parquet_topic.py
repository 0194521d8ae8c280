"""A topic whose cold part is Parquet, read by clients: the same records as from Arrow files."""

import pytest

from spark_log import Consumer, ConsumerRecord, TopicPartition
from spark_log.cluster import Cluster, ClusterVerifier
from spark_log.log.verify import LogSeverity
from tests.parquet_twins import PARTITIONS, make_twins, segment_kinds
from tests.record.samples import START_US

pytestmark = pytest.mark.partition_logs_only("cleans a log by hand")

LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    return make_twins(tmp_path_factory.mktemp("twins"))


def consumer_of(root, level="read_committed"):
    consumer = Consumer(
        root=root,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=level,
    )
    consumer.assign(PARTITIONS)
    return consumer


def polled(root, level):
    """All records, by partition."""
    found: dict[TopicPartition, list[ConsumerRecord]] = {each: [] for each in PARTITIONS}
    with consumer_of(root, level) as consumer:
        ends = consumer.end_offsets(PARTITIONS)
        while any(consumer.position(each) < end for each, end in ends.items()):
            for partition, records in consumer.poll(1_000).items():
                found[partition] += records
    return found


def tables(root, level, columns=None):
    rows = []
    with consumer_of(root, level) as consumer:
        ends = consumer.end_offsets(PARTITIONS)
        while any(consumer.position(each) < end for each, end in ends.items()):
            table = consumer.poll_table(timeout_ms=100)
            rows += (table if columns is None else table.select(columns)).to_pylist()
    return sorted(rows, key=lambda each: (each["partition"], each["offset"]))


def test_the_cold_part_of_one_is_parquet(twins):
    arrow, parquet = twins
    assert not any(segment_kinds(arrow))
    assert segment_kinds(parquet)[0]
    assert not segment_kinds(parquet)[-1]


def test_poll_returns_the_same_committed_records(twins):
    arrow, parquet = (polled(root, "read_committed") for root in twins)
    assert arrow == parquet
    assert sum(map(len, arrow.values())) > 80


def test_poll_table_returns_the_same_committed_records(twins):
    arrow, parquet = (tables(root, "read_committed") for root in twins)
    assert arrow == parquet


def test_of_uncommitted_records_only_those_of_aborted_transactions_are_missing(twins):
    arrow, parquet = (tables(root, "read_uncommitted") for root in twins)
    committed = {(each["partition"], each["offset"]) for each in tables(twins[0], LEVELS[0])}
    missing = [each for each in arrow if each not in parquet]
    assert missing
    assert [each for each in arrow if each not in missing] == parquet
    assert not any((each["partition"], each["offset"]) in committed for each in missing)


def test_offsets_for_times_lead_to_the_same_committed_records(twins):
    wanted = range(START_US // 1000 - 1, START_US // 1000 + 4_300, 97)
    found = []
    for root in twins:
        with consumer_of(root) as consumer:
            firsts = []
            for time_ms in wanted:
                offsets = consumer.offsets_for_times(dict.fromkeys(PARTITIONS, time_ms))
                consumer.seek_to_end()
                for partition, told in offsets.items():
                    if told is not None:
                        consumer.seek(partition, told.offset)
                ends = consumer.end_offsets(PARTITIONS)
                first: dict[TopicPartition, ConsumerRecord] = {}
                while any(
                    each not in first and consumer.position(each) < end
                    for each, end in ends.items()
                ):
                    for partition, records in consumer.poll(100).items():
                        late = [each for each in records if each.timestamp >= time_ms]
                        if late:
                            first.setdefault(partition, late[0])
                firsts.append(first)
            found.append(firsts)
    assert found[0] == found[1]


def test_a_seek_into_the_parquet_part_begins_there(twins):
    _, parquet = twins
    whole = polled(parquet, "read_committed")[PARTITIONS[0]]
    with consumer_of(parquet) as consumer:
        for record in whole[:: len(whole) // 9]:
            consumer.seek(PARTITIONS[0], record.offset)
            records: list[ConsumerRecord] = []
            while not records:
                records = consumer.poll(1_000, max_records=1).get(PARTITIONS[0], [])
            assert records == [record]


def test_both_are_sound(twins):
    for root in twins:
        findings = ClusterVerifier(Cluster(root)).findings()
        assert [each for each in findings if each.severity is LogSeverity.ERROR] == []
