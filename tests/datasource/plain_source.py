"""A source in Python without any code of spark-log, which ``test_spark_alone.py`` runs.

Arguments: a directory, and a Python whose streaming processes start slowly.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

directory, slow_python = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = slow_python

from pyspark.errors import StreamingQueryException  # noqa: E402 - Spark reads the variable above
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)


class BatchReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(1_000_000))


class StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"n": 0}

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(1,)])


class Plain(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: Any) -> BatchReader:
        return BatchReader()

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802
        return StreamReader()


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


builder = SparkSession.builder.master("local[1]")
builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
spark.dataSource.register(Plain)
say(spark.read.format("plain").load().take(1))
query = (
    spark.readStream.format("plain")
    .load()
    .writeStream.format("noop")
    .option("checkpointLocation", directory)
    .start()
)
with suppress(StreamingQueryException):
    query.awaitTermination()
query.stop()
say(str(query.exception()).splitlines()[0])
