"""Compares reads of some columns, and of one day out of thirty, with Parquet; both through Spark.

    python -m benchmarks.spark_reads_vs_parquet --records 10000000 --repeats 3

The log's records are appended in the order of time. The Parquet copy is in random order, like a
table that was shuffled when it was written: every row group has records of every day, so its
statistics prune nothing. A Parquet copy in the order of time is measured as well.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.command_line import base_parser, positive
from benchmarks.spark_log_peer import append_to_new_topic
from benchmarks.workload import Case, measure, noop, records, session

_DAYS = 30
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TOPIC = "t"
_COLUMNS = ["key", "value", "timestamp"]


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = base_parser("spark_reads_vs_parquet", __doc__)
    parser.add_argument("--records", type=positive, default=10_000_000, help="how many (10000000)")
    parser.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after a warm-up (3)"
    )
    options = parser.parse_args()
    spark = session()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        run(spark, options.records, options.repeats, Path(work))
    spark.stop()


def run(spark: SparkSession, n: int, repeats: int, work: Path) -> None:
    """Measure, print the table, and write JSON."""
    root, ordered, shuffled = str(work / "root"), str(work / "ordered"), str(work / "shuffled")
    _write(spark, n, root, ordered, shuffled)

    def log(*columns: str, **options: str) -> DataFrame:
        schema = ", ".join(f"{name} {_TYPES[name]}" for name in columns)
        reader = spark.read.format("spark_log").schema(schema).option("subscribe", _TOPIC)
        return reader.options(**options).load(root)

    def parquet(path: str, *columns: str) -> DataFrame:
        return spark.read.parquet(path).select(*columns)

    begin, end = _BEGIN + timedelta(days=14), _BEGIN + timedelta(days=15)
    day = (F.col("timestamp") >= F.lit(begin)) & (F.col("timestamp") < F.lit(end))
    limits = {
        "startingTimestamp": str(int(begin.timestamp()) * 1000),
        "endingTimestamp": str(int(end.timestamp()) * 1000),
    }
    for frame in (log(*_COLUMNS, **limits), parquet(shuffled, *_COLUMNS)):
        found, expected = frame.where(day).count(), n // _DAYS
        assert abs(found - expected) <= 1, f"{found} records of a day, expected {expected}"

    def case(name: str, frame: DataFrame, where: Column | None = None, *against: str) -> list[Case]:
        wanted = frame if where is None else frame.where(where)
        return [Case(name, lambda _: noop(wanted), against=against)]

    peers = [
        case("Parquet, all columns", parquet(shuffled, *_COLUMNS)),
        case("Spark Log, all columns", log(*_COLUMNS), None, "Parquet, all columns"),
        case("Parquet, value only", parquet(shuffled, "value")),
        case("Spark Log, value only", log("value"), None, "Parquet, value only"),
        case("Parquet shuffled, a day", parquet(shuffled, *_COLUMNS), day),
        case("Parquet by time, a day", parquet(ordered, *_COLUMNS), day),
        case(
            "Spark Log, a day",
            log(*_COLUMNS, **limits),
            day,
            "Parquet shuffled, a day",
            "Parquet by time, a day",
        ),
    ]
    result = measure("spark_reads_vs_parquet", n, peers, repeats)
    result.report()


_TYPES = {"key": "binary", "value": "binary", "timestamp": "timestamp"}


def _write(spark: SparkSession, n: int, root: str, ordered: str, shuffled: str) -> None:
    made = records(spark, n).select(
        F.col("key").cast("binary").alias("key"),
        "value",
        F.timestamp_micros(
            F.col("id") * (_DAYS * 86_400_000_000 // n) + int(_BEGIN.timestamp()) * 1_000_000
        ).alias("timestamp"),
    )
    made.write.parquet(ordered)
    spark.read.parquet(ordered).orderBy(F.xxhash64("value")).write.parquet(shuffled)
    # Use one task: several would append at the same time, and Spark scans files in order of size.
    append_to_new_topic(made.coalesce(1), root, _TOPIC)


if __name__ == "__main__":
    main()
