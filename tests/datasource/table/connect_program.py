"""A client of Spark Connect that compares `read_table` with `scan`: ``connect_program.py ROOT``."""

import sys

from pyspark.sql import SparkSession

from spark_log import read_table, scan

ORDER = [("partition", "ascending"), ("offset", "ascending")]


def main() -> None:
    """Print the number of rows; fail if the rows differ."""
    (root,) = sys.argv[1:]
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.getOrCreate()
    frame = read_table(spark, root, "t")
    expected = scan(root, "t", columns=frame.columns).read_all().sort_by(ORDER)
    found = frame.toArrow().cast(expected.schema).sort_by(ORDER)
    assert found.equals(expected)
    assert frame.where("partition = 1").count() == expected.num_rows // 2
    sys.stdout.write(f"{found.num_rows}\n")
    spark.stop()


if __name__ == "__main__":
    main()
