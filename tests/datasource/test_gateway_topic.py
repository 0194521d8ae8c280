"""Spark reads what Kafka's clients have produced through a gateway, and the other way round."""

import pytest
from pyspark.sql import SparkSession

from spark_log import Admin, NewTopic
from tests.gateway.data_client import TOPIC, client_batch, fetch, produce, produce_fields, rows_of
from tests.gateway.support import running_gateway

pytestmark = pytest.mark.spark


def test_both_have_the_records_of_both(spark: SparkSession, tmp_path):
    root = str(tmp_path / "root")
    with running_gateway(root) as gateway, gateway.client() as client:
        Admin(root).create_topics([NewTopic(TOPIC)])
        produce(client, client_batch(0, 2))
        for producer_id in (7, 8):  # one append of two producers, if they meet
            batch = client_batch(2, 2, producer_id=producer_id, producer_epoch=0, base_sequence=0)
            client.send("Produce", 9, **produce_fields(batch))
        client.receive()
        client.receive()
        written = spark.createDataFrame([("spark:0",)], "value string")
        written.write.format("spark_log").option("topic", TOPIC).mode("append").save(root)
        read = spark.read.format("spark_log").option("subscribe", TOPIC).load(root)
        rows = read.selectExpr("offset", "cast(value as string) value").orderBy("offset").collect()
        of_spark = [(row.offset, row.value) for row in rows]
        of_kafka, offset = [], 0
        while offset < len(of_spark):
            of_kafka += rows_of(fetch(client, offset))
            offset = of_kafka[-1][0] + 1
    assert of_kafka == of_spark
    assert [value for _, value in of_spark] == [
        *("record:0", "record:1", "record:2", "record:3", "record:2", "record:3"),
        "spark:0",
    ]
