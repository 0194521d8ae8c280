"""``format("spark_log")`` with the rights of a reader and of a writer, on a real S3 server."""

import contextlib
import io

import pytest

from spark_log import Admin, NewTopic
from spark_log.testing.spark import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def with_rights(s3_root):
    """Sets the root and the storage options of a role on a reader or a writer of Spark."""

    def set_options(target, role):
        options = {f"storage.{key}": value for key, value in s3_root.roles[role].items()}
        return target.format("spark_log").options(**options, path=s3_root.url)

    return set_options


def rows(spark, count):
    return spark.range(count).selectExpr("CAST(id AS STRING) AS value")


def test_a_reader_reads_and_a_writer_writes(spark, s3_root, with_rights, tmp_path):
    read = with_rights(spark.read, "reader").option("subscribe", "t").load()
    assert read.count() == 3
    for target in (read, rows(spark, 5)):
        with contextlib.redirect_stdout(io.StringIO()) as plan:
            target.explain(extended=True)
        assert s3_root.roles["reader"]["secret"] not in plan.getvalue()

    # A stream keeps its offsets in its checkpoint, so a reader has all that it takes.
    stream = with_rights(spark.readStream, "reader").option("subscribe", "t")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "copy"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "copy")).count() == 3

    before = s3_root.files()
    for given in ({"topic": "t"}, {"topic": "t", "transactional": "true"}):
        to_log = with_rights(rows(spark, 4).write, "reader").mode("append").options(**given)
        with pytest.raises(Exception, match="403 AccessDenied: the credentials do not permit"):
            to_log.save()
    assert {path for path in s3_root.files() if not path.endswith(".tmp")} == set(before)

    with_rights(rows(spark, 4).write, "writer").mode("append").option("topic", "t").save()
    assert with_rights(spark.read, "reader").option("subscribe", "t").load().count() == 7
    with Admin(s3_root.url, storage_options=s3_root.roles["admin"]) as admin:
        admin.create_topics([NewTopic("u")])
    streamed = (
        with_rights(spark.readStream, "reader")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream
    )
    query = (
        with_rights(streamed, "writer")
        .option("topic", "u")
        .option("checkpointLocation", str(tmp_path / "checkpoint of u"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert with_rights(spark.read, "reader").option("subscribe", "u").load().count() == 7
