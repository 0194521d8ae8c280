"""Spark program whose tasks die while they write or read, or run twice; for `test_on_cluster`.

    python cluster_job.py MASTER ROOT DIRECTORY

All code of the tasks is in this file, because Spark sends the program's ``__main__`` to them.
"""

import os
import signal
import sys
import time
from pathlib import Path
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_log.datasource import SparkLogDataSource
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.datasource.write.batch_writer import LogBatchWriter
from spark_log.log import PartitionLog

ROWS = 8_000
TASKS = 4
PARTITIONS = 4
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}


def first_time(path):
    """Return whether this is the first call in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def executor_pid():
    """Return the process id of the executor: the nearest Java process above this one."""
    pid = os.getpid()
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid <= 1:
            raise RuntimeError("no executor above this process")
    return pid


def task():
    context = TaskContext.get()
    assert context is not None, "not in a task"
    return context


class DyingWriter(LogBatchWriter):
    """Task writer that dies once in each of two tasks, after appending to some partitions."""

    def __init__(self, schema, options, directory, whom):
        super().__init__(schema, options)
        self._directory, self._whom = directory, whom

    def write(self, iterator):
        number = task().partitionId()
        append_segment = PartitionLog.append_segment
        appended = 0

        def dying(log, segment, **options):
            nonlocal appended
            info = append_segment(log, segment, **options)
            appended += 1
            mark = f"{self._directory}/{self._whom}-{number}"
            if number % 2 and appended == 1 + number and first_time(mark):
                os.kill(os.getpid() if "worker" in self._whom else executor_pid(), signal.SIGKILL)
            return info

        with patch.object(PartitionLog, "append_segment", dying):
            return super().write(iterator)


class DyingSource(SparkLogDataSource):
    @classmethod
    def name(cls):
        return "spark_log_dying"

    def writer(self, schema, overwrite):
        options = dict(self.options)
        directory, whom = options.pop("directory"), options.pop("whom")
        return DyingWriter(schema, parse_write_options(options), directory, whom)


def dying_udf(directory):
    """Return a function over Arrow batches whose process dies once, in the middle of a task."""

    def run(batches):
        for ordinal, batch in enumerate(batches):
            if ordinal == 1 and first_time(f"{directory}/udf"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return run


def dying_executor(directory):
    """Return a function over Arrow batches whose executor dies once, in the middle of a task."""

    def run(batches):
        for ordinal, batch in enumerate(batches):
            if ordinal == 1 and first_time(f"{directory}/read"):
                os.kill(executor_pid(), signal.SIGKILL)
            yield batch

    return run


def slow_at_first(directory, name="speculative"):
    """Return a function over Arrow batches: the first attempt of a task waits for a second one."""

    def run(batches):
        context = task()
        mark = Path(directory, name)
        if context.partitionId() == 0 and context.attemptNumber() > 0:
            mark.touch()
        for ordinal, batch in enumerate(batches):
            yield batch
            while context.partitionId() == 0 and ordinal == 1 and not mark.exists():
                time.sleep(0.01)

    return run


def session(master, **settings):
    builder = (
        SparkSession.builder.master(master)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.excludeOnFailure.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    return builder.config(map=settings).getOrCreate()


def rows(spark):
    return spark.range(ROWS, numPartitions=TASKS).select(
        F.col("id").cast("string").alias("key"),
        F.rpad(F.col("id").cast("string"), 700, ".").alias("value"),
    )


def drawn(spark):
    """Rows with other values in each attempt: the number of the row, plus a multiple of `ROWS`."""
    value = F.col("id") + ROWS * F.floor(F.rand() * 1000)
    return spark.range(ROWS, numPartitions=TASKS).select(
        F.col("id").cast("string").alias("key"),
        F.rpad(value.cast("string"), 700, ".").alias("value"),
    )


def main():
    master, root, directory = sys.argv[1:]
    spark = session(master)
    spark.dataSource.register(DyingSource)
    for whom in ("worker", "executor"):
        writing = rows(spark).write.format("spark_log_dying").mode("append")
        summary = f"{directory}/{whom}.json"
        writing.options(directory=directory, whom=whom, topic=whom, summaryPath=summary).save(root)
    for whom in ("transactional-worker", "transactional-executor"):
        writing = drawn(spark).write.format("spark_log_dying").mode("append")
        writing = writing.options(directory=directory, whom=whom, topic=whom)
        writing.option("transactional", "true").save(root)
    dying = rows(spark).mapInArrow(dying_udf(directory), rows(spark).schema)
    dying.write.format("spark_log").mode("append").option("topic", "udf").save(root)

    read = spark.read.format("spark_log").option("subscribe", "udf").load(root).select("key")
    keys = read.mapInArrow(dying_executor(directory), read.schema).collect()
    Path(directory, "read.txt").write_text(" ".join(row.key.decode() for row in keys))
    spark.stop()

    spark = session(master, **SPECULATION)
    slow = rows(spark).mapInArrow(slow_at_first(directory), rows(spark).schema)
    slow.write.format("spark_log").mode("append").option("topic", "speculative").save(root)
    twice = drawn(spark).mapInArrow(
        slow_at_first(directory, "transactional-speculative"), rows(spark).schema
    )
    writing = twice.write.format("spark_log").mode("append").option("transactional", "true")
    writing.option("topic", "transactional-speculative").save(root)
    spark.stop()


if __name__ == "__main__":
    main()
