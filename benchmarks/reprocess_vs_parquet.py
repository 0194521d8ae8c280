"""Compares reprocessing of a log into a Delta table with the same records read from Parquet.

    python -m benchmarks.reprocess_vs_parquet --records 10000000 --repeats 3

Both read key, value and timestamp and append them to a new table. Spark Log does what
jobs/reprocess.py does: step by step, each step committed to the table together with its offsets.
"""

import argparse
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.command_line import base_parser, positive
from benchmarks.spark_log_peer import append_to_new_topic
from benchmarks.workload import Case, measure, records, session
from spark_log.datasource.options.offsets import format_offsets
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.jobs.reprocessing import DeltaTarget, Offsets, Reprocessing
from spark_log.testing.spark import DELTA_PACKAGE, DELTA_SETTINGS

_TOPIC = "t"
_COLUMNS = ["key", "value", "timestamp"]


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = base_parser("reprocess_vs_parquet", __doc__)
    parser.add_argument("--records", type=positive, default=10_000_000, help="how many (10000000)")
    parser.add_argument("--step-records", type=positive, help="of each step (all in one)")
    parser.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after a warm-up (3)"
    )
    options = parser.parse_args()
    spark = session([DELTA_PACKAGE], extra_settings=DELTA_SETTINGS)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        run(spark, options, Path(work))
    spark.stop()


def run(spark: SparkSession, options: argparse.Namespace, work: Path) -> None:
    """Measure, print the table, and write JSON."""
    root, parquet = str(work / "root"), str(work / "parquet")
    _write(spark, options.records, root, parquet)

    def from_parquet(name: str) -> None:
        rows = spark.read.parquet(parquet).select(*_COLUMNS)
        rows.write.format("delta").mode("append").save(str(work / f"delta-{name}"))

    def from_log(name: str) -> None:
        table = str(work / f"delta-{name}")
        _reprocess(spark, root, table, name, options.step_records)

    def check(name: str) -> None:
        found = spark.read.format("delta").load(str(work / f"delta-{name}")).count()
        assert found == options.records, f"{found} records, expected {options.records}"

    peers = [
        [Case("Parquet to Delta", from_parquet, after=check)],
        [Case("Spark Log to Delta", from_log, after=check, against=("Parquet to Delta",))],
    ]
    result = measure("reprocess_vs_parquet", options.records, peers, options.repeats)
    result.report()


def _reprocess(spark: SparkSession, root: str, table: str, name: str, step: int | None) -> None:
    def results_of(starts: Offsets, ends: Offsets) -> DataFrame:
        ranges = {"startingOffsets": format_offsets(starts), "endingOffsets": format_offsets(ends)}
        reader = spark.read.format("spark_log").options(subscribe=_TOPIC, **ranges)
        return reader.load(root).select(*_COLUMNS)

    whole = {"path": root, "subscribe": _TOPIC, "startingOffsets": "earliest"}
    reads = parse_read_options(whole, is_stream=False)
    work = Reprocessing(DeltaTarget(table, {}), name, {}, reads)
    while not work.progress.is_done:
        work.run_step(results_of, step)


def _write(spark: SparkSession, n: int, root: str, parquet: str) -> None:
    made = records(spark, n).select(
        F.col("key").cast("binary").alias("key"),
        "value",
        F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("id") * 1000).alias("timestamp"),
    )
    made.write.parquet(parquet)
    append_to_new_topic(spark.read.parquet(parquet), root, _TOPIC)


if __name__ == "__main__":
    main()
