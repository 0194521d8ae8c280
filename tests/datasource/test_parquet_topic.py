"""A topic whose cold part is Parquet, read by Spark's source: the same rows as from Arrow files."""

from unittest import mock

import pytest
from pyarrow.parquet import ParquetFile
from pyspark.sql import DataFrame, SparkSession

from spark_log.datasource.read.log_split import LogSplit
from spark_log.datasource.read.split_reader import read_split
from tests.datasource.reading import log_of, options_of
from tests.parquet_twins import TOPIC, make_twins
from tests.record.samples import START_US


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    return make_twins(tmp_path_factory.mktemp("twins"))


def read(spark: SparkSession, root: str, **options: str) -> DataFrame:
    reader = spark.read.format("spark_log").option("subscribe", TOPIC)
    return reader.option("kafka.isolation.level", "read_committed").options(**options).load(root)


def split_of(root):
    log = log_of(root, TOPIC)
    end_offset = log.observe().log_end_offset
    return LogSplit(TOPIC, 0, log.files.topic_id, log.directory, 0, end_offset)


class TestTask:
    def test_reads_only_the_column_chunks_that_spark_wants(self, twins):
        _, root = twins
        read = ParquetFile.read_row_group
        with mock.patch.object(
            ParquetFile, "read_row_group", autospec=True, side_effect=read
        ) as call:
            batches = list(read_split(split_of(root), ("value", "partition"), options_of(root)))
        assert sum(batch.num_rows for batch in batches) > 20
        assert {tuple(each.kwargs["columns"]) for each in call.call_args_list} == {
            ("offset", "value")
        }, "offsets, too, since those of aborted records are missing"


@pytest.mark.spark
class TestSpark:
    def test_all_rows_and_columns_are_equal(self, spark: SparkSession, twins) -> None:
        arrow, parquet = (
            read(spark, root, includeHeaders="true").orderBy("partition", "offset").collect()
            for root in twins
        )
        assert arrow == parquet
        assert len(arrow) > 80

    def test_one_column_and_a_range_of_times_are_equal(self, spark: SparkSession, twins) -> None:
        times = {
            "startingTimestamp": str(START_US // 1000 + 30),
            "endingTimestamp": str(START_US // 1000 + 4_100),
        }
        found = [
            sorted(row.key or b"" for row in read(spark, root, **times).select("key").collect())
            for root in twins
        ]
        assert found[0] == found[1]
        assert len(found[0]) > 10
