"""Our own checkpoints, of a table with a writer feature of its own: we and delta-rs read them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_log.delta import (
    DataFile,
    DeltaLog,
    SetTransaction,
    TableProtocol,
    point_to_checkpoint,
    write_checkpoint,
)
from spark_log.delta.cleanup import DeltaCleanup
from spark_log.errors import StorageError

OURS = TableProtocol(7, frozenset({"sparkLog"}), ("partition",))
DIRECTORY = "flights.BAmGwfbUQVSsLzdzBSFxhA"
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "offset", "type": "long", "nullable": False, "metadata": {}},
        {"name": "partition", "type": "integer", "nullable": True, "metadata": {}},
    ],
}
METADATA = {
    "id": "66f21b33-0000-4000-8000-000000000000",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["partition"],
    "configuration": {"sparkLog.setting": "{}"},
    "createdTime": 5,
}


def written(cluster, number):
    """Write a data file of two rows, and return it."""
    path = f"flights-0/{number}.parquet"
    offsets = [2 * number, 2 * number + 1]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"offset": offsets}), sink)
    cluster.store.put(f"{DIRECTORY}/{path}", sink.getvalue())
    return DataFile(
        path,
        sink.getvalue().size,
        2,
        {"offset": offsets[0]},
        {"offset": offsets[1]},
        {"offset": 0},
        {"partition": "0"},
        modified_ms=7,
        tags={"x": f"{number}"} if number else {},
    )


@pytest.fixture
def log(cluster):
    log = DeltaLog(cluster.store, DIRECTORY, cluster.clock, OURS)
    log.refresh()
    log.append([OURS.to_action(), {"metaData": METADATA}], "CREATE TABLE")
    for number in range(3):
        action = written(cluster, number).to_add(7)
        log.append([action, SetTransaction("a", number).to_action()], "WRITE")
    return log


def checkpointed(cluster, log):
    write_checkpoint(cluster.store, log.log_directory, log.state, OURS)
    point_to_checkpoint(cluster.store, log.log_directory, log.state)


def test_a_checkpoint_is_the_state(cluster, log):
    checkpointed(cluster, log)
    other = DeltaLog(cluster.store, DIRECTORY, cluster.clock, OURS)
    other.refresh()
    assert other.state.version == 3
    assert other.state.recent_transactions == {}, "it was read from the versions"
    assert other.state.files == log.state.files
    assert other.state.transaction("a") == SetTransaction("a", 2)
    assert other.state.configuration == METADATA["configuration"]
    # A checkpoint of a state that came from a checkpoint is the same.
    checkpointed(cluster, other)
    again = DeltaLog(cluster.store, DIRECTORY, cluster.clock, OURS)
    again.refresh()
    assert again.state.files == log.state.files
    assert again.state.metadata == log.state.metadata


def test_delta_rs_reads_it_without_the_versions(cluster, log, clock):
    checkpointed(cluster, log)
    clock.advance_ms(10 * DeltaLog.deletion_delay_ms)
    cluster.store.put("__x/probe", b"")
    cleanup = DeltaCleanup(cluster.store, DIRECTORY, cluster.clock, OURS)
    assert cleanup.delete_versions(cluster.store.head("__x/probe").modified_us) == 3
    table = DeltaTable(cluster.store.directory_url(DIRECTORY))
    assert sorted(table.to_pyarrow_table().column("offset").to_pylist()) == list(range(6))
    assert table.version() == 3
    assert set(table.to_pyarrow_table().column("partition").to_pylist()) == {0}


@pytest.mark.parametrize(
    ("protocol", "problem"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, "another program has created a table"),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["sparkLog", "x"]},
            "upgraded the table to Delta protocol 1, 7, sparkLog, x",
        ),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["sparkLog", "deletionVectors"],
            },
            "supports 1, 7, sparkLog: undo that change, or make its Delta log anew",
        ),
    ],
)
def test_another_protocol_is_refused(cluster, log, protocol, problem):
    body = json.dumps({"protocol": protocol}).encode()
    cluster.store.put_if_absent(f"{log.log_directory}/{4:020}.json", body)
    with pytest.raises(StorageError, match=problem):
        log.refresh()


def test_other_partition_columns_are_refused(cluster, log):
    body = json.dumps({"metaData": METADATA | {"partitionColumns": []}}).encode()
    cluster.store.put_if_absent(f"{log.log_directory}/{4:020}.json", body)
    with pytest.raises(StorageError, match="partitioned it by nothing"):
        log.refresh()
