"""Verifying partitions with several replicas: each one, and whether they are the same."""

import shutil

from spark_log.cluster import Cluster, ClusterCleaner, ClusterVerifier
from spark_log.log import SegmentWriter
from spark_log.log.clean import PartitionCleaner
from spark_log.log.files import SegmentName
from spark_log.log.verify import LogFindingKind, LogSeverity
from spark_log.record import leader_change_records
from spark_log.storage import STRAY_REPLICAS
from tests.metadata.replicas import (
    append,
    come_back,
    leave,
    log_of,
    replica_of,
    replicated_cluster,
)
from tests.record.samples import numbered, record_batch, row


def keyed(*pairs):
    return record_batch([row(value, key) for key, value in pairs])


def problems(cluster, **options):
    """Verify; return the findings that are problems."""
    verifier = ClusterVerifier(Cluster(cluster.root), **options)
    return [each for each in verifier.findings() if each.is_problem]


def differences(cluster):
    found = ClusterVerifier(Cluster(cluster.root)).findings()
    return [each for each in found if each.kind is LogFindingKind.DIFFERENT_REPLICA]


def file_of(cluster, broker_id, base_offset):
    """Return the path of a segment of a replica."""
    files = replica_of(cluster, broker_id).files
    return f"{files.url}/{base_offset:020d}.log"


def put_instead(cluster, broker_id, base_offset, records, *, leader_epoch=0):
    """Put other records in the place of a segment of a replica."""
    log = replica_of(cluster, broker_id)
    writer = log.stager.segment_writer(leader_epoch=leader_epoch)
    writer.write(records)
    segment = writer.finish()
    path = log.files.file_path(f"{base_offset:020d}.log")
    log.files.store.delete(path)
    log.files.store.put_if_absent(path, segment.staged)
    writer.discard()


def rewrite(files, reader, name):
    """Put the batches of a segment under the name of another rewritten segment."""
    writer = SegmentWriter(
        files.store,
        files.path,
        topic_id=files.topic_id,
        partition=files.partition,
        with_offsets=True,
        name=name,
    )
    for ordinal in range(reader.batch_count):
        headers, records = reader.read_batch(ordinal)
        writer.write_rewritten(records, headers)
    files.store.put_if_absent(files.file_path(name.file_name), writer.finish().staged)
    writer.discard()


class TestSound:
    def test_replicas_that_lag_are(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        log = log_of(cluster)
        append(log, numbered(0, 3))
        append(log, numbered(3, 3), acks=1)
        assert problems(cluster) == []
        leave(cluster, 2)
        append(log_of(cluster), numbered(0, 3))
        assert problems(cluster) == []

    def test_replicas_that_were_merged_apart_are(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        for first in range(0, 24, 3):
            append(log_of(cluster), numbered(first, 3))
        leave(cluster, 2)
        list(ClusterCleaner(cluster).clean())
        come_back(cluster, 2)
        append(log_of(cluster), numbered(24, 3))
        assert problems(cluster) == []

    def test_a_replica_that_alone_was_compacted_is(self, tmp_path):
        cluster = replicated_cluster(tmp_path, cleanup_policy="compact")
        for value in range(4):
            append(log_of(cluster), keyed((b"a", b"%d" % value), (b"b%d" % value, b"x")))
        moved = shutil.move(tmp_path / "r2", tmp_path / "away")
        list(ClusterCleaner(cluster := Cluster(cluster.root)).clean())
        shutil.move(moved, tmp_path / "r2")
        cluster = Cluster(cluster.root)
        come_back(cluster, 2)
        assert replica_of(cluster, 0).observe().live.segments[0].name.is_compacted
        assert not replica_of(cluster, 2).observe().live.segments[0].name.is_compacted
        assert problems(cluster) == []

    def test_all_replicas_are_counted(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        verifier = ClusterVerifier(cluster, ["t"])
        assert list(verifier.findings()) == []
        assert (verifier.partitions, verifier.segments, verifier.records) == (1, 3, 9)
        assert verifier.total_bytes() == verifier.size_bytes

    def test_a_directory_that_clean_deletes_is(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        leave(cluster, 2)
        directory = cluster.topic("t").partition_directory(0)
        cluster.broker_store(2).put(f"{STRAY_REPLICAS}/{directory}", b"")
        come_back(cluster, 2, number=1)
        (note,) = ClusterVerifier(cluster).findings()
        assert (note.kind, note.severity) == (LogFindingKind.ORPHANED_DIRECTORY, LogSeverity.NOTE)
        assert (note.broker_id, note.path) == (2, directory)


class TestFound:
    def test_damage_of_a_replica_is_told_with_its_broker(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        with open(file_of(cluster, 1, 0), "r+b") as file:
            file.seek(-100, 2)
            file.write(b"\0" * 50)
        found = problems(cluster)
        assert {each.broker_id for each in found} == {1}
        assert LogFindingKind.DAMAGED_SEGMENT in {each.kind for each in found}

    def test_where_a_replica_in_sync_begins_to_differ(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        for first in (0, 3):
            append(log_of(cluster), numbered(first, 3))
        changed = numbered(3, 3).to_pylist()
        changed[1]["value"] = b"other"
        put_instead(cluster, 1, 3, record_batch(changed))
        (found,) = differences(cluster)
        assert (found.broker_id, found.severity) == (1, LogSeverity.ERROR)
        assert "from offset 4 on: the records differ" in found.message

    def test_a_record_that_a_replica_lacks_without_a_compaction(self, tmp_path):
        cluster = replicated_cluster(tmp_path, cleanup_policy="compact")
        for value in range(4):
            append(log_of(cluster), keyed((b"a", b"%d" % value)))
        PartitionCleaner(replica_of(cluster, 1)).clean()
        files = replica_of(cluster, 1).files
        (compacted, _) = files.observe().live.segments
        assert differences(cluster) == []
        name = SegmentName(compacted.name.base_offset, compacted.name.last_offset, 1)
        rewrite(files, files.open(compacted.name), name)
        files.store.delete(compacted.file.path)
        (found,) = differences(cluster)
        assert found.broker_id == 1
        assert "from offset 0 on: one of them lacks the record" in found.message

    def test_what_was_never_acknowledged_is_no_problem_of_a_replica_that_is_out(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        append(log_of(cluster), numbered(3, 3), acks=1)
        leave(cluster, 0)
        append(log_of(cluster), numbered(9, 3))
        assert problems(cluster) == []
        (found,) = differences(cluster)
        assert (found.broker_id, found.severity) == (0, LogSeverity.NOTE)
        assert "from offset 3 on" in found.message

    def test_a_leader_epoch_that_goes_down(self, tmp_path):
        cluster = replicated_cluster(tmp_path, brokers=1)
        append(log_of(cluster), numbered(0, 3))
        append(log_of(cluster), numbered(3, 3))
        put_instead(cluster, 0, 0, numbered(0, 3), leader_epoch=2)
        (found,) = problems(cluster)
        assert found.kind is LogFindingKind.WRONG_LEADER_EPOCH
        assert "offset 3 is of leader epoch 0, behind one of epoch 2" in found.message

    def test_a_barrier_that_says_something_else_than_its_header(self, tmp_path, monkeypatch):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        with monkeypatch.context() as patched:
            patched.setattr(
                "spark_log.record.leader_change_records",
                lambda epoch, *more: leader_change_records(7, *more),
            )
            leave(cluster, 2)
        found = problems(cluster)
        assert {each.broker_id for each in found} == {0, 1}
        assert all(
            "leader epoch 1, and its record is for leader epoch 7" in each.message for each in found
        )

    def test_a_broker_that_is_away_and_the_others_are_verified(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        shutil.move(tmp_path / "r1", tmp_path / "away")
        verifier = ClusterVerifier(Cluster(cluster.root), ["t"])
        (found,) = verifier.findings()
        assert (found.kind, found.broker_id) == (LogFindingKind.UNREADABLE, 1)
        assert verifier.segments == 2
