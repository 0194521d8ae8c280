"""``spark-log console-consumer``: records of a topic on stdout."""

import importlib
import signal
from functools import partial

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.cluster.cluster import open_cluster
from tests.cli.support import (
    SteppingClock,
    append,
    append_batches,
    environment,
    flip,
    partition_log,
    segment_files,
    spark_log_process,
)
from tests.metadata.replicas import append as append_to
from tests.metadata.replicas import leave, log_of, replica_of, replicated_cluster, state
from tests.record.samples import START_US, numbered, record_batch, row
from tests.transactions import TransactionWriter

MINUTE_US = 60_000_000


@pytest.fixture
def clock(monkeypatch):
    """The clock of the commands of this test: nobody really sleeps."""
    clock = SteppingClock()
    monkeypatch.setattr(
        "spark_log.cli.options.root.open_cluster", partial(open_cluster, clock=clock)
    )
    return clock


def processed(count):
    return f"Processed a total of {count} messages\n"


class TestStart:
    @pytest.fixture(autouse=True)
    def records(self, root, clock):
        append(root, "flights", b"a0", b"a1", b"a2", partition=0)
        append(root, "flights", b"b0", b"b1", partition=1)

    def test_is_the_end_by_default_and_what_comes_is_followed(self, shell, root, clock):
        clock.steps += [
            lambda: append(root, "flights", b"a3", partition=0),
            lambda: append(root, "flights", b"b2", partition=1),
        ]
        outcome = shell("console-consumer", "flights", "--timeout-ms", "1000")
        assert (outcome.status, outcome.lines, outcome.err) == (0, ["a3", "b2"], processed(2))

    def test_can_be_the_beginning(self, shell):
        outcome = shell("console-consumer", "flights", "--from-beginning", "--timeout-ms", "0")
        assert (outcome.status, outcome.err) == (0, processed(5))
        assert outcome.lines == ["a0", "a1", "a2", "b0", "b1"]

    @pytest.mark.parametrize(
        ("offset", "values"),
        [("earliest", ["b0", "b1"]), ("0", ["b0", "b1"]), ("1", ["b1"]), ("2", []), ("latest", [])],
    )
    def test_can_be_an_offset_of_a_partition(self, shell, offset, values):
        argv = ["--partition", "1", "--offset", offset, "--timeout-ms", "0"]
        outcome = shell("console-consumer", "flights", *argv)
        assert (outcome.status, outcome.lines) == (0, values)
        assert outcome.err == processed(len(values))

    def test_can_be_an_offset_alone_where_there_is_but_one_partition(self, shell, root):
        append(root, "weather", b"rain", b"sun")
        outcome = shell("console-consumer", "weather", "--offset", "1", "--timeout-ms", "0")
        assert outcome.lines == ["sun"]

    @pytest.mark.parametrize("argv", [["--offset", "-1"], ["--tail", "1"]])
    def test_can_be_so_many_offsets_before_the_end_of_each_partition(self, shell, argv):
        outcome = shell("console-consumer", "flights", *argv, "--timeout-ms", "0")
        assert outcome.lines == ["a2", "b1"]

    def test_before_the_end_is_never_before_the_log_starts(self, shell, root):
        Admin(root).delete_records({TopicPartition("flights", 0): 2})
        outcome = shell("console-consumer", "flights", "--tail", "100", "--timeout-ms", "0")
        assert outcome.lines == ["a2", "b0", "b1"]

    def test_can_be_an_end_of_all_partitions(self, shell):
        argv = ["--offset", "earliest", "--timeout-ms", "0"]
        assert shell("console-consumer", "flights", *argv).err == processed(5)

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["fligths"], "there is no topic 'fligths'; did you mean flights?"),
            (["flights", "--partition", "2"], "topic 'flights' has no partition 2"),
            (["flights", "--offset", "1"], "needs --partition"),
            (["flights", "--partition", "1", "--offset", "3"], "the log holds 0 to 1"),
            (["flights", "--partition", "1", "--offset", "-0"], "'-0' is not an offset"),
            (["flights", "--tail", "1", "--offset", "1"], "exclude each other"),
            (["flights", "--tail", "1", "--from-beginning"], "exclude each other"),
            (["flights", "--group", "g", "--tail", "1"], "--tail and --group exclude each other"),
            (["flights", "--include", "fl.*"], "TOPIC and --include exclude each other"),
            (["--include", "fl(.*"], "is not a regular expression"),
            (["flights", "--consumer-property", "client.id=a"], "requires --group or --include"),
            (["flights", "--value-deserializer", "xml"], "expected string, json, hex or avro"),
            (["flights", "--value-deserializer", "avro"], "avro requires --avro-schema"),
            (["flights", "--avro-schema", "x"], "requires --key-deserializer avro or"),
            ([], "which topic? Give TOPIC or --topic"),
            (["flights", "--topic", "weather"], "give one of them"),
            (["flights", "--partition", "1", "--offset", "newest"], "earliest or latest"),
            (["flights", "--from-beginning", "--offset", "latest"], "exclude each other"),
            (["flights", "--from-beginning", "--from-time", "0"], "exclude each other"),
            (["flights", "--offset", "latest", "--from-time", "0"], "exclude each other"),
            (["flights", "--from-time", "noon"], "'noon', expected ISO 8601"),
            (["flights", "--from-time", "2014-01-01", "--to-time", "2013-01-01"], "is not before"),
            (["flights", "-f", "%x"], "--format has the unknown token '%x'; it takes %s value"),
            (["flights", "-f", "%s", "--json"], "--format and --output json exclude each other"),
            (["flights", "-f", "%s", "--print-key"], "--format and --print-key exclude each other"),
            (["flights", "-f", "%s", "--property", "a=b"], "--format and --property exclude"),
            (["flights", "--max-messages", "0"], "Invalid value for '--max-messages'"),
            (["flights", "--property", "print.keys=true"], "did you mean 'print.key'?"),
        ],
        ids=lambda value: "".join(value) if isinstance(value, list) else "",
    )
    def test_mistakes_are_one_line(self, shell, argv, message):
        outcome = shell("console-consumer", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error


class TestTopic:
    @pytest.mark.parametrize("again", [False, True])
    def test_that_is_deleted_while_it_is_read_is_told(self, shell, root, clock, again):
        append(root, "weather", b"rain")

        def delete():
            Admin(root).delete_topics(["weather"])
            if again:
                Admin(root).create_topics([NewTopic("weather")])

        clock.steps += [delete]
        outcome = shell("console-consumer", "weather", "--from-beginning")
        assert (outcome.status, outcome.lines) == (2, ["rain"])
        assert "topic 'weather' was deleted while it was read" in outcome.error
        assert ("created again" in outcome.error) == again

    def test_that_was_deleted_is_not_to_be_created(self, shell, root):
        Admin(root).delete_topics(["weather"])
        outcome = shell("console-consumer", "weather")
        assert outcome.error == "there is no topic 'weather'; existing topics: flights"


class TestMaxMessages:
    @pytest.mark.parametrize("count", [1, 3, 4, 7, 10])
    def test_are_exactly_so_many(self, shell, root, clock, count):
        rows = [row(b"%d" % number) for number in range(10)]
        append_batches(root, "weather", record_batch(rows[:4]), record_batch(rows[4:]))
        argv = ["--from-beginning", "--max-messages", count]
        outcome = shell("console-consumer", "weather", *argv)
        assert (outcome.status, outcome.err) == (0, processed(count))
        assert outcome.lines == [str(number) for number in range(count)]
        assert clock.sleeps_ms == []

    def test_that_are_not_there_yet_are_waited_for(self, shell, root, clock):
        clock.steps += [lambda: append(root, "weather", b"rain", b"sun", b"snow")]
        outcome = shell("console-consumer", "weather", "--max-messages", "2")
        assert outcome.lines == ["rain", "sun"]


class TestTimeWindow:
    """Records lie a minute apart, from START_US on, out of order: 0 3 1 4 | 2 5 and, in the other
    partition, 6 1."""

    @pytest.fixture(autouse=True)
    def records(self, root):
        def rows(*minutes):
            times = [(minute, START_US + minute * MINUTE_US) for minute in minutes]
            return record_batch([row(b"%d" % minute, timestamp=time) for minute, time in times])

        append_batches(root, "flights", rows(0, 3), rows(1, 4))
        append_batches(root, "flights", rows(2, 5))
        append_batches(root, "flights", rows(6, 1), partition=1)

    def time(self, minutes, offset_us=0):
        return (START_US + offset_us) // 1000 + minutes * 60_000

    @pytest.mark.parametrize(
        ("start", "end", "values"),
        [
            (1, 4, "3 1 2 1"),
            (3, None, "3 4 5 6"),
            (None, 2, "0 1 1"),
            (2, 3, "2"),
            (0, 7, "0 3 1 4 2 5 6 1"),
            (7, None, ""),
            (None, 0, ""),
        ],
    )
    def test_is_exact_where_timestamps_are_out_of_order(self, shell, clock, start, end, values):
        argv = [] if start is None else ["--from-time", self.time(start)]
        argv += [] if end is None else ["--to-time", self.time(end)]
        outcome = shell("console-consumer", "flights", *argv)
        assert (outcome.status, outcome.lines) == (0, values.split())
        assert outcome.err == processed(len(values.split()))
        assert clock.sleeps_ms == []

    def test_ends_where_the_log_ended_when_it_began(self, shell, root, clock, monkeypatch):
        first = PartitionLogThatGrows(root)
        # The package exports the command under the name of its module.
        module = importlib.import_module("spark_log.cli.commands.console_consumer")
        monkeypatch.setattr(module, "read_partitions", first.read)
        outcome = shell("console-consumer", "flights", "--from-time", self.time(5))
        assert outcome.lines == ["5", "6"]
        assert first.has_grown

    def test_leaves_offsets_as_they_are(self, shell):
        argv = ["--from-time", self.time(1), "--to-time", self.time(4), "--print-offset"]
        outcome = shell("console-consumer", "flights", "--partition", "0", *argv)
        assert outcome.lines == ["Offset:1\t3", "Offset:2\t1", "Offset:4\t2"]

    def test_takes_iso_8601(self, shell):
        # START_US is 2023-11-14T22:13:20Z.
        argv = ["--from-time", "2023-11-14T22:14:20", "--to-time", "2023-11-14T23:15:20+01:00"]
        outcome = shell("console-consumer", "flights", *argv)
        assert outcome.lines == ["1", "1"]

    def test_counts_only_what_it_shows(self, shell):
        argv = ["--from-time", self.time(3), "--max-messages", "2"]
        assert shell("console-consumer", "flights", *argv).lines == ["3", "4"]

    def test_goes_with_a_start_by_offset(self, shell):
        argv = ["--partition", "0", "--offset", "2", "--to-time", self.time(3)]
        assert shell("console-consumer", "flights", *argv).lines == ["1", "2"]


class PartitionLogThatGrows:
    """Appends to a topic between the moment its end is looked up and the moment it is read."""

    def __init__(self, root):
        self.has_grown = False
        self._root = root

    def read(self, *args, **options):
        from spark_log.cli.records.partition_reader import read_partitions

        append(self._root, "flights", b"too late", timestamp=START_US + 9 * MINUTE_US)
        self.has_grown = True
        return read_partitions(*args, **options)


class TestText:
    def test_has_the_columns_that_were_asked_for(self, shell, root):
        append(root, "weather", b"rain", key=b"JFK", headers=[("unit", b"mm")])
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "1"]
        flags = ["--print-key", "--print-timestamp", "--print-partition", "--print-offset"]
        outcome = shell(*argv, *flags, "--print-headers", "--key-separator", "|")
        assert outcome.lines == [
            f"CreateTime:{START_US // 1000}|Partition:0|Offset:0|unit:mm|JFK|rain"
        ]

    def test_takes_kafkas_properties_over_the_flags(self, shell, root):
        append(root, "weather", b"rain", key=b"JFK")
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "1"]
        properties = ["--property", "print.key=true", "--property", "key.separator==>"]
        assert shell(*argv, *properties, "--key-separator", "|").lines == ["JFK=>rain"]

    def test_is_utf_8_with_replacement(self, shell, root):
        append(root, "weather", "grün".encode(), b"\xff")
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "2"]
        assert shell(*argv).lines == ["grün", "\ufffd"]

    @pytest.mark.parametrize(
        ("deserializer", "shown"),
        [("string", '{"a": [1, "ü"]}'), ("json", '{"a": [1, "ü"]}'), ("hex", "7b226122")],
    )
    def test_shows_values_as_the_deserializer_makes_them(self, shell, root, deserializer, shown):
        append(root, "weather", '{"a": [1, "ü"]}'.encode(), None)
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "2"]
        for option in (
            ["--value-deserializer", deserializer],
            ["--property", f"value.deserializer={deserializer}"],
        ):
            value, null = shell(*argv, *option).lines
            assert value.startswith(shown)
            assert null == "null"

    def test_of_what_is_not_json_names_its_offset(self, shell, root):
        append(root, "weather", b"1", b"rain")
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "2"]
        outcome = shell(*argv, "--value-deserializer", "json")
        assert outcome.status == 2
        assert "the value at partition 0, offset 1 is not JSON" in outcome.error


class TestFormatString:
    ARGV = ("console-consumer", "weather", "--from-beginning", "--max-messages", "2")

    def test_is_all_that_is_printed_of_a_record(self, shell, root):
        append(root, "weather", b"rain", None, key=b"JFK", headers=[("unit", b"mm")])
        outcome = shell(*self.ARGV, "--format", r"%t/%p@%o %k=%s(%S) %h %T\n")
        time_ms = START_US // 1000
        assert outcome.lines == [
            f"weather/0@0 JFK=rain(4) unit=mm {time_ms}",
            f"weather/0@1 JFK=(-1) unit=mm {time_ms}",
        ]
        assert outcome.err == processed(2)

    def test_shows_keys_and_values_as_the_deserializers_make_them(self, shell, root):
        append(root, "weather", b'{"mm":  3}', b"[]", key=b"\xff")
        options = ["--key-deserializer", "hex", "--value-deserializer", "json"]
        assert shell(*self.ARGV, "-f", r"%k %s\n", *options).lines == ['ff {"mm": 3}', "ff []"]

    def test_is_the_same_for_a_group(self, shell, root):
        append(root, "weather", b"rain", b"sun")
        assert shell(*self.ARGV, "--group", "g", "-f", "%t %s;").out == "weather rain;weather sun;"


class TestGroup:
    @pytest.fixture(autouse=True)
    def records(self, root):
        append(root, "flights", b"a0", b"a1", b"a2", partition=0)

    def read(self, shell, *argv):
        return shell("console-consumer", "flights", "--group", "g", *argv)

    def test_goes_on_behind_what_it_has_printed(self, shell, root):
        outcome = self.read(shell, "--from-beginning", "--max-messages", "2")
        assert (outcome.status, outcome.lines, outcome.err) == (0, ["a0", "a1"], processed(2))
        append(root, "flights", b"a3", partition=0)
        assert self.read(shell, "--max-messages", "2").lines == ["a2", "a3"]
        (lag, _) = shell("groups", "describe", "g", "--json").document["groups"][0]["partitions"]
        assert (lag["current_offset"], lag["lag"]) == (4, 0)

    def test_leaves_its_group_on_sigterm(self, root, folder):
        argv = ["console-consumer", "flights", "--group", "g", "--from-beginning"]
        environ = environment(SPARK_LOG_ROOT=str(root))
        with spark_log_process(*argv, cwd=folder, env=environ) as process:
            assert process.stdout.readline() == "a0\n"
            assert Admin(root).group_members("g")
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
            assert "Traceback" not in process.stderr.read()
        assert Admin(root).group_members("g") == ()

    def test_is_shown_in_json_as_without_one(self, shell, root):
        append(root, "weather", b"rain", b"\xff", key=b"JFK", headers=[("a", b"1")])
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "2", "--json"]
        assert shell(*argv, "--group", "g").documents == shell(*argv).documents

    def test_takes_consumer_properties(self, shell):
        outcome = self.read(shell, "--consumer-property", "max.pol.records=1")
        assert outcome.status == 2
        assert "did you mean 'max.poll.records'" in outcome.error


class TestRack:
    """``client.rack``: a replica in this rack is read, also without a group."""

    @pytest.fixture
    def damaged(self, folder, tmp_path, monkeypatch):
        """The last in-sync replica is damaged, the one in rack b is not."""
        cluster = replicated_cluster(tmp_path, racks=True, min_insync_replicas=2)
        for first in range(0, 6, 3):
            append_to(log_of(cluster), numbered(first, 3))
        path = replica_of(cluster, 2).files.url
        with open(f"{path}/{0:020d}.log", "r+b") as file:
            file.seek(600)
            file.write(bytes(200))
        monkeypatch.setenv("SPARK_LOG_ROOT", cluster.root)
        return cluster

    @pytest.mark.parametrize("end", [[], ["--to-time", "2100-01-01"], ["--group", "g"]])
    def test_is_read_first(self, shell, damaged, end):
        argv = ["t", "--consumer-property", "client.rack=rack1", "--max-messages", 6, *end]
        start = [] if "--to-time" in end else ["--from-beginning"]
        assert len(shell("console-consumer", *argv, *start).lines) == 6
        assert state(Cluster(damaged.root)).isr == (0, 1, 2)

    def test_without_it_the_last_replica_is_read(self, shell, damaged):
        argv = ["t", "--from-beginning", "--max-messages", 6]
        assert len(shell("console-consumer", *argv).lines) == 6
        assert state(Cluster(damaged.root)).isr == (0, 1)


class TestInclude:
    def test_reads_all_topics_whose_whole_name_matches(self, shell, root):
        Admin(root).create_topics([NewTopic("flights2")])
        append(root, "flights", b"a0", partition=1)
        append(root, "weather", b"rain")
        append(root, "flights2", b"no")
        argv = ["--from-beginning", "--max-messages", "2", "--json"]
        outcome = shell("console-consumer", "--include", "flights|w.*", *argv)
        found = sorted(
            (each["topic"], each["partition"], each["value"]) for each in outcome.documents
        )
        assert found == [("flights", 1, "a0"), ("weather", 0, "rain")]


class TestJson:
    def test_has_json_values_as_they_are_and_hexadecimal_keys(self, shell, root):
        append(root, "weather", b'{"mm": 3}', key=b"\x00\xff")
        argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "1", "--json"]
        options = ["--key-deserializer", "hex", "--value-deserializer", "json"]
        (found,) = shell(*argv, *options).documents
        assert (found["key"], found["value"]) == ("00ff", {"mm": 3})

    def test_is_one_object_a_line(self, shell, root):
        append(root, "weather", b"rain\nand sun", None, b"\xff", key=b"JFK", headers=[("a", b"1")])
        outcome = shell(
            "console-consumer", "weather", "--from-beginning", "--max-messages", "3", "--json"
        )
        assert outcome.err == processed(3)
        first, second, third = outcome.documents
        assert first == {
            "topic": "weather",
            "partition": 0,
            "offset": 0,
            "timestamp": "2023-11-14T22:13:20.000000Z",
            "timestamp_ms": START_US // 1000,
            "timestamp_type": "CreateTime",
            "leader_epoch": 0,
            "key": "JFK",
            "value": "rain\nand sun",
            "headers": [{"key": "a", "value": "1"}],
        }
        assert (second["offset"], second["value"]) == (1, None)
        assert (third["offset"], third["value"]) == (2, {"base64": "/w=="})

    @pytest.mark.parametrize("reader", [("--group", "g"), ()])
    def test_has_the_leader_epoch_of_each_record(self, shell, tmp_path, reader):
        cluster = replicated_cluster(tmp_path)
        append_to(log_of(cluster), numbered(0, 2))
        leave(cluster, 2)
        append_to(log_of(cluster), numbered(2, 1))
        argv = ["console-consumer", "t", "--from-beginning", "--max-messages", "3", *reader]
        found = shell(*argv, "--json", "--root", cluster.root).documents
        epochs = [(each["offset"], each["leader_epoch"]) for each in found]
        assert epochs == [(0, 0), (1, 0), (3, 1)]  # a barrier is between them


class TestDamage:
    def test_is_a_failure_that_names_file_and_position(self, shell, root):
        append(root, "weather", b"sound")
        append(root, "weather", b"damaged value")
        _, damaged = segment_files(root, "weather")
        assert b"damaged value" in damaged.read_bytes()
        flip(damaged, damaged.read_bytes().index(b"damaged value"))
        outcome = shell("console-consumer", "weather", "--from-beginning")
        assert (outcome.status, outcome.lines) == (1, ["sound"])
        assert f"{damaged.parent.name}/{damaged.name}, position " in outcome.error
        assert "checksum" in outcome.error


class TestProcess:
    def test_ctrl_c_ends_following(self, root, folder):
        append(root, "weather", b"rain")
        process = spark_log_process(
            "console-consumer", "weather", "--from-beginning", "--root", root, cwd=folder
        )
        assert process.stdout.readline() == "rain\n"
        partition_log(root, "weather").append(record_batch([row(b"sun")]))
        assert process.stdout.readline() == "sun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (130, "", processed(2))


class TestIsolationLevel:
    COMMITTED = ("--isolation-level", "read_committed")

    @pytest.fixture
    def writer(self, root):
        """Of a topic with a record, an aborted one, and one of an open transaction."""
        writer = TransactionWriter(partition_log(root, "weather"))
        append(root, "weather", b"rain")
        writer.send(b"snow")
        writer.abort()
        writer.send(b"sun")
        append(root, "weather", b"wind")
        return writer

    @pytest.mark.parametrize("more", [[], ["--group", "g"], ["--offset", "0"]])
    def test_read_committed_prints_committed_records(self, shell, writer, more):
        begin = [] if "--offset" in more else ["--from-beginning"]
        argv = ["console-consumer", "weather", *begin, *more, "--timeout-ms", "300"]
        assert shell(*argv, *self.COMMITTED).lines == ["rain"]
        writer.commit()
        left = ["sun", "wind"]
        expected = left if "--group" in more else ["rain", *left]
        assert shell(*argv, *self.COMMITTED).lines == expected

    def test_by_default_all_records_are_printed(self, shell, writer):
        argv = ["console-consumer", "weather", "--from-beginning", "--timeout-ms", "0"]
        assert shell(*argv).lines == ["rain", "snow", "sun", "wind"]
        assert shell(*argv, "--isolation-level", "read_uncommitted").lines == shell(*argv).lines

    def test_the_end_is_the_last_stable_offset(self, shell, clock, writer):
        clock.steps.append(writer.commit)
        argv = ["console-consumer", "weather", "--timeout-ms", "1000", *self.COMMITTED]
        assert shell(*argv).lines == ["sun", "wind"]
        window = ["--from-time", "1970-01-01", "--timeout-ms", "0", *self.COMMITTED]
        writer.send(b"fog")
        assert shell("console-consumer", "weather", *window).lines == ["rain", "sun", "wind"]

    def test_another_level_is_refused(self, shell, root):
        outcome = shell("console-consumer", "weather", "--isolation-level", "none")
        assert "'read_uncommitted', 'read_committed'" in outcome.error
