"""``consumer-perf``: Kafka's flags and lines."""

import re

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from tests.consumer.support import append, log_of
from tests.transactions import TransactionWriter

ENDS_SOON = ("--timeout", "50")  # where fewer records come than are asked for
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
NUMBER = r"\d+\.\d{4}"


@pytest.fixture
def read(shell, root):
    Admin(root).create_topics([NewTopic("t", 2)])
    for number in range(2):
        values = [b"x" * 100] * 500
        append(root, values, to=TopicPartition("t", number), keys=[b"12345678"] * 500)

    def read(*argv):
        return shell("consumer-perf", "--topic", "t", *argv)

    return read


def test_prints_kafkas_header_and_line(read):
    outcome = read("--messages", "1000")
    assert outcome.status == 0
    header, line = outcome.lines
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    pattern = f"{TIME}, {TIME}, 0.1030, {NUMBER}, 1000, {NUMBER}, \\d+, \\d+, {NUMBER}, {NUMBER}"
    assert re.fullmatch(pattern, line)


def test_detailed_stats_are_a_line_for_each_interval(read):
    outcome = read("--messages", "1000", "--show-detailed-stats", "--reporting-interval", "1")
    header, *lines = outcome.lines
    assert header.startswith("time, threadId, data.consumed.in.MB")
    assert lines
    pattern = f"{TIME}, 0, {NUMBER}, {NUMBER}, \\d+, {NUMBER}, \\d+, -?\\d+, {NUMBER}, {NUMBER}"
    for line in lines:
        assert re.fullmatch(pattern, line)


@pytest.mark.parametrize("extra", [[], ["--table"]])
def test_results_can_be_printed_as_json(read, extra):
    document = read("--messages", "1000", "--json", "--print-metrics", *extra).document
    assert document["data.consumed.in.nMsg"] == 1000
    assert document["data.consumed.in.MB"] == pytest.approx(108_000 / 1_048_576)
    fetched = document["metrics"]["consumer-fetch-manager-metrics"]
    assert fetched["records-consumed-total"] == 1000


def test_says_when_there_were_fewer(read):
    outcome = read("--messages", "5000", "--hide-header", *ENDS_SOON)
    assert outcome.status == 0
    assert len(outcome.lines) == 1
    assert "timeout (50 ms) exceeded" in outcome.err


def test_a_group_goes_on_where_it_was_and_from_latest_reads_nothing(read):
    assert read("--messages", "1000", "--group", "g", "--json").document["nMsg.sec"] > 0
    again = read("--messages", "1", "--group", "g", "--json", *ENDS_SOON).document
    assert again["data.consumed.in.nMsg"] == 0
    latest = read("--messages", "1", "--from-latest", "--json", *ENDS_SOON).document
    assert latest["data.consumed.in.nMsg"] == 0


def test_shows_times_as_it_is_told(read):
    line = read("--messages", "1000", "--hide-header", "--date-format", "HH:mm").lines[0]
    assert re.match(r"\d\d:\d\d, \d\d:\d\d, ", line)
    outcome = read("--messages", "1", "--date-format", "yyyy-QQ")
    assert outcome.status == 2
    assert "'QQ' is unknown" in outcome.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--messages", "0"], "messages"),
        (["--messages", "1", "--consumer-props", "max.poll.record=5"], "max.poll.records"),
        (["--messages", "1", "--consumer-props", "nonsense"], "KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line(read, argv, said):
    outcome = read(*argv)
    assert outcome.status == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_topic_that_is_not_there_is_not_waited_for(shell, root):
    Admin(root).create_topics([NewTopic("t")])
    outcome = shell("consumer-perf", "--topic", "tt", "--messages", "1")
    assert outcome.status == 2
    assert "did you mean t?" in outcome.err


@pytest.mark.parametrize("extra", [[], ["--table"]])
def test_counts_committed_records_alone_if_asked_to(shell, root, extra):
    writer = TransactionWriter(log_of(root, TopicPartition("weather", 0)))
    writer.send(b"rain", b"sun")
    writer.commit()
    writer.send(b"snow")
    writer.abort()
    argv = ["consumer-perf", "--topic", "weather", "--messages", "9", "--json", *extra]
    argv += ["--timeout", "1000"]  # the records have to arrive within it, on any machine
    committed = ["--consumer-props", "isolation.level=read_committed"]
    assert shell(*argv, *committed).document["data.consumed.in.nMsg"] == 2
    assert shell(*argv).document["data.consumed.in.nMsg"] == 3
