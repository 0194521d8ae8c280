"""A streaming query with other rows in each attempt, which `test_transactional_copy` kills.

    python transactional_copy_job.py ROOT CHECKPOINT MASTER

It copies a topic in transactions. A row's value is ``<micro-batch>:<random number>``, its key that
of the source. It ends when all records that existed at its start are copied.
"""

import os
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

os.environ["PYSPARK_PYTHON"] = sys.executable
TASKS = 3


def with_batch_id(batches):
    """Put the number of the micro-batch before each value."""
    context = TaskContext.get()
    assert context is not None
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    for batch in batches:
        value = pc.binary_join_element_wise(batch_id, batch.column("value"), ":")
        yield pa.RecordBatch.from_arrays([batch.column("key"), value], ["key", "value"])


def main():
    root, checkpoint, master = sys.argv[1:]
    spark = (
        SparkSession.builder.master(master)
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "100")  # a lost executor counts as a failure
        .config("spark.stage.maxConsecutiveAttempts", "100")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    source = (
        spark.readStream.format("spark_log")
        .options(subscribe="source", startingOffsets="earliest", maxOffsetsPerTrigger="1000")
        .load(root)
    )
    drawn = source.repartition(TASKS).select(
        F.col("key").cast("string").alias("key"), F.rand().cast("string").alias("value")
    )
    query = (
        drawn.mapInArrow(with_batch_id, "key string, value string")
        .writeStream.format("spark_log")
        .options(path=root, topic="copy", checkpointLocation=checkpoint, transactional="true")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
