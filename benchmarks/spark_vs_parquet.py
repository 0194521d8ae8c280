"""Compares writes and reads of the same records as a log and as Parquet; both through Spark.

    python -m benchmarks.spark_vs_parquet --records 2000000 --records 10000000 --repeats 3

Neither side syncs to disk; Spark Log's synced figure is shown as well. Unkeyed records are the
values alone, for Parquet too. Reads and writes are also compared with the upper bound of Spark's
Python data source API (`benchmarks.ready_made`). The largest resident memory of a Python worker
that wrote is measured as well.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.command_line import base_parser, positive
from benchmarks.ready_made import ReadyMadeSource
from benchmarks.spark_log_peer import spark_log_cases
from benchmarks.worker_memory import WorkerMemory
from benchmarks.workload import PARTITIONS, Case, measure, noop, prepare, session

APPEND, APPEND_VALUES, SCAN = "Parquet append", "Parquet append, values", "Parquet scan"
CEILING = "ready-made batches"
DROPPED, DROPPED_VALUES = "dropped batches", "dropped batches, values"


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = base_parser("spark_vs_parquet", __doc__)
    parser.add_argument(
        "--records", type=positive, action="append", help="how many (2000000, 10000000)"
    )
    parser.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after a warm-up (3)"
    )
    options = parser.parse_args()
    spark = session()
    spark.dataSource.register(ReadyMadeSource)
    for n in options.records or [2_000_000, 10_000_000]:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
            run(spark, n, options.repeats, Path(work))
    spark.stop()


def run(spark: SparkSession, n: int, repeats: int, work: Path) -> None:
    """Measure ``n`` records, print the table and write JSON."""
    df = prepare(spark, work, n)
    log_cases = spark_log_cases(
        spark,
        df,
        work,
        keyed_against=(APPEND, DROPPED),
        unkeyed_against=(APPEND_VALUES, DROPPED_VALUES),
        read_against=(SCAN, CEILING),
    )
    memory = WorkerMemory()
    watched = [[_watched(case, memory) for case in peer] for peer in log_cases]
    peers = [*parquet_cases(spark, df, work), ceiling_cases(spark, df, n), *watched]
    result = measure("spark_vs_parquet", n, peers, repeats, with_cpu=True)
    result = replace(
        result, notes={"largest Python worker that wrote, MB": memory.peak_bytes // 10**6}
    )
    result.report()


def _watched(case: Case, memory: WorkerMemory) -> Case:
    if "write" not in case.name:
        return case

    def run_watched(name: str) -> None:
        with memory:
            case.run(name)

    return replace(case, run=run_watched)


def parquet_cases(spark: SparkSession, df: DataFrame, work: Path) -> list[list[Case]]:
    """Return the append of ``df`` to Parquet and its scan, and the append of its values."""

    def path(name: str) -> str:
        return str(work / f"parquet-{name}")

    def drop(name: str) -> None:
        shutil.rmtree(path(name))

    def append(name: str) -> None:
        df.write.mode("append").parquet(path(name))

    def append_values(name: str) -> None:
        df.select("value").write.mode("append").parquet(path(name))

    def scan(name: str) -> None:
        noop(spark.read.parquet(path(name)))

    return [
        [Case(APPEND, append), Case(SCAN, scan, after=drop)],
        [Case(APPEND_VALUES, append_values, after=drop)],
    ]


def ceiling_cases(spark: SparkSession, df: DataFrame, n: int) -> list[Case]:
    """Return the read of ready-made batches in as many tasks as the log, and dropped writes."""
    reader = spark.read.format("ready_made").options(records=n, partitions=PARTITIONS)

    def drop(frame: DataFrame) -> None:
        frame.write.format("ready_made").mode("append").save()

    return [
        Case(CEILING, lambda _: noop(reader.load())),
        Case(DROPPED, lambda _: drop(df), against=(APPEND,)),
        Case(DROPPED_VALUES, lambda _: drop(df.select("value")), against=(APPEND_VALUES,)),
    ]


if __name__ == "__main__":
    main()
