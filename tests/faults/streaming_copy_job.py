"""A streaming copy from topic to topic, which `test_streaming_copy` kills and restarts.

    python streaming_copy_job.py ROOT CHECKPOINT

It ends when all records that existed at its start are copied.
"""

import os
import sys

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable


def main():
    root, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    source = (
        spark.readStream.format("spark_log")
        .options(subscribe="source", startingOffsets="earliest", maxOffsetsPerTrigger="2000")
        .options(includeHeaders="true")
        .load(root)
    )
    query = (
        source.select("key", "value", "headers", "partition", "timestamp")
        .writeStream.format("spark_log")
        .options(path=root, topic="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
