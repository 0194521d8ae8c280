"""The options of ``format("spark_log")``."""

import warnings

import pytest

from spark_log import (
    IgnoredOptionWarning,
    InvalidOptionError,
    TopicPartition,
    UnsupportedStoreError,
)
from spark_log.datasource.options.kafka_options import warn_ignored_options
from spark_log.datasource.options.offsets import EARLIEST, LATEST, AtOffsets, AtTime
from spark_log.datasource.options.read_options import (
    READ_OPTIONS,
    SUBSCRIPTION_OPTIONS,
    parse_read_options,
)
from spark_log.datasource.options.write_options import WRITE_OPTIONS, parse_write_options

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(*, is_stream=None, **options):
    given = {"path": "/r", "subscribe": "t", **options}
    return parse_read_options(
        {name: value for name, value in given.items() if value is not None}, is_stream=is_stream
    )


def message_of(*, is_stream=None, **options):
    with pytest.raises(InvalidOptionError) as raised:
        parse(is_stream=is_stream, **options)
    return str(raised.value)


def test_a_relative_root_is_made_absolute_on_the_driver(tmp_path, monkeypatch):
    """Tasks on a cluster run in other working directories."""
    monkeypatch.chdir(tmp_path)
    for options in (
        parse_read_options({"path": "log", "subscribe": "t"}),
        parse_write_options({"path": "log"}),
    ):
        assert options.root == str(tmp_path / "log")


def test_names_are_case_insensitive_and_storage_options_keep_their_case():
    options = parse_read_options(
        {"PATH": "/r", "Subscribe": "a,b , a", "INCLUDEHEADERS": "TRUE", "storage.Key": "v"}
    )
    assert options.topics == ("a", "b")
    assert options.include_headers
    assert options.storage_options == {"Key": "v"}


def test_options_of_other_brokers_are_sorted_by_broker():
    given = {"brokers.1.storage.Key": "v", "Brokers.12.STORAGE.a.b": "w"}
    read = parse_read_options({"path": "/r", "subscribe": "t", **given})
    for options in (read, parse_write_options({"path": "/r", **given})):
        assert options.broker_options == {1: {"Key": "v"}, 12: {"a.b": "w"}}
    assert "brokers.1.key" in message_of(**{"brokers.1.key": "hunter2"})
    assert "hunter2" not in message_of(**{"brokers.1.key": "hunter2"})


@pytest.mark.parametrize("option", ["group.id", "subscribe"])
def test_text_that_cannot_be_stored_is_refused(option):
    assert r"'g\ud800'" in message_of(**{"subscribe": None, option: "g\ud800"})


def test_what_is_left_out_has_the_connectors_defaults():
    options = parse()
    assert (options.starting, options.ending) == (None, AtOffsets("endingOffsets", LATEST))
    assert options.fail_on_data_loss
    assert not options.latest_if_no_match
    assert not options.include_headers
    assert options.check_crcs
    assert options.isolation_level == "read_uncommitted"
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
    assert (options.group_id, options.ignored) == (None, ())


def test_assign_names_partitions_and_their_topics():
    options = parse(subscribe=None, assign='{"b":[2],"a":[0,1]}')
    assert options.topics == ("a", "b")
    assert options.assigned == {
        TopicPartition("a", 0),
        TopicPartition("a", 1),
        TopicPartition("b", 2),
    }


def test_a_pattern_stands_alone():
    options = parse(subscribe=None, subscribePattern=" t.* ")
    assert (options.pattern, options.topics, options.assigned) == ("t.*", (), None)


class TestSubscription:
    """A read has exactly one of the three options for topics."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"subscribe": None},
                "a read needs exactly one of the options 'subscribe', 'assign', ",
            ),
            ({"subscribe": None}, "this read has none of them"),
            ({"assign": '{"t":[0]}'}, "this read has 'subscribe' and 'assign'"),
            ({"subscribePattern": "t"}, "this read has 'subscribe' and 'subscribePattern'"),
            ({"subscribe": " , "}, "option 'subscribe' is ' , ', without a topic"),
            ({"subscribe": ""}, "without a topic"),
            ({"subscribe": None, "assign": ""}, "option 'assign' is '', expected partitions"),
            ({"subscribe": None, "assign": "{}"}, "expected partitions to read, as JSON"),
            ({"subscribe": None, "assign": "[0]"}, "expected partitions to read, as JSON"),
            ({"subscribe": None, "assign": '{"t":[-1]}'}, "expected partitions to read, as JSON"),
            ({"subscribe": None, "subscribePattern": " "}, "an empty pattern would match"),
            ({"subscribe": None, "subscribePattern": "a("}, "expected a regular expression"),
        ],
    )
    def test_else_it_is_refused(self, options, message):
        assert message in message_of(**options)


class TestWhereToBegin:
    def test_one_time_for_all_goes_before_times_by_partition_and_these_before_offsets(self):
        offsets, times = '{"t":{"0":3}}', '{"t":{"0":5000}}'
        options = {"startingOffsets": offsets}
        assert parse(**options).starting == AtOffsets("startingOffsets", {T0: 3})
        options |= {"startingOffsetsByTimestamp": times}
        assert parse(**options).starting == AtTime("startingOffsetsByTimestamp", {T0: 5000})
        options |= {"startingTimestamp": "7000"}
        assert parse(**options).starting == AtTime("startingTimestamp", 7000)

    def test_the_same_holds_for_the_end(self):
        offsets, times = '{"t":{"0":3}}', '{"t":{"0":5000}}'
        options = {"endingOffsets": offsets}
        assert parse(**options).ending == AtOffsets("endingOffsets", {T0: 3})
        options |= {"endingOffsetsByTimestamp": times}
        assert parse(**options).ending == AtTime("endingOffsetsByTimestamp", {T0: 5000})
        options |= {"endingTimestamp": "7000"}
        assert parse(**options).ending == AtTime("endingTimestamp", 7000)

    @pytest.mark.parametrize("word", ["earliest", " Earliest ", "EARLIEST"])
    def test_words_are_taken_in_any_case(self, word):
        assert parse(startingOffsets=word).starting == AtOffsets("startingOffsets", EARLIEST)

    def test_what_to_do_without_a_record_is_error_or_latest(self):
        assert parse(startingOffsetsByTimestampStrategy="LATEST").latest_if_no_match
        assert not parse(startingOffsetsByTimestampStrategy="error").latest_if_no_match
        assert "expected error or latest; did you mean 'latest'?" in message_of(
            startingOffsetsByTimestampStrategy="lates"
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"startingOffsets": "begin"}, "expected earliest, latest, or JSON such as"),
            ({"startingOffsets": '{"t":{"0":-3}}'}, "expected earliest, latest, or JSON such as"),
            ({"startingOffsets": '{"t":{"0":true}}'}, "expected earliest, latest, or JSON such as"),
            ({"startingOffsets": '{"t":{"0":1.5}}'}, "expected earliest, latest, or JSON such as"),
            ({"startingOffsetsByTimestamp": "1"}, "for every partition, as JSON such as {"),
            ({"startingOffsetsByTimestamp": '{"t":{"0":"x"}}'}, "for every partition, as JSON"),
            ({"startingTimestamp": "noon"}, "option 'startingTimestamp' is 'noon', expected mill"),
        ],
    )
    def test_anything_else_is_refused(self, options, message):
        assert message in message_of(**options)


class TestBatches:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"startingOffsets": "latest"}, "a batch read cannot start at latest (startingOff"),
            ({"startingOffsets": '{"t":{"0":1,"1":-1}}'}, "-1 for t-1, but a batch read cannot"),
            ({"endingOffsets": "earliest"}, "a batch read cannot end at earliest (endingOff"),
            ({"endingOffsets": '{"t":{"0":-2,"1":9}}'}, "-2 for t-0, but a batch read cannot"),
            (
                {
                    "startingOffsets": '{"t":{"0":1,"1":1,"2":1}}',
                    "endingOffsets": '{"t":{"0":2,"1":2}}',
                },
                "must name the same partitions; only one of them names t-2",
            ),
            (
                {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":0}}'},
                "t-0: startingOffsets is 1, and endingOffsets is 0; a read",
            ),
            (
                {
                    "startingOffsetsByTimestamp": '{"t":{"0":1}}',
                    "endingOffsetsByTimestamp": '{"t":{"1":1}}',
                },
                "must name the same partitions; only one of them names t-0, t-1",
            ),
            (
                {
                    "startingOffsetsByTimestamp": '{"t":{"0":9}}',
                    "endingOffsetsByTimestamp": '{"t":{"0":1}}',
                },
                "t-0: startingOffsetsByTimestamp is 9, and endingOffsetsByTimestamp is 1; a read",
            ),
            (
                {"startingTimestamp": "9", "endingTimestamp": "1"},
                "startingTimestamp is 9, and endingTimestamp is 1; a read",
            ),
        ],
    )
    def test_a_range_that_cannot_be_is_refused_before_anything_is_looked_at(self, options, message):
        assert message in message_of(is_stream=False, **options)

    def test_words_for_offsets_are_not_compared(self):
        parse(
            is_stream=False,
            startingOffsets='{"t":{"0":5,"1":-2}}',
            endingOffsets='{"t":{"0":-1,"1":0}}',
        )

    def test_what_only_streams_take_is_ignored_and_named(self):
        options = parse(
            is_stream=False,
            maxOffsetsPerTrigger="5",
            minOffsetsPerTrigger="1",
            maxTriggerDelay="9s",
        )
        assert options.ignored == (
            "maxOffsetsPerTrigger",
            "minOffsetsPerTrigger",
            "maxTriggerDelay",
        )


class TestStreams:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("endingOffsets", "latest"),
            ("endingOffsetsByTimestamp", '{"t":{"0":1}}'),
            ("endingTimestamp", "1"),
        ],
    )
    def test_an_end_is_refused(self, name, value):
        message = message_of(is_stream=True, **{name: value})
        assert f"option '{name}' is for batches" in message

    def test_may_start_at_latest(self):
        assert parse(is_stream=True, startingOffsets="latest").starting.offsets == LATEST

    def test_limits(self):
        options = parse(
            is_stream=True,
            maxOffsetsPerTrigger="500",
            minOffsetsPerTrigger="10",
            maxTriggerDelay="2m",
        )
        assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (500, 10)
        assert options.max_trigger_delay_ms == 120_000
        assert options.ignored == ()

    def test_a_minimum_above_the_maximum_is_refused(self):
        message = message_of(is_stream=True, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="6")
        assert "minOffsetsPerTrigger is 6, more than maxOffsetsPerTrigger, 5" in message

    @pytest.mark.parametrize(
        ("text", "expected_ms"),
        [
            ("250", 250),
            ("250ms", 250),
            ("3s", 3000),
            ("1min", 60_000),
            ("2H", 7_200_000),
            ("1d", 86_400_000),
            ("5000us", 5),
        ],
    )
    def test_times_are_written_as_everywhere_in_spark(self, text, expected_ms):
        assert parse(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms

    @pytest.mark.parametrize("text", ["soon", "3 weeks", "-1s", ""])
    def test_other_times_are_refused(self, text):
        assert "expected a time such as 30s" in message_of(maxTriggerDelay=text)


class TestNumbers:
    @pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
    @pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", ""])
    def test_of_tasks_and_records_are_positive(self, name, value):
        assert f"option '{name}' is '{value}', expected" in message_of(**{name: value})

    def test_they_are_taken(self):
        options = parse(minPartitions="7", maxRecordsPerPartition="5000000000")
        assert (options.min_partitions, options.max_records_per_partition) == (7, 5_000_000_000)


class TestIsolationLevel:
    @pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level"])
    @pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
    def test_is_taken_with_kafkas_prefix_too(self, name, level):
        options = parse(**{name: level.upper()})
        assert options.isolation_level == level
        assert options.ignored == ()

    def test_a_level_that_does_not_exist_is_refused(self):
        message = message_of(**{"kafka.isolation.level": "intentionally_invalid"})
        assert "expected read_uncommitted or read_committed" in message


class TestAssignors:
    def test_count_only_with_a_group(self):
        message = message_of(**{"partition.assignment.strategy": "sticky"})
        assert "needs the option 'group.id'" in message

    def test_are_taken_with_one(self):
        options = {"partition.assignment.strategy": "cooperative-sticky", "group.id": "g"}
        assert parse(**options).assignor == "cooperative-sticky"

    def test_others_are_refused(self):
        options = {"partition.assignment.strategy": "stickie", "group.id": "g"}
        assert "did you mean 'sticky'?" in message_of(**options)


class TestOptionsForKafka:
    """A program that was written for Kafka continues to work."""

    def test_what_means_nothing_here_is_named_and_ignored(self):
        options = parse(
            **{
                "kafka.bootstrap.servers": "host:9092",
                "kafka.security.protocol": "SSL",
                "kafkaConsumer.pollTimeoutMs": "512",
                "fetchOffset.numRetries": "3",
                "fetchOffset.retryIntervalMs": "10",
                "groupIdPrefix": "x",
            }
        )
        assert options.ignored == (
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
            "groupIdPrefix",
            "kafka.bootstrap.servers",
            "kafka.security.protocol",
            "kafkaConsumer.pollTimeoutMs",
        )

    def test_one_warning_names_all_that_is_ignored(self):
        with pytest.warns(IgnoredOptionWarning, match="format spark_log ignores a, b") as caught:
            warn_ignored_options(("a", "b"))
        assert len(caught) == 1

    def test_no_warning_without_reason(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_ignored_options(())

    def test_what_would_change_results_is_taken_over(self):
        options = parse(**{"kafka.group.id": "g", "KAFKA.check.crcs": "false"})
        assert options.group_id == "g"
        assert not options.check_crcs
        assert options.ignored == ()

    def test_our_own_option_wins(self):
        assert parse(**{"kafka.group.id": "theirs", "group.id": "ours"}).group_id == "ours"

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("kafka.auto.offset.reset", "startingOffsets"),
            ("kafka.key.deserializer", "DataFrame operations"),
            ("kafka.value.deserializer", "DataFrame operations"),
            ("kafka.enable.auto.commit", "group.id"),
            ("kafka.interceptor.classes", "DataFrame operations"),
            ("Kafka.Auto.Offset.Reset", "startingOffsets"),
        ],
    )
    def test_what_the_connector_refuses_is_refused_with_advice(self, name, advice):
        message = message_of(**{name: "x"})
        assert f"option '{name}' is not supported" in message
        assert advice in message

    @pytest.mark.parametrize("name", ["kafka.key.serializer", "kafka.value.serializer"])
    def test_likewise_for_writes(self, name):
        with pytest.raises(InvalidOptionError, match=r"is not supported: .* as bytes"):
            parse_write_options({"path": "/r", name: "x"})

    def test_compression_of_writes_is_taken_over(self):
        options = parse_write_options({"path": "/r", "kafka.compression.type": "zstd"})
        assert options.compression == "zstd"

    @pytest.mark.parametrize("name", ["compression.type", "kafka.compression.type"])
    @pytest.mark.parametrize(("asked", "used"), [("gzip", "zstd"), ("Snappy", "lz4")])
    def test_compression_that_arrow_lacks_gives_way_with_a_warning(self, name, asked, used):
        options = parse_write_options({"path": "/r", name: asked})
        assert options.compression == used
        assert options.warnings == (
            f"option {name} is {asked.lower()}, which Arrow files do not support (they support "
            f"none, lz4 and zstd); {used} is used instead",
        )
        ours = {"path": "/r", "kafka.compression.type": asked, "compression.type": "none"}
        assert parse_write_options(ours).compression == "none"

    def test_the_timeout_of_transactions_is_taken_over(self):
        given = {"path": "/r", "kafka.transaction.timeout.ms": "5000"}
        options = parse_write_options({**given, "transactional": "true"})
        assert (options.transaction_timeout_ms, options.ignored) == (5000, ())
        assert parse_write_options(given).ignored == ("kafka.transaction.timeout.ms",)

    def test_headers_of_writes_need_no_option(self):
        options = parse_write_options({"path": "/r", "includeHeaders": "true"})
        assert options.ignored == ("includeHeaders",)

    def test_servers_are_no_root(self):
        message = message_of(path=None, **{"kafka.bootstrap.servers": "host:9092"})
        assert "option 'path' is missing: the cluster root" in message
        assert "kafka.bootstrap.servers has no effect, spark-log has no brokers" in message


OF_NO_SIDE = (
    "spark.streaming.kafka.maxRatePerPartition",
    "enable.auto.commit",
    "auto.offset.reset",
    "bootstrap.servers",
    "header",
    "inferSchema",
    "encoding",
    "truncate",
    "numPartitions",
    "schema.registry.url",
    # Of other formats, of Kafka's clients, and of Spark itself.
    *("batch.size", "client.id", "enable.idempotence", "linger.ms", "max.poll.records"),
    *("security.protocol", "session.timeout.ms", "transactional.id", "zookeeper.connect"),
    *("basePath", "batchsize", "compression", "delimiter", "endingVersion", "fetchsize"),
    *("ignoreDeletes", "maxBytesPerTrigger", "maxFilesPerTrigger", "mergeSchema", "mode"),
    *("partitionOverwriteMode", "queryName", "readChangeFeed", "recursiveFileLookup"),
    *("rowsPerSecond", "sep", "startingVersion", "subject", "timestampFormat", "kafkaConsume"),
)
"""Options that published programs pass to Spark's Kafka connector, which passes them over."""

READ_SLIPS = {
    "startingOffsets": "startingOffset startOffset startOffsets starting_offsets StartingOfsets",
    "endingOffsets": "endingOffset endOffset endOffsets ending.offsets",
    "startingTimestamp": "startingTime startTimestamp startingTimestamps starting_timestamp",
    "endingTimestamp": "endTime endTimestamp endingTimestmp",
    "startingOffsetsByTimestamp": "startingOffsetByTimestamp startingOffsetsByTimestamps",
    "maxOffsetsPerTrigger": "maxOffsetPerTrigger maxOffsetsByTrigger max_offsets_per_trigger",
    "minOffsetsPerTrigger": "minOffsetPerTrigger minOffsetsPerTriger",
    "failOnDataLoss": "failOnDataLost failDataLoss fail_on_data_loss",
    "subscribe": "subscibe subcribe subscribed subscribes",
    "subscribePattern": "subscribePatern subscribe_pattern subscribePatterns",
    "assign": "assigns asign",
    "minPartitions": "minPartition min_partitions",
    "maxRecordsPerPartition": "maxRecordPerPartition",
    "includeHeaders": "includeHeader include_headers",
    "group.id": "groupId group_id group.ids",
    "isolation.level": "isolationLevel isolation_level isolation.levels",
    "checkpointLocation": "chekpointLocation checkpoint_location",
    "storage.": "storages.key storge.key",
    "brokers.": "broker.1.storage.key",
}
WRITE_SLIPS = {
    "topic": "topc topics tpoic",
    "acks": "ack",
    "compression.type": "compressionType compression_type compresion.type",
    "idempotent": "idempotence idempotant",
    "transactional": "transaction transactionnal",
    "createTopic": "createTopics create_topic",
    "createTopic.partitions": "createTopic.partition",
    "createTopic.config.": "createTopic.configs.retention.ms",
    "txnAppId": "txnAppID_ txn_app_id",
    "txnVersion": "txnVersions",
    "checkpointLocation": "checkpointLocaton",
}


def slips_of(table):
    return [(known, slip) for known, slips in table.items() for slip in slips.split()]


class TestUnknownOptions:
    @pytest.mark.parametrize(("known", "slip"), slips_of(READ_SLIPS))
    def test_a_slip_on_a_read_is_refused_with_the_name_that_was_meant(self, known, slip):
        for name in (slip, slip.lower()):  # Spark gives some options in lower case
            expected = f"unknown option {name!r} for format spark_log; did you mean {known!r}?"
            assert message_of(**{name: "1"}) == expected

    @pytest.mark.parametrize(("known", "slip"), slips_of(WRITE_SLIPS))
    def test_a_slip_on_a_write_is_refused_with_the_name_that_was_meant(self, known, slip):
        for name in (slip, slip.lower()):
            with pytest.raises(InvalidOptionError) as raised:
                parse_write_options({"path": "/r", name: "1"})
            assert f"did you mean {known!r}?" in str(raised.value)
            assert (raised.value.key, raised.value.nearest) == (name, known)

    def test_every_option_with_a_letter_less_is_a_slip(self):
        for name in READ_OPTIONS:
            with pytest.raises(InvalidOptionError, match="did you mean"):
                parse(**{name[:-1]: "1"})
        for name in WRITE_OPTIONS:
            with pytest.raises(InvalidOptionError, match="did you mean"):
                parse_write_options({"path": "/r", f"{name[:-2]}{name[-1]}": "1"})

    @pytest.mark.parametrize("name", OF_NO_SIDE)
    def test_what_is_no_slip_is_ignored_and_named(self, name):
        for given in (name, name.lower()):
            assert parse(**{given: "1"}).ignored == (given,)
            assert parse_write_options({"path": "/r", given: "1"}).ignored == (given,)

    def test_options_of_writes_are_ignored_by_reads_and_the_reverse(self):
        for name in WRITE_OPTIONS.keys() - READ_OPTIONS.keys():
            assert parse(**{name: "1"}).ignored == (name,)
        for name in READ_OPTIONS.keys() - WRITE_OPTIONS.keys():
            assert parse_write_options({"path": "/r", name: "1"}).ignored == (name,)

    def test_a_topic_is_no_subscription(self):
        message = message_of(subscribe=None, topic="t")
        assert "option 'topic' is for writes; a read takes 'subscribe'" in message

    def test_servers_without_kafkas_prefix_are_no_root_either(self):
        message = message_of(path=None, **{"bootstrap.servers": "host:9092"})
        assert "bootstrap.servers has no effect, spark-log has no brokers" in message

    def test_a_missing_root_is_named(self):
        assert "option 'path' is missing: the cluster root" in message_of(path=None)

    @pytest.mark.parametrize("name", ["includeHeaders", "failOnDataLoss"])
    def test_neither_true_nor_false_is_refused(self, name):
        assert f"option '{name}' is 'yes', expected true or false" in message_of(**{name: "yes"})


def test_a_root_without_put_if_absent_is_refused_by_name():
    with pytest.raises(UnsupportedStoreError, match="ftp:// cannot be a root"):
        parse_write_options({"path": "ftp://host/log"})


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_every_option_is_taken_in_any_case(change):
    """Each option in the table changes the parsed options."""
    values = {
        "startingOffsets": '{"t":{"0":3}}',
        "endingOffsets": '{"t":{"0":9}}',
        "startingTimestamp": "5",
        "endingTimestamp": "6",
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
        "endingOffsetsByTimestamp": '{"t":{"0":6}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "check.crcs": "false",
        "group.id": "g",
        "isolation.level": "read_committed",
        "maxTriggerDelay": "1111",
    }
    elsewhere = {"partition.assignment.strategy", *SUBSCRIPTION_OPTIONS}
    for name in READ_OPTIONS.keys() - elsewhere:
        assert parse(**{change(name): values.get(name, "1111")}) != parse(), name


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transactional": "yes"}, "option 'transactional' is 'yes', expected true or false"),
        ({"transactional": "true", "idempotent": "false"}, "contradict each other"),
        ({"transaction.timeout.ms": "5000"}, "has no effect without 'transactional=true'"),
        ({"transactional": "true", "transaction.timeout.ms": "0"}, "a whole number of at least 1"),
        ({"joinTransaction": "x"}, "expected JSON with transactionalId"),
        ({"joinTransaction": '{"transactionalId":"x","producerId":"y"}'}, "expected JSON"),
    ],
)
def test_options_of_transactional_writes_that_make_no_sense_are_refused(options, expected):
    with pytest.raises(InvalidOptionError, match=expected) as raised:
        parse_write_options({"path": "/r", **options})
    assert "\n" not in str(raised.value)
