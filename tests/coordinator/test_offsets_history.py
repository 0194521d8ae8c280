"""What docs and notebook make of the table's history is run here."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import spark_log
from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.coordinator import OffsetsTable
from tests.record.samples import record_batch, row

PROJECT = Path(spark_log.__file__).parent.parent
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
    drawn = []
    axes = SimpleNamespace(
        step=lambda times, behind, **options: drawn.append((options["label"], behind.tolist())),
        set_ylabel=str, set_title=str, legend=lambda **options: None,
    )  # fmt: skip
    figure = SimpleNamespace(autofmt_xdate=lambda: None)
    pyplot = ModuleType("matplotlib.pyplot")
    pyplot.subplots = lambda **options: (figure, axes)
    pyplot.show = lambda: None
    matplotlib = ModuleType("matplotlib")
    matplotlib.pyplot = pyplot
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setenv("SPARK_LOG_ROOT", history.root)
    monkeypatch.setenv("SPARK_LOG_GROUP", "g")
    notebook = json.loads((PROJECT / "notebooks/group_lag.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert drawn == [("t-0", [2, 0])]


@pytest.mark.spark
def test_the_documented_queries_run(history, spark):
    text = (PROJECT / "docs/offsets-table.md").read_text()
    latest, view, lag = [
        query.replace("<root>", history.root)
        for query in re.findall(r"```sql\n(.*?)```", text, re.S)
    ]
    assert [tuple(each) for each in spark.sql(latest).collect()] == [("t", 0, 8)]
    spark.sql(view)
    (position,) = spark.sql("SELECT `group`, offset FROM group_positions").collect()
    assert tuple(position) == ("g", 8)
    topic = spark.read.format("spark_log").option("subscribe", "t").load(history.root)
    topic.createOrReplaceTempView("topic")
    assert [each.lag for each in spark.sql(lag).collect()] == [2, 0]
