"""Partitions that are not cleaned, whose snapshots fail, or that have files nobody needs."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from spark_log import Admin, ConfigResource, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.doctor import Limits, Severity
from spark_log.log.clean import PartitionCleaner
from spark_log.log.segment import writer as segment_writer
from spark_log.log.snapshot import snapshot as snapshot_file
from spark_log.record import SmallBatch
from spark_log.storage.local import LocalStore
from tests.doctor.support import append, codes
from tests.record.samples import record_batch, row
from tests.store_calls import counted_calls

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def configure(patient, topic="t", **configs):
    values = {key.replace("_", "."): value for key, value in configs.items()}
    Admin(patient.root).alter_configs([ConfigResource("topic", topic, values)])


def clean(cluster, topic="t", partition=0):
    image = cluster.topic(topic)
    return PartitionCleaner(cluster.replica_log(image, partition, 0)).clean()


class TestRetention:
    def test_by_age_is_overdue_a_day_after_a_cleaner_could_have_deleted(self, patient, cluster):
        configure(patient, retention_ms=HOUR_MS)
        append(cluster, b"1", b"2")
        patient.clock.advance_ms(DAY_MS + HOUR_MS - 60_000)
        assert patient.findings("cleaning") == []
        patient.clock.advance_ms(120_000)
        (found,) = patient.findings("cleaning")
        assert (found.problem.code, found.severity) == ("retention-overdue", Severity.WARNING)
        assert found.subject.text == "partition t-0"
        assert "records are kept 1 d longer than retention.ms (3600000)" in found.message
        assert found.command == "spark-log clean t"
        clean(cluster)
        assert patient.findings("cleaning") == []

    def test_old_records_that_were_just_appended_are_no_sign(self, patient, cluster):
        append(cluster, b"1", age_ms=400 * DAY_MS)
        assert patient.findings("cleaning") == []
        patient.clock.advance_ms(2 * DAY_MS)
        assert patient.codes("cleaning") == ["retention-overdue"]

    def test_by_size_is_overdue(self, patient, cluster):
        append(cluster, *[bytes(50_000)] * 8)
        configure(patient, retention_bytes=100_000, retention_ms=-1)
        assert patient.findings("cleaning") == []
        patient.clock.advance_ms(DAY_MS + 1000)
        (found,) = patient.findings("cleaning")
        assert "has exceeded retention.bytes (100.0 kB) for 1 d" in found.message
        clean(cluster)
        assert patient.findings("cleaning") == []

    def test_timestamps_in_the_future_keep_records(self, patient, cluster):
        configure(patient, message_timestamp_after_max_ms=1000 * DAY_MS)
        append(cluster, b"1", age_ms=-30 * DAY_MS)
        (found,) = patient.findings("cleaning")
        assert found.problem.code == "timestamps-in-future"
        assert "30 d in the future" in found.message

    def test_without_limits_nothing_is_overdue(self, patient, cluster):
        configure(patient, retention_ms=-1)
        append(cluster, b"1", age_ms=4000 * DAY_MS)
        patient.clock.advance_ms(100 * DAY_MS)
        assert patient.findings("cleaning") == []


def test_compaction_is_overdue_until_it_was_done(patient, cluster):
    configure(patient, cleanup_policy="compact", merge_tail_segments=0)
    log = cluster.partition_log(cluster.topic("t"), 0)
    for _ in range(4):
        log.append(record_batch([row(b"v", key=b"k", timestamp=patient.clock.time_us())]))
    assert patient.findings("cleaning") == []
    patient.clock.advance_ms(DAY_MS + 1000)
    (found,) = patient.findings("cleaning")
    assert found.problem.code == "compaction-overdue"
    assert found.message.startswith("100% of it (")
    clean(Cluster(patient.root, clock=patient.clock))
    assert patient.findings("cleaning") == []


def test_merges_are_overdue(patient, cluster):
    configure(patient, merge_tail_segments=0)
    append(cluster, *[b"v"] * 30)
    limits = Limits(small_segments=20)
    assert patient.findings("cleaning") == []
    (found,) = patient.findings("cleaning", limits=limits)
    assert found.problem.code == "merges-overdue"
    assert found.message == "30 of its 30 segments are small and wait to be merged"
    clean(cluster)
    assert patient.findings("cleaning", limits=limits) == []


class TestSnapshots:
    def test_that_cannot_be_written(self, patient, cluster, monkeypatch):
        configure(patient, snapshot_interval_segments=10, merge_tail_segments=0)
        monkeypatch.setattr("spark_log.log.snapshot.Snapshots.write_if_due", lambda self: 1)
        append(cluster, *[b"v"] * 84)
        assert patient.findings("snapshots") == []
        append(cluster, b"v")
        (found,) = patient.findings("snapshots")
        assert (found.problem.code, found.message) == (
            "snapshot-behind",
            "it has 85 segments since its last snapshot",
        )

    def test_that_are_damaged(self, patient, cluster):
        log = append(cluster, b"v")
        log.replica.snapshots.write()
        assert patient.findings("snapshots") == []
        (path,) = Path(patient.root).glob("t.*/t-0/*.snapshot")
        path.write_bytes(path.read_bytes()[:-20])
        (found,) = patient.findings("snapshots")
        assert found.problem.code == "snapshot-damaged"
        assert found.command == "spark-log verify t --partition 0 --repair"

    def test_and_segments_of_an_older_version(self, patient, cluster):
        no_check = mock.patch.object(segment_writer, "encode_check", return_value=b"")
        key = mock.patch.object(segment_writer, "CHECK_KEY", b"spark_log.another")
        by_arrow = mock.patch.object(SmallBatch, "of", return_value=None)
        with no_check, key, by_arrow:
            log = append(cluster, b"v")
        with mock.patch.object(snapshot_file.Snapshot, "_custom_metadata", return_value={}):
            log.replica.snapshots.write()
        found = patient.findings("formats")
        assert codes(found) == ["old-snapshot", "old-segment"]
        assert found[0].message.endswith("it has no transactions and no append ids")
        assert {each.severity for each in found} == {Severity.INFO}


class TestFiles:
    def test_of_merged_segments_wait_for_a_cleaner(self, patient, cluster):
        append(cluster, *[b"v"] * 9)
        clean(cluster)
        patient.clock.advance_ms(DAY_MS)
        assert patient.findings("files") == []
        patient.clock.advance_ms(10 * 60_000)
        (found,) = patient.findings("files")
        assert found.problem.code == "files-left"
        assert "9 segments that were merged, compacted or deleted" in found.message
        clean(cluster)
        assert patient.findings("files") == []

    def test_of_a_writer_that_crashed(self, patient, cluster, monkeypatch):
        directory = cluster.topic("t").partition_directory(1)
        append(cluster, b"v", partition=1)
        cluster.store.put(f"{directory}/.1234.tmp", b"half")
        listed, now_us = LocalStore.list_hidden, patient.clock.time_us()
        monkeypatch.setattr(
            LocalStore,
            "list_hidden",
            lambda *given: (replace(each, modified_us=now_us) for each in listed(*given)),
        )
        patient.clock.advance_ms(DAY_MS + 30 * 60_000)
        assert patient.findings("files") == []
        patient.clock.advance_ms(HOUR_MS)
        (found,) = patient.findings("files")
        assert found.subject.text == "partition t-1"
        assert "1 temporary files of writers that do not run any more" in found.message

    def test_that_do_not_belong_there(self, patient, cluster):
        directory = cluster.topic("t").partition_directory(0)
        for name in ("a.txt", "b", "c", "d"):
            cluster.store.put(f"{directory}/{name}", b"")
        (found,) = patient.findings("files")
        assert (found.problem.code, found.severity) == ("unknown-files", Severity.INFO)
        assert "a.txt, b, c and 1 more" in found.message


def test_a_damaged_log_is_one_finding_and_the_others_are_looked_at(patient, cluster):
    append(cluster, b"1", b"2", b"3")
    append(cluster, b"1", partition=1, age_ms=400 * DAY_MS)
    patient.clock.advance_ms(2 * DAY_MS)
    configure(patient, retention_ms=7 * DAY_MS)
    last = max(Path(patient.root).glob("t.*/t-0/*.log"))
    last.write_bytes(last.read_bytes()[:-20])
    found = {each.problem.code: each for each in patient.findings()}
    assert found.keys() == {"partition-unreadable", "retention-overdue"}
    damaged = found["partition-unreadable"]
    assert "it is not a readable Arrow file" in damaged.message
    assert damaged.command == "spark-log verify t --partition 0"
    assert found["retention-overdue"].subject.partition == 1


def requests_for(patient, cluster, segments):
    """Requests for the directory of partition 0, when it has so many segments."""
    append(cluster, *[b"v"] * segments)
    directory = cluster.topic("t").partition_directory(0)
    Admin(patient.root).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    with counted_calls() as calls:
        assert [each for each in patient.findings() if each.severity is Severity.ERROR] == []
    return sum(count for (_, path), count in calls.items() if path == directory)


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_requests_for_a_partition_do_not_grow_with_it(patient, cluster, snapshot):
    """Two listings, of which one is by `counted_calls` not seen as hidden files; the last segment,
    the oldest one, the newest snapshot."""
    configure(patient, merge_tail_segments=0)
    if snapshot:
        append(cluster, b"v").replica.snapshots.write()
    first = requests_for(patient, cluster, 2)
    assert first <= 6
    assert requests_for(patient, cluster, 60) == first


def test_topics_that_are_deleted_meanwhile_are_left_out(patient, cluster):
    Admin(patient.root).create_topics([NewTopic("u")])
    append(cluster, b"v", topic="u")
    deleted: list[str] = []

    def delete(title, done, total):
        if title == "Partitions" and not deleted:
            Admin(patient.root).delete_topics(["u"])
            deleted.append("u")

    assert list(patient.doctor().findings(delete)) == []
    assert deleted
