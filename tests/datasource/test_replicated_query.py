"""A streaming query whose source and sink are replicated goes on through the loss of a root."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.replication.support import Disks
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_query_goes_on_through_the_loss_and_the_return_of_a_root(
    spark: SparkSession, tmp_path: Path
) -> None:
    disks = Disks(tmp_path)
    for topic in ("in", "out"):
        disks.create(topic=topic)
    records = spark.readStream.format("spark_log").options(
        path=disks.root, subscribe="in", startingOffsets="earliest"
    )
    query = (
        records.load()
        .select("value")
        .writeStream.format("spark_log")
        .options(path=disks.root, topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    sent: list[bytes] = []

    def send_and_wait() -> None:
        more = [b"%d" % (len(sent) + number) for number in range(5)]
        disks.send(*more, topic="in")
        sent.extend(more)

        def has_all() -> bool:
            assert query.isActive, query.exception()
            return len(disks.values("out")) >= len(sent)

        wait_until(has_all, "the query does not write what was sent")

    try:
        send_and_wait()
        for lost in (1, 2):  # the leader of both topics, then the next one
            disks.take_away(lost)
            send_and_wait()
            assert lost not in disks.partition("out").isr
            disks.bring_back(lost)
            disks.replicate()
            for topic in ("in", "out"):
                assert disks.partition(topic).isr[-1] == lost
            send_and_wait()
    finally:
        query.stop()
    assert disks.values("in") == sent
    assert disks.values("out") == sent
