"""Common parts of the benchmarks through Spark: records, session, runs in turn, and results."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from compileall import compile_dir
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import spark_log
from benchmarks.machine import CORES, RESULTS, machine
from benchmarks.process_time import tree_cpu_s
from benchmarks.timing import timed
from benchmarks.whole_table import print_whole

PARTITIONS = 4
VALUE_BYTES = 100
KEY_BYTES = 8
_FILE_BYTES = 100 << 20  # below spark.sql.files.maxPartitionBytes, so that a file is an input split

_CLEANING_S = 0.5
"""Time that Spark's cleaner, a thread of its own, gets to delete shuffle files."""


def session(
    extra_packages: Sequence[str] = (),
    *,
    jars: Sequence[Path] = (),
    app_name: str = "benchmarks",
    extra_settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a quiet ``local[2]`` session; every peer of a run shares it.

    Its workers run this Python unless ``PYSPARK_PYTHON`` names another one: Spark's default is the
    ``python3`` on the path, which outside an activated environment has no spark_log.

    Args:
        extra_packages: The Maven coordinates for ``spark.jars.packages``.
        jars: The files for ``spark.jars``.
        app_name: The name of the Spark application.
        extra_settings: Further settings of Spark.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.python.unix.domain.socket.enabled": "true",  # as in conf/spark-defaults.conf
    }
    if extra_packages:
        settings["spark.jars.packages"] = ",".join(extra_packages)
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    settings |= extra_settings or {}
    # Otherwise each new process of Spark would compile 150 modules (0.1 s), unlike those of an
    # installed package.
    compile_dir(Path(spark_log.__file__).parent, quiet=2)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def records(
    spark: SparkSession, n: int, value_bytes: int = VALUE_BYTES, key_bytes: int = KEY_BYTES
) -> DataFrame:
    """Return ``n`` records: ``key string`` and ``value binary``, of exactly these sizes.

    A third column, ``id``, is the record's number; rows are in its order.

    The bytes are hashes of the record's number: the same in every run, however Spark splits them,
    and neither compressors nor dictionaries shrink them, so no format gains by its encoding.
    """
    files = CORES * ceil(n * (value_bytes + key_bytes) / (CORES * _FILE_BYTES))
    return spark.range(0, n, 1, max(CORES, files)).select(
        "id",
        F.substring(F.sha2(F.concat(F.lit("key"), F.col("id")), 512), 1, key_bytes).alias("key"),
        _hash_bytes("value", value_bytes),
    )


def prepare(
    spark: SparkSession, directory: Path, n: int, value_bytes: int = VALUE_BYTES
) -> DataFrame:
    """Write ``n`` records to Parquet under ``directory`` and return them read back.

    So their generation is not measured. For every peer, a measured write starts with a plain scan
    of at least two input splits of equal size.
    """
    path = str(directory / f"records-{n}")
    records(spark, n, value_bytes).drop("id").write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def noop(df: DataFrame) -> None:
    """Compute all columns of all rows of ``df`` and drop them."""
    df.write.format("noop").mode("overwrite").save()


def _nothing(topic: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measured operation. Its functions get a name that is new in every repeat."""

    name: str
    run: Callable[[str], object]
    before: Callable[[str], object] = _nothing
    after: Callable[[str], object] = _nothing
    against: tuple[str, ...] = ()
    """Names of the cases that the rate of this case is divided by, if they were run."""


@dataclass(frozen=True, slots=True)
class Result:
    """The seconds of every repeat of every case, and the comparisons of cases."""

    name: str
    n: int
    seconds: Mapping[str, Sequence[float]]
    against: Mapping[str, Sequence[str]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, object] = field(default_factory=dict)
    value_bytes: int = VALUE_BYTES
    cpu_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Processor time of every repeat, of this process and all that it started."""

    def rate(self, case: str) -> float:
        """Return the records per second of the median repeat."""
        return self.n / median(self.seconds[case])

    def ratios(self, case: str) -> dict[str, float]:
        """Return the case's rate divided by the rate of each case it is compared to."""
        others = [other for other in self.against.get(case, ()) if other in self.seconds]
        return {other: self.rate(case) / self.rate(other) for other in others}

    def cpu_ratios(self, case: str) -> dict[str, float]:
        """Return the processor time of each case that a case is compared to, divided by its own.

        The least time of all repeats counts: other programs can only add to it.
        """
        others = [other for other in self.against.get(case, ()) if other in self.cpu_s]
        return {other: min(self.cpu_s[other]) / min(self.cpu_s[case]) for other in others}

    def print(self, console: Console | None = None) -> None:
        """Print a table: rate (median, and from slowest to fastest) and ratios of each case."""
        table = Table(title=self.name, box=SIMPLE_HEAD)
        table.caption = f"million records/s, median of {self._repeats} runs of {self.n:,} records"
        table.caption += f" of {KEY_BYTES + self.value_bytes} bytes"
        for name, value in self.notes.items():
            table.caption += f"\n{name}: {value}"
        table.add_column("case", no_wrap=True)
        table.add_column("M/s", justify="right", no_wrap=True)
        table.add_column("spread", justify="right", no_wrap=True)
        table.add_column("ratio", no_wrap=True)
        if self.cpu_s:
            table.add_column("CPU s", justify="right", no_wrap=True)
            table.add_column("CPU ratio", justify="right", no_wrap=True)
        for case, seconds in self.seconds.items():
            spread = f"{self.n / max(seconds) / 1e6:.2f}-{self.n / min(seconds) / 1e6:.2f}"
            ratios = "\n".join(f"{ratio:.2f}x {of}" for of, ratio in self.ratios(case).items())
            cells = [case, f"{self.rate(case) / 1e6:.2f}", spread, ratios]
            if self.cpu_s:
                cells.append(f"{min(self.cpu_s[case]):.2f}")
                cells.append("\n".join(f"{ratio:.2f}x" for ratio in self.cpu_ratios(case).values()))
            table.add_row(*cells)
        print_whole(table, console)

    def write_json(self, directory: Path = RESULTS) -> Path:
        """Write figures and machine to a file named after the run, and return its path."""
        directory.mkdir(parents=True, exist_ok=True)
        record_bytes = KEY_BYTES + self.value_bytes
        path = directory / f"{self.name}-{self.n}x{record_bytes}.json"
        cases: dict[str, dict[str, object]] = {
            case: {
                "records_per_s": round(self.rate(case)),
                "median_s": round(median(seconds), 3),
                "seconds": [round(each, 3) for each in seconds],
                "ratios": {of: round(ratio, 3) for of, ratio in self.ratios(case).items()},
            }
            for case, seconds in self.seconds.items()
        }
        for case, spent in self.cpu_s.items():
            ratios = {of: round(ratio, 3) for of, ratio in self.cpu_ratios(case).items()}
            cases[case] |= {"cpu_s": [round(each, 3) for each in spent], "cpu_ratios": ratios}
        content = {
            "name": self.name,
            "records": self.n,
            "record_bytes": {"key": KEY_BYTES, "value": self.value_bytes},
            "repeats": self._repeats,
            "machine": machine() | dict(self.versions),
            "notes": dict(self.notes),
            "cases": cases,
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def report(self) -> None:
        """Print the table, write the JSON file, and print its path."""
        self.print()
        print(f"written: {os.path.relpath(self.write_json())}")

    @property
    def _repeats(self) -> int:
        return max((len(seconds) for seconds in self.seconds.values()), default=0)


def measure(
    name: str,
    n: int,
    peers: Sequence[Sequence[Case]],
    repeats: int = 3,
    *,
    warmups: int = 1,
    versions: Mapping[str, str] | None = None,
    value_bytes: int = VALUE_BYTES,
    with_cpu: bool = False,
) -> Result:
    """Run every case ``warmups`` times unmeasured, then ``repeats`` times, with the peers in turns.

    A peer's cases run in their order, under one name (a write, then the read of the written
    records). Each repeat begins with another peer. Before each case the disk is synced and Spark
    drops its garbage, so that no case pays for dirty pages or shuffle files of another one.

    Args:
        name: The benchmark's name.
        n: The number of records of each case.
        peers: The cases of each peer.
        repeats: The number of measured runs.
        warmups: The number of runs before those; a peer in a JVM of its own needs two.
        versions: The versions of the peers, for the report.
        value_bytes: The size of a value, for the report.
        with_cpu: Whether processor times are measured, too: for machines that others use.
    """
    cases = [case for peer in peers for case in peer]
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    cpu_s: dict[str, list[float]] = {case.name: [] for case in cases}
    console = Console(stderr=True)
    for repeat in range(1 - warmups, repeats + 1):
        first = repeat % len(peers)
        label = f"run {repeat} of {repeats}" if repeat > 0 else "warm-up"
        for number, peer in enumerate([*peers[first:], *peers[:first]]):
            topic = f"run{repeat + warmups}-{number}"
            for case in peer:
                case.before(topic)
                _settle()
                began_s = tree_cpu_s()
                took_s = timed(partial(case.run, topic))
                spent_s = tree_cpu_s() - began_s
                console.print(f"{label}: {case.name}: {took_s:.1f} s", style="dim", highlight=False)
                if repeat > 0:
                    seconds[case.name].append(took_s)
                    cpu_s[case.name].append(spent_s)
            for case in peer:
                case.after(topic)
    against = {case.name: case.against for case in cases}
    return Result(
        name,
        n,
        seconds,
        against,
        versions or {},
        value_bytes=value_bytes,
        cpu_s=cpu_s if with_cpu else {},
    )


def _settle() -> None:
    """Let the session delete the shuffle files of earlier cases, and sync the disk.

    Spark deletes the files of a shuffle when the JVM has found its plan to be garbage.
    """
    if (spark := SparkSession.getActiveSession()) is not None:
        spark._jvm.System.gc()  # type: ignore[union-attr]
        time.sleep(_CLEANING_S)
    os.sync()


def _hash_bytes(name: str, size_bytes: int) -> Column:
    """Return a binary column of ``size_bytes`` that is a function of ``id`` and ``name``."""
    blocks = [
        F.unhex(F.sha2(F.concat_ws("/", F.lit(f"{name}{block}"), F.col("id")), 512))
        for block in range(ceil(size_bytes / 64))
    ]
    return F.substring(F.concat(*blocks), 1, size_bytes).alias(name)
