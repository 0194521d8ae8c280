"""SQL: temporary views ``USING spark_log``, and what a table is answered."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_log import Admin, InvalidOptionError, NewTopic
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.options.write_options import parse_write_options
from tests.docs.blocks import block

VIEW = "CREATE TEMPORARY VIEW name"


def statements(code: str, root: str) -> list[str]:
    return [each.strip() for each in code.replace("/data/log", root).split(";")]


@pytest.mark.spark
def test_one_view_writes_and_another_one_reads(spark: SparkSession, root: str) -> None:
    Admin(root).create_topics([NewTopic("flights")])
    view, select = statements(block("docs/spark.md", "SELECT CAST(key"), root)
    sink, insert, insert_value = statements(block("docs/spark.md", "INSERT INTO"), root)

    def rows() -> list[tuple[str | None, ...]]:
        return sorted(tuple(row)[:2] for row in spark.sql(select).collect())

    spark.sql(sink)
    spark.sql(insert)
    spark.sql(view)
    before = [("AA1141", "JFK-MIA"), ("UA1545", "EWR-IAH")]
    assert rows() == before

    spark.sql(insert_value)
    assert rows() == before, "a view keeps its offsets"
    spark.sql(view)
    read = spark.sql(f"SELECT count(*), count(key) FROM ({select})").collect()
    assert [tuple(row) for row in read] == [(3, 2)], "a column that is left out is null"


@pytest.mark.spark
def test_insert_overwrite_is_refused(spark: SparkSession, root: str) -> None:
    sink, insert, _ = statements(block("docs/spark.md", "INSERT INTO"), root)
    spark.sql(sink.replace("'flights'", "'t'"))
    with pytest.raises(PySparkException, match="can only be appended to"):
        spark.sql(insert.replace("INSERT INTO", "INSERT OVERWRITE"))


@pytest.mark.spark
def test_a_table_is_refused_and_not_created(spark: SparkSession, root: str) -> None:
    with pytest.raises(PySparkException, match=VIEW):
        spark.sql(f"CREATE TABLE refused USING spark_log OPTIONS (path '{root}', subscribe 't')")
    assert not spark.catalog.tableExists("refused")


@pytest.mark.spark
def test_spark_itself_cannot_read_a_table_that_lists_its_columns(
    spark: SparkSession, root: str
) -> None:
    """With Delta's catalog the source is never asked; docs/spark.md describes it."""
    options = f"OPTIONS (path '{root}', subscribe 't')"
    spark.sql(f"CREATE TABLE listed (value BINARY) USING spark_log {options}")
    try:
        with pytest.raises(PySparkException, match="spark_log is not a valid Spark SQL Data So"):
            spark.sql("SELECT * FROM listed")
    finally:
        spark.sql("DROP TABLE listed")


@pytest.mark.parametrize("parse", [parse_read_options, parse_write_options])
def test_a_table_without_deltas_catalog_gets_no_options_and_is_told_about_views(parse) -> None:
    with pytest.raises(InvalidOptionError, match=f"no option is given.*{VIEW}"):
        parse({})


def test_a_view_that_writes_without_columns_is_told_to_list_them() -> None:
    with pytest.raises(InvalidOptionError, match=r"a read takes 'subscribe'.*\(key STRING, value"):
        parse_read_options({"path": "/r", "Topic": "t"})
