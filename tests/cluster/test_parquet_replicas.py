"""Replicas of a topic whose cold part is Parquet: rewritten each by itself, copied byte by byte."""

import shutil
from dataclasses import replace

from spark_log.cluster import Cluster, ClusterCleaner, ClusterVerifier
from spark_log.log.clean import PartitionCleaner
from spark_log.log.files import SegmentName
from spark_log.log.rewrite import IndexedParquetWriter, key_indexes
from spark_log.log.verify import LogFindingKind, LogSeverity
from spark_log.record import EndTransactionMarker, ProducerAppend, batch_crc32c
from tests.metadata.replicas import (
    append,
    come_back,
    leave,
    log_of,
    replica_of,
    replicated_cluster,
)
from tests.record.samples import numbered, record_batch, row


def filled(tmp_path):
    cluster = replicated_cluster(tmp_path, brokers=2, table_format="delta")
    for number in range(12):
        append(log_of(cluster), numbered(2 * number, 2))
    return cluster


def clean(cluster):
    cleaned = list(ClusterCleaner(Cluster(cluster.root), table_at_once=True).clean())
    assert [each.error for each in cleaned] == [None] * len(cleaned)


def parquet_of(cluster, broker_id):
    """Return the content of the Parquet segments of a replica, by name."""
    files = replica_of(cluster, broker_id).files
    return {
        file.name: files.store.open_buffer(file.path).to_pybytes()
        for file in files.store.list(files.path)
        if file.name.endswith(".parquet")
    }


def values(cluster, broker_id):
    return [
        row
        for batch in replica_of(cluster, broker_id).scan(0)
        for row in batch.records.column("value").to_pylist()
    ]


def errors(cluster):
    findings = ClusterVerifier(Cluster(cluster.root)).findings()
    return [each for each in findings if each.severity is LogSeverity.ERROR]


def test_each_replica_is_written_as_parquet_by_itself(tmp_path):
    cluster = filled(tmp_path)
    clean(cluster)
    leader, follower = (parquet_of(cluster, broker_id) for broker_id in (0, 1))
    assert list(leader) == list(follower)
    assert values(cluster, 0) == values(cluster, 1)
    assert errors(cluster) == []
    append(log_of(cluster), numbered(24, 1))
    assert len(values(cluster, 1)) == 25


def test_only_records_of_aborted_transactions_may_be_missing_in_a_parquet_file(tmp_path):
    cluster = filled(tmp_path)
    producer = ProducerAppend(7, 0, 0, is_transactional=True)
    append(log_of(cluster), numbered(100, 3), producer=producer)
    log_of(cluster).append_markers([EndTransactionMarker(7, 1, is_committed=False)])
    PartitionCleaner(replica_of(cluster, 0), table_at_once=True).clean()
    assert parquet_of(cluster, 0)
    assert not parquet_of(cluster, 1)
    assert len(values(cluster, 1)) == len(values(cluster, 0)) + 3
    assert errors(cluster) == []
    # A file that lacks a record of another batch:
    files = replica_of(cluster, 0).files
    (name,) = parquet_of(cluster, 0)
    segment = SegmentName.parse(name)
    assert segment is not None
    reader = files.open(segment)
    writer = IndexedParquetWriter(files, segment, None)
    headers, records = reader.read_batch(0)
    short = replace(headers[0], record_count=headers[0].record_count - 1)
    records = records.slice(1)
    short = replace(short, crc32c=batch_crc32c(short, records.slice(0, short.record_count)))
    writer.write_rewritten(records, (short, *headers[1:]))
    files.store.delete(files.file_path(name))
    files.store.put_if_absent(files.file_path(name), writer.finish().staged)
    assert [each.kind for each in errors(cluster)] == [LogFindingKind.DIFFERENT_REPLICA]


def test_a_replica_that_begins_anew_gets_the_leaders_parquet_files(tmp_path):
    cluster = filled(tmp_path)
    leave(cluster, 1)
    clean(cluster)
    files = replica_of(cluster, 1).files
    shutil.rmtree(f"{files.store.url}/{files.path}")
    come_back(cluster, 1, number=1)
    topic, directory = cluster.topic("t"), cluster.topic("t").partitions[0]
    copied = cluster.replica_log(topic, 0, 1, 1).files
    assert directory.isr == (0, 1)
    found = {
        file.name: copied.store.open_buffer(file.path).to_pybytes()
        for file in copied.store.list(copied.path)
        if file.name.endswith(".parquet")
    }
    assert found == parquet_of(cluster, 0)
    assert found
    assert errors(cluster) == []


def test_a_copied_segment_gets_its_own_key_index(tmp_path, monkeypatch):
    monkeypatch.setattr(key_indexes, "MIN_INDEXED_RECORDS", 1)
    cluster = filled(tmp_path)
    append(log_of(cluster), record_batch([row(b"value", key=b"key")]))
    leave(cluster, 1)
    clean(cluster)
    files = replica_of(cluster, 1).files
    shutil.rmtree(f"{files.store.url}/{files.path}")
    come_back(cluster, 1, number=1)
    copied = cluster.replica_log(cluster.topic("t"), 0, 1, 1)
    names = [name.replace(".parquet", ".keyindex") for name in parquet_of(cluster, 0)]
    assert names
    indexes = [
        [log.files.store.open_buffer(log.files.file_path(name)).to_pybytes() for name in names]
        for log in (replica_of(cluster, 0), copied)
    ]
    assert indexes[0] == indexes[1]
    assert copied.find_key(b"key").offsets().tolist() == [24]
    assert copied.suppressed.counts() == {}
    assert errors(cluster) == []
