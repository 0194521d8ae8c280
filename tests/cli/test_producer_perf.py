"""``spark-log producer-perf``: Kafka's flags, Kafka's lines."""

import re

import pytest

from tests.producer.support import values

LAST_LINE = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, [\d.]+ ms 50th, [\d.]+ ms 95th, [\d.]+ ms 99th, [\d.]+ ms 99\.9th\."
)


def perf(shell, flags):
    return shell("producer-perf", *flags.split())


def test_sends_what_was_asked_for_and_ends_with_kafkas_line(shell, root):
    done = perf(
        shell,
        "--topic flights --num-records 500 --record-size 64 --throughput -1 "
        "--producer-props acks=all --producer-props linger.ms=0",
    )
    assert (done.status, done.err) == (0, "")
    last = LAST_LINE.fullmatch(done.lines[-1])
    assert last is not None
    assert last[1] == "500"
    sent = [value for each in values(root, "flights").values() for value in each]
    assert len(sent) == 500
    assert {len(value) for value in sent} == {64}


def test_json_has_the_same_figures_as_numbers(shell, root):
    document = perf(shell, "--topic weather --num-records 10 --payload-monotonic --json").document
    assert document["records"] == 10
    assert document["failed"] == 0
    assert document["p50_latency_ms"] <= document["p99_latency_ms"] <= document["max_latency_ms"]
    assert values(root, "weather") == {0: [b"%d" % number for number in range(10)]}


def test_payloads_are_drawn_from_a_file(shell, root, folder):
    (folder / "payloads").write_text("one;two;")
    perf(shell, "--topic weather --num-records 50 --payload-file payloads --payload-delimiter=;")
    assert {*values(root, "weather")[0]} == {b"one", b"two"}


def test_throughput_is_held_back(shell, root):
    document = perf(
        shell, "--topic weather --num-records 20 --record-size 9 --json --throughput 100"
    ).document
    assert document["records_per_sec"] < 130


def test_metrics_are_printed_at_the_end(shell, root):
    done = perf(shell, "--topic weather --num-records 7 --record-size 9 --print-metrics")
    assert re.search(r"producer-metrics:record-send-total\s+: 7\.000", done.out)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--topic weather", "exactly one of --record-size"),
        ("--topic weather --record-size 9 --payload-monotonic", "exactly one of --record-size"),
        ("--topic weathr --record-size 9", "weather"),
        ("--topic weather --record-size 9 --producer-props lingerms=1", "linger.ms"),
        ("--topic weather --record-size 9 --producer-props acks", "KEY=VALUE"),
        ("--topic weather --payload-file nowhere", "No such file"),
        ("--topic weather --record-size 0", "--record-size"),
    ],
)
def test_a_mistake_is_told_in_one_line(shell, root, flags, said):
    done = perf(shell, f"--num-records 5 {flags}")
    assert said in done.error
    assert done.status == 2
    assert values(root, "weather") == {0: []}


def test_records_that_fail_are_counted(shell, root):
    done = perf(
        shell,
        "--topic weather --num-records 3 --record-size 100 --producer-props max.request.size=10",
    )
    assert "0 records sent (3 failed)" in done.out
    assert done.err.count("a record failed") == 1
