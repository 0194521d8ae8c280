"""A user's program, which ``test_user_program.py`` runs with only ``SPARK_CONF_DIR=conf`` set."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

root, events = sys.argv[1:]
# Spark also hides values that look like secrets. These values do not.
secrets = {
    "storage.account_key": "unseen-1",
    "storage.connection_string": "unseen-2",
    "storage.key": "unseen-3",
}


def session(**settings: str) -> SparkSession:
    Path(events).mkdir(exist_ok=True)
    builder = SparkSession.builder.master("local[2]").config("spark.eventLog.enabled", "true")
    builder = builder.config("spark.eventLog.dir", events)
    builder = builder.config("spark.eventLog.compress", "false")
    builder = builder.config("spark.sql.ui.explainMode", "extended")
    for key, value in settings.items():
        builder = builder.config(key.replace("_", "."), value)
    return builder.getOrCreate()


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def section(name: str) -> None:
    """Print a title to both streams; output of Spark's processes arrives a moment later."""
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"--- {name}\n")
        stream.flush()


def failing(action: Callable[[], object]) -> None:
    """Print the error with which a program ends."""
    try:
        action()
    except PySparkException:
        traceback.print_exc(file=sys.stdout)
    else:
        raise AssertionError("it did not fail")


spark = session()
section("write")
df = spark.range(300_000).selectExpr("cast(id AS string) AS value")
writer = df.write.format("spark_log").mode("append").option("topic", "t")
writer.options(**secrets).save(root)
reader = spark.read.format("spark_log").option("subscribe", "t").options(**secrets)

section("show")
log = reader.load(root)
for _ in range(4):
    log.select("value").show(2)
    say(len(log.limit(3).collect()), len(log.take(1)), "rows")

section("explain")
log.explain(True)

section("view")
given = ", ".join(f"`{name}` '{value}'" for name, value in secrets.items())
options = f"path '{root}', subscribe 't', {given}"
spark.sql(f"CREATE TEMPORARY VIEW v USING spark_log OPTIONS ({options})")

section("bad record")
bad = spark.sql("SELECT 'a' AS value, 7 AS partition")
failing(lambda: bad.write.format("spark_log").mode("append").option("topic", "t").save(root))

section("bad option")
failing(lambda: reader.option("startingOffset", "earliest").load(root))

section("mode")
failing(lambda: df.write.format("spark_log").option("topic", "t").save(root))

section("ignored")
others = {"truncate": "false", "inferSchema": "true"}
df.limit(5).write.format("spark_log").mode("append").options(**others, topic="u").save(root)
say(spark.read.format("spark_log").options(**others, subscribe="t").load(root).count())
stream = spark.readStream.format("spark_log").options(
    **others, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="150001"
)
query = (
    stream.load(root)
    .writeStream.format("spark_log")
    .options(encoding="x", subscribe="t", topic="u", checkpointLocation=f"{events}/checkpoint")
    .trigger(availableNow=True)
    .start(root)
)
query.awaitTermination()
say(len(query.recentProgress), "batches")

section("table")
failing(lambda: spark.sql(f"CREATE TABLE x USING spark_log OPTIONS (path '{root}', subscribe 't')"))
failing(lambda: spark.sql("CREATE TABLE x USING spark_log OPTIONS (subscribe 't')"))
spark.stop()

section("shown")
spark = session(spark_redaction_regex="(?i)secret|password", spark_eventLog_enabled="false")
reader = spark.read.format("spark_log").option("subscribe", "t").options(**secrets)
say(reader.load(root).count())
spark.stop()
