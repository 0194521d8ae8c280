"""Program over Spark Connect that writes, reads and copies a topic; for `test_connect`.

    python connect_program.py ROOT CHECKPOINT

It starts its own server on this machine, and prints the results as JSON.
"""

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_log.datasource import by_partition

os.environ["PYSPARK_PYTHON"] = sys.executable
ROWS = 1000


def main():
    root, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()

    def read(topic, **options):
        return spark.read.format("spark_log").options(subscribe=topic, **options).load(root)

    def write(df):
        df.write.format("spark_log").mode("append").option("topic", "source").save(root)

    rows = spark.range(ROWS).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    write(rows)
    write(by_partition(rows, root, "source"))
    source = (
        spark.readStream.format("spark_log")
        .options(subscribe="source", startingOffsets="earliest")
        .load(root)
    )
    query = (
        source.select("key", "value")
        .writeStream.format("spark_log")
        .options(path=root, topic="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    try:
        error = f"none: {read('source', startingOfsets='earliest').count()}"
    except PySparkException as raised:
        error = str(raised)
    counts = {topic: read(topic).count() for topic in ("source", "copy")}
    print(json.dumps(counts | {"error": error}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
