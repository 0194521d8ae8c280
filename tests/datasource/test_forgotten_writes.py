"""A batch write with ``txnAppId`` runs again, after a machine with a wrong clock has cleaned."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.util.clock import SYSTEM_CLOCK
from tests.datasource.sink_support import numbers
from tests.log.support import ShiftedClock

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_write_that_the_log_has_forgotten_is_not_appended_twice(
    spark: SparkSession, root: str
) -> None:
    """A clean on a machine two days ahead made the log forget the write, and duplicated it."""
    admin = Admin(root)
    admin.create_topics([NewTopic("named", topic_configs={"merge.tail.segments": "0"})])
    allowed = ConfigResource("broker", "", {"max.clock.skew.ms": str(10**12)})
    admin.alter_configs([allowed])

    def write(version: int) -> None:
        df = spark.range(3 * version, 3 * version + 3, 1, 1)
        df = df.select(F.col("id").cast("string").alias("value"))
        named = {"topic": "named", "txnAppId": "nightly", "txnVersion": str(version)}
        df.write.format("spark_log").mode("append").options(**named).save(root)

    for version in range(8):
        write(version)
    ahead = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=2))
    (cleaned,) = ClusterCleaner(ahead, ["named"]).clean()
    assert cleaned.report is not None
    assert cleaned.report.merged_segments == 8, "the clean has written a snapshot"
    write(7)
    assert numbers(root, "named") == [list(range(24))]
