"""``format("spark_log")`` with a root on an object store."""

import json

import pytest

from spark_log import Admin, NewTopic

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("form", ["flat", "nested"])
def test_what_is_written_is_read(spark, s3_server, form):
    root = f"{s3_server.new_bucket()}/root"
    options = s3_server.storage_options
    Admin(root, storage_options=options).create_topics([NewTopic("t", 2)])
    if form == "nested":  # the format of s3fs
        client = {"endpoint_url": options.pop("endpoint_url"), "region_name": options.pop("region")}
        options["client_kwargs"] = json.dumps(client)
    options = {f"storage.{key}": value for key, value in options.items()}

    rows = spark.range(1_000).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value"
    )
    to_log = rows.write.format("spark_log").mode("append").option("topic", "t")
    to_log.options(**options).save(root)
    read = spark.read.format("spark_log").option("subscribe", "t").options(**options).load(root)

    assert read.count() == 1_000
    found = (
        read.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
        .agg({"value": "sum"})
        .collect()
    )
    assert found[0][0] == 999_000
