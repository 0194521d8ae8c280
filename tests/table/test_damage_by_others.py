"""Damage that other programs do to a table: each row of the list in docs/table.md is tried."""

import json
import shutil

import pytest

from spark_log import CorruptRecordError, InvalidOptionError, StorageError, scan
from spark_log.cluster import Cluster
from spark_log.table import rebuild_table


@pytest.fixture
def root(opened):
    """A table of three files, and a log that goes on."""
    root = opened()
    for at in range(3):
        root.fill(5, start=10 * at)
        root.clean()
    root.fill(2, start=50)
    return root


def scanned(root, **options):
    rows = scan(root.url, "t", columns=["offset", "key", "value"], **options).read_all()
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def delta_log(root):
    return root.directory / "_delta_log"


def test_a_version_by_hand(root):
    before, rows = root.log_files(), root.log_rows()
    added = {"path": "theirs.parquet", "partitionValues": {"partition": "0"}, "size": 4}
    added |= {"modificationTime": 1, "dataChange": True}
    path = delta_log(root) / f"{root.newest.number + 1:020}.json"
    path.write_text(json.dumps({"add": added}) + "\n")
    assert any("added theirs.parquet" in str(each) for each in root.errors())
    assert before.items() <= root.log_files().items()
    assert root.log_rows() == scanned(root) == rows
    rebuild_table(root.table, root.cluster.image().offset)
    assert root.errors() == []
    assert root.findings() == []


def test_a_damaged_version(root):
    before, rows = root.log_files(), root.log_rows()
    path = delta_log(root) / f"{root.newest.number:020}.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StorageError, match="spark-log table rebuild"):
        scanned(root)
    assert root.errors() != []
    assert before.items() <= root.log_files().items()
    assert root.log_rows() == rows


def test_a_deleted_delta_log(root):
    rows = root.log_rows()
    shutil.rmtree(delta_log(root))
    assert root.errors() != [], "of a process that knows the table"
    root.cluster = Cluster(root.url, clock=root.clock)
    root.clean()
    assert root.table_rows() == root.log_rows() == rows
    assert root.findings() == []


def test_a_deleted_parquet_file(root):
    root.clock.advance_ms(3_600_000)
    root.clean()  # deletes the segments that the Parquet files have replaced
    version = root.newest
    (root.directory / version.path_of(0, version.partitions[0].files[1])).unlink()
    for read in (root.log_rows, lambda: scanned(root)):
        with pytest.raises(CorruptRecordError, match=r"ends at offset 10, .* begins at 20"):
            read()
    assert root.findings()[0].kind == "file"


def test_deleted_versions(opened):
    root = opened()
    for at in range(12):  # past a checkpoint
        root.fill(1, start=at)
        root.clean()
    for number in range(5):
        (delta_log(root) / f"{number:020}.json").unlink()
    assert scanned(root) == root.log_rows()
    with pytest.raises((InvalidOptionError, StorageError)):
        scanned(root, version=2)
    root.clean()
    assert root.findings() == []
