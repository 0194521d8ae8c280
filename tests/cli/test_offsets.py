"""``spark-log offsets``: looking offsets up, by place and by time."""

import pytest

from tests.cli.support import append, partition_log
from tests.record.samples import START_US
from tests.transactions import TransactionWriter

START_MS = START_US // 1000


@pytest.fixture(autouse=True)
def records(root):
    append(root, "flights", b"first", b"second", timestamp=START_US)
    append(root, "flights", b"late", timestamp=START_US + 5_000_000)
    append(root, "flights", b"third", timestamp=START_US + 1_000_000)
    append(root, "weather", b"rain", timestamp=START_US)


def listed(shell, *argv):
    outcome = shell("offsets", "list", *argv, "--json")
    assert outcome.status == 0, outcome.err
    return [
        (each["topic"], each["partition"], each["offset"], each["timestamp_ms"])
        for each in outcome.document["offsets"]
    ]


def test_the_ends_of_all_partitions_come_by_themselves(shell):
    expected = [("flights", 0, 4, None), ("flights", 1, 0, None), ("weather", 0, 1, None)]
    assert listed(shell) == listed(shell, "--time", "-1") == expected


def test_text_is_a_row_for_each(shell):
    outcome = shell("offsets", "list", "flights", "--time", "max-timestamp")
    assert (outcome.status, outcome.err) == (0, "")
    assert [line.split() for line in outcome.lines] == [
        ["TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"],
        ["flights", "0", "2", "2023-11-14T22:13:25.000Z"],
        ["flights", "1", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("time", "offset", "timestamp_ms"),
    [
        ("earliest", 0, None),
        ("-2", 0, None),
        ("latest", 4, None),
        ("-3", 2, START_MS + 5000),
        ("2023-11-14T22:13:20.001", 2, START_MS + 5000),
        ("2023-11-14T22:13:20", 0, START_MS),
        (str(START_MS + 5001), None, None),
    ],
)
def test_a_time_is_a_word_kafkas_number_or_a_moment(shell, time, offset, timestamp_ms):
    argv = ["--topic", "flights", "--partitions", "0", "--time", time]
    assert listed(shell, *argv) == [("flights", 0, offset, timestamp_ms)]


def test_a_moment_between_two_milliseconds_leaves_out_what_was_before_it(shell, root):
    append(root, "weather", b"snow", timestamp=START_US + 999)
    assert listed(shell, "weather", "--time", "2023-11-14T22:13:20.000001")[0][2:] == (None, None)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["wether"], "did you mean weather?"),
        (["flights", "--partitions", "1,7"], "no partition 7 in flights"),
        (["flights", "--partitions", "one"], "'one' is not a list of partitions such as 0,1,2"),
        (["flights", "--time", "yesterday"], "'yesterday', expected ISO 8601"),
        (["flights", "--time", "-4"], "-4 is not a time to look up"),
    ],
)
def test_mistakes_are_one_line(shell, argv, message):
    outcome = shell("offsets", "list", *argv)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error


def test_the_end_by_isolation_level(shell, root):
    TransactionWriter(partition_log(root, "weather")).send(b"sun")
    committed = ["weather", "--isolation-level", "read_committed"]
    assert listed(shell, *committed) == [("weather", 0, 1, None)]
    assert listed(shell, "weather") == [("weather", 0, 2, None)]
