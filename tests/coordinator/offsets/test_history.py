"""Runs the queries of the docs and the notebook on the table's history."""

import pytest

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.coordinator import OffsetsTable
from tests.docs.blocks import blocks, cells
from tests.docs.notebooks import plotted_lag
from tests.record.samples import record_batch, row

P0 = TopicPartition("t", 0)


@pytest.fixture
def history(cluster):
    """Two records a second; the group has read 4 of 6 after 2.5 s, and all after 4 s."""
    table, clock = OffsetsTable(cluster), cluster.clock
    log = cluster.partition_log(cluster.topic("t"), 0)
    for second in range(4):
        stamps = [row(b"v", timestamp=clock.time_us() + at) for at in (0, 1000)]
        log.append(record_batch(stamps))
        clock.advance_ms(500)
        if second == 2:
            table.commit("g", {P0: OffsetAndMetadata(4)})
        clock.advance_ms(500)
    table.commit("g", {P0: OffsetAndMetadata(8)})
    return cluster


def test_the_notebook_plots_the_lag_of_each_commit(history, monkeypatch):
    monkeypatch.setenv("SPARK_LOG_ROOT", history.root)
    monkeypatch.setenv("SPARK_LOG_GROUP", "g")
    assert plotted_lag(cells("notebooks/group_lag.ipynb")) == {"t-0": [2, 0]}


@pytest.mark.long
@pytest.mark.spark
def test_the_documented_queries_run(history, spark):
    latest, view, lag = [
        query.code.replace("<root>", history.root)
        for query in blocks("docs/offsets-table.md", "sql")
    ]
    assert [tuple(each) for each in spark.sql(latest).collect()] == [("t", 0, 8)]
    spark.sql(view)
    (position,) = spark.sql("SELECT `group`, offset FROM group_positions").collect()
    assert tuple(position) == ("g", 8)
    topic = spark.read.format("spark_log").option("subscribe", "t").load(history.root)
    topic.createOrReplaceTempView("topic")
    assert [each.lag for each in spark.sql(lag).collect()] == [2, 0]
