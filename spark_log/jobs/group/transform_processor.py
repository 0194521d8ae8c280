"""The batch processor of ``jobs/transform.py``: writes the results of a function to a topic."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from spark_log.jobs.group.batch_processors import SparkProcessor
from spark_log.jobs.group.group_job import BatchResult
from spark_log.jobs.group.job_member import Batch
from spark_log.jobs.group.job_transactions import JobTransactions
from spark_log.jobs.program import Transform, count_records
from spark_log.record import ProducerIdAndEpoch


class TransformProcessor(SparkProcessor):
    """Writes a function's results for a batch in a transaction, which the job then commits.

    Only committed records are read.
    """

    def __init__(
        self,
        transform: Transform,
        topic: str,
        transactions: JobTransactions,
        *arguments: Any,
        headers: bool = False,
        **keywords: Any,
    ) -> None:
        """Create the processor; starts no session.

        Args:
            transform: the function.
            topic: the topic to write to.
            transactions: the transactions of the job.
            arguments: arguments of `SparkProcessor`.
            headers: whether the function gets the column ``headers``.
            keywords: keyword arguments of `SparkProcessor`.
        """
        super().__init__(*arguments, **keywords)
        self._transform = transform
        self._topic = topic
        self._transactions = transactions
        self._headers = headers

    def _write(self, spark: SparkSession, batch: Batch) -> BatchResult:
        transaction = self._transactions.begin()
        reads = self._options(batch) | {
            "isolation.level": "read_committed",
            "includeHeaders": str(self._headers),
        }
        read = count_records(spark, reads)
        records = spark.read.format("spark_log").options(**reads).load()
        with TemporaryDirectory(prefix="spark-log-transform-") as directory:
            path = Path(directory) / "summary.json"
            (
                self._transform.results(records)
                .write.format("spark_log")
                .options(**self._connection)
                .option("topic", self._topic)
                .option("joinTransaction", transaction.to_json())
                .option("summaryPath", str(path))
                .mode("append")
                .save()
            )
            summary = json.loads(path.read_text("utf-8"))
        self._transactions.count(
            ProducerIdAndEpoch(each["producerId"], each["producerEpoch"])
            for each in summary.get("producers", ())
        )
        return BatchResult(batch.ends, read, summary["records"])
