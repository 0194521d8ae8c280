"""``spark-log console-producer``: lines become records."""

import os
import pty

import pytest

from spark_log import Admin
from spark_log.types import ConfigResource
from spark_log.util.clock import SYSTEM_CLOCK
from tests.cli.support import partition_log, segment_files, spark_log_process
from tests.log.support import records_of, values


def contents(root, topic="weather", partition=0):
    """The rows of a partition, without their timestamps."""
    log = partition_log(root, topic, partition)
    rows = [dict(row) for _, row in records_of(log.scan(0))]
    for row in rows:
        del row["timestamp"]
    return [(row["key"], row["value"], row["headers"]) for row in rows]


class TestRecords:
    def test_are_lines(self, shell, root):
        outcome = shell("console-producer", "weather", stdin=b"rain\nsun\n")
        assert (outcome.status, outcome.out) == (0, "")
        assert contents(root) == [(None, b"rain", None), (None, b"sun", None)]

    def test_have_the_time_when_they_were_read(self, shell, root):
        before_us = SYSTEM_CLOCK.time_us()
        shell("console-producer", "weather", stdin=b"rain\n")
        ((_, row),) = records_of(partition_log(root, "weather").scan(0))
        assert before_us <= row["timestamp"] <= SYSTEM_CLOCK.time_us()

    @pytest.mark.parametrize(
        "argv",
        [
            ["--key-separator", ":"],
            ["--property", "parse.key=true", "--property", "key.separator=:"],
        ],
        ids=["flag", "properties"],
    )
    def test_have_keys_when_they_are_asked_for(self, shell, root, argv):
        assert shell("console-producer", "weather", *argv, stdin=b"a:1\nb:2\n").status == 0
        assert contents(root) == [(b"a", b"1", None), (b"b", b"2", None)]

    def test_have_headers_and_nulls_when_they_are_asked_for(self, shell, root):
        argv = ["--property", "parse.headers=true", "--null-marker", "NIL"]
        assert shell("console-producer", "weather", *argv, stdin=b"a:1\tNIL\n").status == 0
        assert contents(root) == [(None, None, [{"key": "a", "value": b"1"}])]

    def test_go_where_their_key_belongs_or_where_they_are_sent(self, shell, root):
        # Kafka's UtilsTest.testMurmur2: the hash of "abc" is odd, that of "21" even.
        stdin = b"abc:1\n21:2\n"
        assert shell("console-producer", "flights", "--key-separator", ":", stdin=stdin).status == 0
        assert contents(root, "flights", 0) == [(b"21", b"2", None)]
        assert contents(root, "flights", 1) == [(b"abc", b"1", None)]
        assert shell("console-producer", "flights", "--partition", "1", stdin=b"x\n").status == 0
        assert contents(root, "flights", 1)[1:] == [(None, b"x", None)]

    def test_are_compressed_when_that_is_asked_for(self, shell, root):
        line = b"x" * 100_000 + b"\n"
        sizes = {}
        for codec in ("none", "lz4", "zstd"):
            argv = ["console-producer", "weather", "--compression", codec]
            assert shell(*argv, stdin=line).status == 0
            last = partition_log(root, "weather").observe().live.segments[-1]
            sizes[codec] = last.file.size_bytes
        assert sizes["zstd"] < sizes["none"] / 10
        assert sizes["lz4"] < sizes["none"] / 10

    def test_are_appended_by_an_idempotent_producer(self, shell, root):
        shell("console-producer", "weather", stdin=b"rain\n")
        (file,) = segment_files(root, "weather")
        (batch,) = shell("dump-log", file, "--json").document["batches"]
        assert batch["producer_id"] >= 0
        assert batch["base_sequence"] == 0

    def test_larger_than_a_producers_default_are_taken_where_the_topic_takes_them(
        self, shell, root
    ):
        limit = ConfigResource("topic", "weather", {"max.message.bytes": 4_000_000})
        Admin(root).alter_configs([limit])
        line = b"x" * 3_000_000
        assert shell("console-producer", "weather", stdin=line + b"\n").status == 0
        assert contents(root) == [(None, line, None)]

    def test_are_sent_with_the_given_producer_properties(self, shell, root):
        argv = ["console-producer", "weather", "--producer-property", "acks=0"]
        outcome = shell(*argv, stdin=b"rain\n")
        assert outcome.err == "Appended 1 record to weather:\n  weather-0: 1 record\n"
        outcome = shell(*argv[:2], "--producer-property", "storage_options=x", stdin=b"rain\n")
        assert outcome.status == 2
        assert "unknown producer config" in outcome.error

    def test_of_a_large_input_become_few_segments(self, shell, root):
        stdin = b"".join(b"%d:%d\n" % (number % 97, number) for number in range(300_000))
        outcome = shell("console-producer", "flights", "--key-separator", ":", stdin=stdin)
        assert outcome.err.startswith("Appended 300,000 records to flights:\n")
        found = []
        for partition in (0, 1):
            log = partition_log(root, "flights", partition)
            assert len(log.observe().live.segments) <= 10
            found += [int(value) for _, value in values(log)]
        assert sorted(found) == list(range(300_000))

    def test_a_codec_that_arrow_lacks_gives_way(self, shell, root):
        outcome = shell("console-producer", "weather", "--compression", "snappy", stdin=b"rain\n")
        assert outcome.status == 0
        assert (
            outcome.err.count("compression.type is snappy, which Arrow files do not support") == 1
        )
        assert contents(root) == [(None, b"rain", None)]


class TestReport:
    def test_says_on_stderr_how_many_went_where(self, shell, root):
        shell("console-producer", "flights", "--partition", "1", stdin=b"one\n")
        outcome = shell("console-producer", "flights", "--partition", "1", stdin=b"two\nthree\n")
        assert outcome.out == ""
        assert outcome.err == (
            "Appended 2 records to flights:\n  flights-1: 2 records, offsets 1 to 2\n"
        )

    def test_in_json_is_on_stdout(self, shell, root):
        outcome = shell("console-producer", "weather", "--json", stdin=b"rain\nsun\n")
        assert outcome.err == ""
        assert outcome.document == {
            "topic": "weather",
            "records": 2,
            "partitions": [{"partition": 0, "records": 2, "base_offset": 0, "last_offset": 1}],
        }

    def test_of_nothing_says_so(self, shell, root):
        outcome = shell("console-producer", "weather")
        assert (outcome.status, outcome.err) == (0, "Appended 0 records to weather.\n")


class TestMistakes:
    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["wether"], "there is no topic 'wether'; did you mean weather?"),
            (["flights", "--partition", "2"], "topic 'flights' has no partition 2"),
            (["weather", "--property", "parse.keys=true"], "did you mean 'parse.key'?"),
            (["weather", "--property", "parse.key"], "--property takes KEY=VALUE"),
            (["weather", "--key-separator", ""], "property 'key.separator' is empty"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else "",
    )
    def test_are_refused_before_a_line_is_read(self, shell, root, argv, message):
        outcome = shell("console-producer", *argv, stdin=b"a line\n")
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error
        assert contents(root) == []

    def test_in_the_first_line_append_nothing(self, shell, root):
        outcome = shell("console-producer", "weather", "--key-separator", ":", stdin=b"none\na:1\n")
        assert outcome.status == 2
        assert outcome.error == "line 1: no key.separator ':' in the line 'none'"
        assert contents(root) == []

    def test_without_a_key_say_so_where_the_topic_is_compacted(self, shell, root):
        compacted = ConfigResource("topic", "weather", {"cleanup.policy": "compact"})
        Admin(root).alter_configs([compacted])
        argv = ["console-producer", "weather", "--key-separator", ":"]
        properties = ["--property", "ignore.error=true"]
        outcome = shell(*argv, *properties, stdin=b"a:1\nrain\nb:2\n")
        assert outcome.status == 2
        error = outcome.err.splitlines()[-1]
        assert "line 2: the record has no key, but the topic is compacted" in error
        assert [value for _, value, _ in contents(root)] == [b"1"]

    def test_of_a_record_that_is_too_large_name_its_line(self, shell, root):
        limit = ConfigResource("topic", "weather", {"max.message.bytes": 10})
        Admin(root).alter_configs([limit])
        outcome = shell("console-producer", "weather", stdin=b"rain\n12345678901\nsun\n")
        assert outcome.status == 2
        error = outcome.err.splitlines()[-1]
        assert "line 2: the record has 11 bytes, but max.message.bytes is 10" in error
        assert [value for _, value, _ in contents(root)] == [b"rain"]

    def test_in_a_later_line_keep_what_came_before_and_name_it(self, shell, root, monkeypatch):
        monkeypatch.setattr("spark_log.cli.format.line_source.BLOCK_BYTES", 4)
        stdin = b"a:1\nb:2\nc:3\nnone\nd:4\n"
        outcome = shell("console-producer", "weather", "--key-separator", ":", stdin=stdin)
        assert outcome.status == 2
        *report, error = outcome.err.splitlines()
        assert report == [
            "Appended 3 records to weather:",
            "  weather-0: 3 records, offsets 0 to 2",
        ]
        assert error == "spark-log: error: line 4: no key.separator ':' in the line 'none'"
        assert [value for _, value, _ in contents(root)] == [b"1", b"2", b"3"]


class TestTerminal:
    def test_a_line_is_appended_before_the_next_is_asked_for(self, root, folder):
        primary, secondary = pty.openpty()
        process = spark_log_process(
            "console-producer",
            "weather",
            "--root",
            root,
            cwd=folder,
            stdin=secondary,
            stderr=secondary,
        )
        os.close(secondary)
        shown = b""
        for number, line in enumerate([b"rain\n", b"sun\n"]):
            while shown.count(b">") == number:
                shown += os.read(primary, 1024)
            assert len(contents(root)) == number
            os.write(primary, line)
        while shown.count(b">") == 2:
            shown += os.read(primary, 1024)
        assert [value for _, value, _ in contents(root)] == [b"rain", b"sun"]
        os.write(primary, b"\x04")
        assert process.wait(timeout=60) == 0
        os.close(primary)
        assert process.stdout.read() == ""
