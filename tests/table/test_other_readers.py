"""Other programs read a topic's table row for row, and may not change it."""

import duckdb
import polars
import pyarrow.compute as pc
import pytest

from spark_log.testing.spark import spark
from tests.coordinator.storage_dates import dated_by
from tests.sleeping_clock import SleepingClock
from tests.table import duckdb_program
from tests.table.support import new_table, whole_rows
from tests.table.test_committer import COMPACT

__all__ = ["spark"]


@pytest.fixture(scope="module")
def new_root(tmp_path_factory):
    """Return a function that makes a root with the table, for tests that change nothing."""
    with pytest.MonkeyPatch.context() as patches:
        clock = SleepingClock()
        dated_by(clock, patches)
        yield lambda **settings: new_table(tmp_path_factory.mktemp("table"), clock, **settings)


@pytest.fixture(scope="module")
def filled(new_root):
    """A table of two partitions, past a checkpoint."""
    root = new_root(partitions=2, retention_ms=-1)
    for _ in range(11):
        root.fill_with_all_kinds(5, 0)
        root.fill_with_all_kinds(3, 1)
        root.clean()
    assert list(root.directory.glob("_delta_log/*.checkpoint.parquet"))
    return root


@pytest.fixture(scope="module")
def typed(new_root):
    """A table with files of three kinds: without column n, with values of it, with nulls alone."""
    root = new_root()
    root.append((b"old", b'{"n": 1}'), (b"old", b'{"n": 2}'), (b"old", b'{"n": 3}'))
    root.clean()
    root.set(table_value_format="json", table_schema="n INT, name STRING")
    root.append(*((b"k%d" % n, b'{"n": %d, "name": "a"}' % n) for n in range(20)))
    root.clean()
    root.append((b"k", b"no JSON"))
    root.clean()
    return root


def by_delta_rs(root, where="true"):
    rows = root.delta_rs().to_pyarrow_dataset()
    return rows.to_table(filter=ARROW_FILTERS.get(where))


def by_duckdb_over_delta_rs(root, where="true"):
    connection = duckdb.connect()
    connection.register("rows", root.delta_rs().to_pyarrow_dataset())
    return connection.sql(f"SELECT * FROM rows WHERE {where}").to_arrow_table()


def by_duckdb(root, where="true"):
    return duckdb_program.query(f"SELECT * FROM delta_scan('{root.directory}') WHERE {where}")


def by_polars(root, where="true"):
    rows = polars.scan_delta(str(root.directory))
    return rows.filter(polars.sql_expr(where.replace("'k3'", "x'6b33'"))).collect().to_arrow()


READERS = (by_delta_rs, by_duckdb_over_delta_rs, by_duckdb, by_polars)


@pytest.mark.parametrize("read", READERS)
def test_a_reader_has_the_rows_of_the_log(filled, read):
    rows = whole_rows(read(filled))
    assert len(rows) > 200
    assert rows == filled.log_of_the_table()


@pytest.mark.parametrize("read", READERS)
def test_a_reader_has_one_row_of_each_key(opened, read):
    root = opened(**COMPACT)
    root.fill(20)
    root.clean()
    rows = whole_rows(read(root))
    assert rows == root.log_of_the_table()
    assert len({key for *_, key, _, _ in rows}) == len(rows) == 7


ARROW_FILTERS = {
    "n > 12": pc.field("n") > 12,
    "n IS NULL": pc.field("n").is_null(),
    "key = 'k3'": pc.field("key") == b"k3",
    "_decode_error IS NULL": pc.field("_decode_error").is_null(),
    '_decode_error IS NOT NULL AND "offset" > 2': pc.field("_decode_error").is_valid()
    & (pc.field("offset") > 2),
}
FILTERS = {
    "n > 12": 7,
    "n IS NULL": 4,
    "key = 'k3'": 1,
    "_decode_error IS NULL": 23,
    '_decode_error IS NOT NULL AND "offset" > 2': 1,
}
"""Filter → the number of rows that `typed` has for it."""


@pytest.mark.parametrize("read", READERS)
def test_a_filter_on_a_column_without_statistics_finds_its_rows(typed, read):
    for condition, rows in FILTERS.items():
        where = condition.replace("'k3'", "'k3'::BLOB") if "duckdb" in read.__name__ else condition
        assert read(typed, where).num_rows == rows, condition


def test_duckdb_leaves_out_files_by_partition_and_offset(opened):
    root = opened(partitions=2)
    for _ in range(3):
        root.fill(5, 0)
        root.fill(5, 1)
        root.clean()
    where = f"""FROM delta_scan('{root.directory}') WHERE "partition" = 1 AND "offset" >= 20"""
    assert duckdb_program.query(f"SELECT count(*) AS n {where}")["n"].to_pylist() == [10]
    plan = duckdb_program.query(f'EXPLAIN ANALYZE SELECT sum("offset") {where}')
    assert "Scanning Files: 1/6" in plan["explain_value"].to_pylist()[0]


def test_duckdb_is_refused(opened):
    root = opened()
    root.fill(9)
    root.clean()
    before, version = root.log_files(), root.newest.number
    with pytest.raises(RuntimeError, match="sparkLog"):
        duckdb_program.query(
            f"ATTACH '{root.directory}' AS t (TYPE delta); INSERT INTO t SELECT * FROM t"
        )
    assert (root.log_files(), root.newest.number) == (before, version)
    assert root.findings() == []


@pytest.mark.spark
def test_spark_has_the_rows_of_the_log(filled, spark):
    table = spark.read.format("delta").load(str(filled.directory))
    assert whole_rows(table.toArrow()) == filled.log_of_the_table()


@pytest.mark.spark
def test_spark_finds_rows_by_a_column_without_statistics(typed, spark):
    table = spark.read.format("delta").load(str(typed.directory))
    for condition, rows in FILTERS.items():
        assert table.where(condition.replace('"', "`")).count() == rows, condition


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_what_the_log_has_and_is_refused(opened, spark):
    root = opened(partitions=2)
    for round_number in range(12):  # past a checkpoint
        root.fill(3, round_number % 2, start=10 * round_number)
        root.clean()
    table = f"delta.`{root.directory}`"
    rows = spark.sql(f"select partition, offset, key, value, headers from {table}").collect()
    for partition in range(2):
        found = sorted(
            (each.offset, bytes(each.key), bytes(each.value))
            for each in rows
            if each.partition == partition
        )
        assert found == root.log_rows(partition)
    times = spark.sql(f"select min(timestamp), max(offset), count(*) from {table}").first()
    assert times[0].timestamp() > 1_600_000_000
    assert times[1:] == (35, 72)
    pruned = spark.sql(f"select offset from {table} where partition = 1 and offset >= 30")
    assert pruned.count() == 6
    before, version = root.log_files(), root.newest.number
    for statement in (
        f"VACUUM {table} RETAIN 0 HOURS",
        f"OPTIMIZE {table}",
        f"DELETE FROM {table} WHERE offset < 5",
        f"UPDATE {table} SET value = key",
        f"INSERT INTO {table} SELECT * FROM {table}",
        f"RESTORE TABLE {table} TO VERSION AS OF 1",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    ):
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        with pytest.raises(Exception, match="sparkLog"):
            spark.sql(statement).collect()
        assert root.log_files() == before
    assert root.newest.number == version
    old = spark.read.format("delta").option("versionAsOf", 1).load(str(root.directory))
    assert old.count() == root.table.at(1).partitions[0].end + root.table.at(1).partitions[1].end


@pytest.mark.spark
def test_spark_reads_one_row_of_each_key(opened, spark):
    root = opened(**COMPACT)
    root.fill(20)
    root.clean()
    rows = spark.read.format("delta").load(str(root.directory)).collect()
    assert sorted((r.offset, bytes(r.key), bytes(r.value)) for r in rows) == root.table_rows()
    assert len({bytes(row.key) for row in rows}) == len(rows)
