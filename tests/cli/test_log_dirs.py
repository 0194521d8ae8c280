"""``spark-log log-dirs``: where partitions lie, and how large they are."""

import pytest

from spark_log import Admin
from tests.cli.support import append, segment_files


@pytest.fixture(autouse=True)
def records(root):
    append(root, "flights", b"one", b"two", partition=1)
    append(root, "weather", b"rain")


def test_text_has_a_row_for_each_partition_and_a_total(shell, root):
    outcome = shell("log-dirs")
    assert (outcome.status, outcome.err) == (0, "")
    (flights,), (weather,) = segment_files(root, "flights", 1), segment_files(root, "weather")
    sizes = [0, flights.stat().st_size, weather.stat().st_size]
    first, *table, total = outcome.lines
    assert first == f"Broker 0: {root}"
    assert [line.split() for line in table] == [
        ["TOPIC", "PARTITION", "BYTES", "SEGMENTS", "START", "END", "LAG", "PATH"],
        ["flights", "0", "0", "0", "0", "0", "0", str(flights.parent.with_name("flights-0"))],
        ["flights", "1", str(sizes[1]), "1", "0", "2", "0", str(flights.parent)],
        ["weather", "0", str(sizes[2]), "1", "0", "1", "0", str(weather.parent)],
    ]
    assert total == f"Total: partitions 3, segments 2, bytes {sum(sizes)}"


def test_json_says_the_same(shell, root):
    (weather,) = segment_files(root, "weather")
    (flights,) = segment_files(root, "flights", 1)
    (log_dir,) = shell("log-dirs", "--json").document["log_dirs"]
    assert (log_dir["broker"], log_dir["log_dir"]) == (0, str(root))
    assert log_dir["totals"] == {
        "partitions": 3,
        "segments": 2,
        "size_bytes": weather.stat().st_size + flights.stat().st_size,
    }
    assert log_dir["partitions"][-1] == {
        "topic": "weather",
        "partition": 0,
        "size_bytes": weather.stat().st_size,
        "offset_lag": 0,
        "is_future": False,
        "segments": 1,
        "log_start_offset": 0,
        "log_end_offset": 1,
        "path": str(weather.parent),
    }


def test_log_dirs_can_be_asked_for_some_topics(shell):
    (log_dir,) = shell("log-dirs", "--topic", "flights", "--json").document["log_dirs"]
    assert {partition["topic"] for partition in log_dir["partitions"]} == {"flights"}
    assert log_dir["totals"]["partitions"] == 2


def test_an_unknown_topic_is_a_mistake(shell):
    outcome = shell("log-dirs", "--topic", "wheather")
    assert (outcome.status, outcome.out) == (2, "")
    assert "did you mean weather?" in outcome.error


def test_each_broker_has_a_table_or_an_error(shell, root, tmp_path):
    for broker_id in (1, 2):
        Admin(root).register_broker(broker_id, tmp_path / f"broker-{broker_id}")
    (tmp_path / "broker-2").rename(tmp_path / "elsewhere")
    lines = shell("log-dirs", "weather").lines
    assert [line for line in lines if line.startswith("Broker")] == [
        f"Broker 0: {root}",
        f"Broker 1: {tmp_path / 'broker-1'}",
        f"Broker 2: {tmp_path / 'broker-2'}",
    ]
    assert lines[-1].startswith(f"Error: the root {tmp_path / 'broker-2'} of broker 2 cannot be")
    documents = shell("log-dirs", "weather", "--json").document["log_dirs"]
    assert [document["error"] is None for document in documents] == [True, True, False]
