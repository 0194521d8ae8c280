"""``notebooks/stream_and_table.ipynb`` runs, and what it prints and draws is what the topic has."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes

from spark_log import Admin, NewTopic, Producer
from tests.docs.blocks import cells
from tests.docs.notebooks import run_notebook

DAYS = 59
FLIGHTS_A_DAY = 6


def flight(number):
    """A flight of the day ``number // FLIGHTS_A_DAY`` of 2013, from 0 to 99 minutes late."""
    time = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(hours=number * 24 // FLIGHTS_A_DAY)
    delay = "null" if number % 50 == 0 else f"{number % 100}.0"
    value = f'{{"carrier": "UA", "origin": "JFK", "dep_delay": {delay}, "hour": {time.hour}}}'
    return b"UA%d" % (number % 7), value.encode(), time


@pytest.mark.long
def test_stream_table_and_both_as_one(tmp_path, monkeypatch, capsys):
    root = str(tmp_path / "log")
    topic = NewTopic("flights", num_partitions=2, topic_configs={"retention.ms": "-1"})
    Admin(root).create_topics([topic, NewTopic("departures")])  # the second of an earlier run
    flights = [flight(number) for number in range((DAYS + 2) * FLIGHTS_A_DAY)]
    keys, values, times = zip(*flights, strict=True)
    with Producer(root) as producer:
        rows = {
            "key": keys,
            "value": values,
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        }
        producer.send_table("flights", pa.table(rows)).result()
    monkeypatch.setenv("SPARK_LOG_ROOT", root)

    names = run_notebook(cells("notebooks/stream_and_table.ipynb"))

    january, both = 31 * FLIGHTS_A_DAY, DAYS * FLIGHTS_A_DAY
    late = sum(n % 100 > 60 and n % 50 != 0 for n in range(january))
    printed = capsys.readouterr().out
    assert f"{january} flights in the stream" in printed
    assert f"version 1: {late} flights left more than an hour late" in printed
    assert f"stream {both}, table {january}, both as one {both} flights" in printed
    assert f"version 1: {january} flights, version 2: {both}" in printed
    assert printed.count("(100.0%) are in Parquet files") == 4
    axes = names["axes"]
    assert isinstance(axes, Axes)
    drawn = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()}
    assert len(drawn["table"]) == 31
    assert len(drawn["table and log as one"]) == DAYS
    assert drawn["table and log as one"][:31] == drawn["table"]
    assert Admin(root).list_topics() == ["departures", "flights"]
