"""A Spark of its own, with Hadoop's S3 client, that compares `read_table` with `scan`.

``s3a_program.py ROOT``; the storage options are JSON on standard input, since they have secrets.
"""

import json
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from spark_log import read_table, scan

ORDER = [("partition", "ascending"), ("offset", "ascending")]


def main() -> None:
    """Print the number of rows; fail if the rows differ."""
    (root,) = sys.argv[1:]
    options = json.load(sys.stdin)
    settings = {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = read_table(spark, root, "t", storage_options=options)
    expected = scan(root, "t", storage_options=options, columns=frame.columns).read_all()
    expected = expected.sort_by(ORDER)
    found = frame.toArrow().cast(expected.schema).sort_by(ORDER)
    assert found.equals(expected)
    assert frame.where("partition = 1").count() == expected.num_rows // 2
    plan = frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001
    assert "s3a://" in plan
    assert options["secret"] not in plan
    assert spark.conf.get("fs.s3a.secret.key", None) is None, "options stay with the read"
    sys.stdout.write(f"{found.num_rows}\n")
    spark.stop()


def hadoop_version() -> str:
    """Return the version of Spark's own Hadoop, which the S3 client has to have."""
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


if __name__ == "__main__":
    main()
