"""Compares `read_table` with a hand-written Parquet table of the same rows; both through Spark.

    python -m benchmarks.spark_table_reads --records 2000000 --repeats 3

A topic of flights is written and converted to Parquet, so that all of it is in the table. Spark
writes the same rows as a Parquet table, with zstd, one file for each partition of the topic, in the
same order. All columns, the keys alone, and one day of thirty are read in turn.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.command_line import base_parser, positive
from benchmarks.made_flights import PARTITIONS
from benchmarks.table_scan import write_table
from benchmarks.workload import Case, measure, noop, session
from spark_log import read_table

_TOPIC = "flights"
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = base_parser("spark_table_reads", __doc__)
    parser.add_argument("--records", type=positive, default=2_000_000, help="how many (2000000)")
    parser.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after a warm-up (3)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        root, copy = str(Path(work) / "root"), str(Path(work) / "copy")
        write_table(root, options.records)
        spark = session()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        rows = read_table(spark, root, _TOPIC).repartitionById(PARTITIONS, F.col("partition"))
        rows.sortWithinPartitions("offset").write.option("compression", "zstd").parquet(copy)
        run(spark, options.records, options.repeats, root, copy)
        spark.stop()


def run(spark: SparkSession, n: int, repeats: int, root: str, copy: str) -> None:
    """Measure, print the table, and write JSON."""
    first, behind = (_BEGIN + timedelta(seconds=n * day // 30) for day in (14, 15))
    day = (F.col("timestamp") >= F.lit(first)) & (F.col("timestamp") < F.lit(behind))
    table, parquet = read_table(spark, root, _TOPIC), spark.read.parquet(copy)
    limited = read_table(spark, root, _TOPIC, from_time=first, to_time=behind)
    for frame in (table.where(day), parquet.where(day), limited):
        assert frame.count() == n * 15 // 30 - n * 14 // 30

    def case(name: str, frame: DataFrame, *against: str) -> Case:
        return Case(name, lambda _: noop(frame), against=against)

    peers = [
        [
            case("Parquet, all columns", parquet),
            case("read_table, all columns", table, "Parquet, all columns"),
        ],
        [
            case("Parquet, key", parquet.select("key")),
            case("read_table, key", table.select("key"), "Parquet, key"),
        ],
        [
            case("Parquet, a day", parquet.where(day)),
            case("read_table, a day", limited, "Parquet, a day"),
            case("read_table, filtered, a day", table.where(day), "Parquet, a day"),
        ],
    ]
    measure("spark_table_reads", n, peers, repeats).report()


if __name__ == "__main__":
    main()
