"""Scenarios of the tools that write and read records, and of those that tell and move offsets."""

from __future__ import annotations

import json

from tests.gateway.suites.kafka_tools.tools import Tools

_PRODUCER, _CONSUMER = "kafka-console-producer", "kafka-console-consumer"
_OFFSETS = "kafka-get-offsets"
_DELETE = "kafka-delete-records"
_START_MS = 1_700_000_000_000
_DAY_MS = 86_400_000


def _properties(*properties: str) -> list[str]:
    return [argument for each in properties for argument in ("--property", each)]


def _read(tools: Tools, topic: str, count: int, *options: object, status: int = 0) -> None:
    """Read records; a consumer that finds fewer ends after a while."""
    limits = ("--max-messages", count, "--timeout-ms", 30000)
    tools.run(_CONSUMER, "--topic", topic, "--from-beginning", *limits, *options, status=status)


def produce_and_consume(tools: Tools) -> None:
    topic = tools.topic()
    tools.run(_PRODUCER, "--topic", topic, given="a\nb\n\nä\n")
    _read(tools, topic, 4)
    _read(tools, topic, 2)


def keys_headers_and_nulls(tools: Tools) -> None:
    topic = tools.topic()
    separated = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    given = "h1:v1,h2:v2\tkey\tvalue\nNULL\tNULL\tNULL\nh:\tk\t\n"
    tools.run(_PRODUCER, "--topic", topic, *_properties(*separated), given=given)
    shown = (
        "print.key=true",
        "print.headers=true",
        "print.partition=true",
        "print.offset=true",
        "print.epoch=true",
        "print.delivery=true",
        "key.separator=|",
        "headers.separator=;",
        "null.literal=nothing",
    )
    _read(tools, topic, 3, *_properties(*shown))
    _read(tools, topic, 3, *_properties("print.value=false", "print.key=true"))


def timestamps(tools: Tools) -> None:
    topic = tools.topic()
    tools.run(_PRODUCER, "--topic", topic, given="a\n")
    _read(tools, topic, 1, *_properties("print.timestamp=true"))
    appended = tools.topic("b", message_timestamp_type="LogAppendTime")
    tools.run(_PRODUCER, "--topic", appended, given="a\n")
    _read(tools, appended, 1, *_properties("print.timestamp=true"))


def codecs(tools: Tools) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = tools.topic(codec)
        tools.run(_PRODUCER, "--topic", topic, "--compression-codec", codec, given="a\nb\n")
        _read(tools, topic, 2)


def settings_of_the_producer(tools: Tools) -> None:
    topic = tools.topic()
    for settings in (
        ("--request-required-acks", "0"),
        ("--request-required-acks", "1"),
        ("--sync",),
        ("--producer-property", "enable.idempotence=false"),
        ("--batch-size", 1, "--timeout", 0),
    ):
        tools.run(_PRODUCER, "--topic", topic, *settings, given="a\n")
    _read(tools, topic, 5)


def produce_what_is_too_large(tools: Tools) -> None:
    topic = tools.topic(max_message_bytes=1000)
    tools.run(_PRODUCER, "--topic", topic, "--sync", given="x" * 2000 + "\n", status=1)
    tools.run(_PRODUCER, "--topic", topic, given="x" * 2000 + "\n", says="RecordTooLarge")
    tools.run(_OFFSETS, "--topic", topic)


def produce_without_a_key_to_a_compacted_topic(tools: Tools) -> None:
    topic = tools.topic(cleanup_policy="compact")
    tools.run(_PRODUCER, "--topic", topic, given="a\n", says="InvalidRecord")
    tools.run(_OFFSETS, "--topic", topic)


def produce_to_an_invalid_topic(tools: Tools) -> None:
    tools.run(_PRODUCER, "--topic", "bad name!", given="a\n", says="InvalidTopic")


def produce_to_an_unknown_topic(tools: Tools) -> None:
    topic = f"{tools.prefix}-a"
    tools.run(_PRODUCER, "--topic", topic, given="a\n")
    _read(tools, topic, 1)
    tools.run("kafka-topics", "--describe", "--topic", topic)


def consume_from_an_offset(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, *"abcdef")
    at = ("--topic", topic, "--partition", 0)
    patient, brief = ("--timeout-ms", 30000), ("--timeout-ms", 3000)
    offsets = _properties("print.offset=true")
    tools.run(_CONSUMER, *at, "--offset", 2, "--max-messages", 2, *offsets, *patient)
    tools.run(_CONSUMER, *at, "--offset", "earliest", "--max-messages", 3, *offsets, *patient)
    tools.run(_CONSUMER, *at, "--offset", "latest", *brief, says="Processed a total of 0")
    tools.run(_CONSUMER, *at, "--offset", 100, *brief, says="Processed a total of 0")
    tools.run(_CONSUMER, *at, "--offset", -7, status=1)
    tools.run(_CONSUMER, *at, "--offset", "newest", status=1)


def consume_in_a_group(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, *"abcdef")
    group = ("--group", f"{tools.prefix}-group")
    _read(tools, topic, 2, *group)
    _read(tools, topic, 4, *group)
    tools.run("kafka-consumer-groups", *group, "--describe")
    consumer = ("--consumer-property", "group.protocol=consumer")
    group = ("--group", f"{tools.prefix}-next")
    _read(tools, topic, 3, *group, *consumer)
    _read(tools, topic, 3, *group, *consumer)
    tools.run("kafka-consumer-groups", *group, "--describe")


def consume_several_topics(tools: Tools) -> None:
    for name in "ab":
        tools.produce(tools.topic(name), name)
    several = ("--include", f"{tools.prefix}-.*", "--from-beginning", "--max-messages", 2)
    tools.run(_CONSUMER, *several, "--timeout-ms", 30000, is_sorted=True)


def formatters(tools: Tools) -> None:
    topic = tools.topic()
    keyed = _properties("parse.key=true", "key.separator=:")
    tools.run(_PRODUCER, "--topic", topic, *keyed, given="1234:12345678\n")
    package = "org.apache.kafka.tools.consumer"
    for name in ("DefaultMessageFormatter", "LoggingMessageFormatter", "NoOpMessageFormatter"):
        _read(tools, topic, 1, "--formatter", f"{package}.{name}")
    serializers = "org.apache.kafka.common.serialization"
    numbers = ("print.key=true", f"key.deserializer={serializers}.IntegerDeserializer")
    _read(tools, topic, 1, *_properties(*numbers, "value.deserializer=x"))
    value = f"value.deserializer={serializers}.LongDeserializer"
    _read(tools, topic, 1, *_properties(*numbers, value))


def consume_by_isolation_level(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, "a")
    with tools.transaction(topic, f"{tools.prefix}-id"):
        tools.until(lambda shown: not shown.rstrip().endswith(":1"), _OFFSETS, "--topic", topic)
        committed = ("--isolation-level", "read_committed")
        _read(tools, topic, 1, *committed)
        after = ("--topic", topic, "--partition", 0, "--offset", 1)
        brief = ("--timeout-ms", 3000)
        tools.run(_CONSUMER, *after, *committed, *brief, says="Processed a total of 0")
        shown = _properties("print.value=false", "print.offset=true")
        uncommitted = ("--isolation-level", "read_uncommitted")
        _read(tools, topic, 2, *uncommitted, *shown)
    tools.run(_CONSUMER, "--topic", topic, "--isolation-level", "read_some", status=1)


def consume_an_unknown_topic(tools: Tools) -> None:
    topic = ("--topic", f"{tools.prefix}-nothing")
    tools.run(_CONSUMER, *topic, "--timeout-ms", 5000, says="Processed a total of 0")
    without = ("--consumer-property", "allow.auto.create.topics=false", "--timeout-ms", 5000)
    tools.run(_CONSUMER, "--topic", f"{tools.prefix}-other", *without, says="a total of 0")
    tools.run("kafka-topics", "--list", "--topic", f"{tools.prefix}-.*")
    bad = ("--topic", "bad name!", "--timeout-ms", 3000)
    tools.run(_CONSUMER, *bad, says="InvalidTopic")


def wrong_usage(tools: Tools) -> None:
    tools.run(_PRODUCER, status=1)
    tools.run(_CONSUMER, status=1)
    tools.run(_CONSUMER, "--topic", "a", "--offset", 3, status=1)
    tools.run(_CONSUMER, "--topic", "a", "--partition", 0, "--group", "g", status=1)


def offsets(tools: Tools) -> None:
    topic, other = tools.topic("a", 3), tools.topic("b")
    tools.produce(topic, "a", "b")
    tools.run(_OFFSETS, "--topic", topic)
    tools.run(_OFFSETS, "--topic", topic, "--partitions", "0,2")
    tools.run(_OFFSETS, "--topic", f"{tools.prefix}-.*")
    tools.run(_OFFSETS, "--topic-partitions", f"{topic}:1-2,{other}:0,{topic}:0")
    tools.run(_OFFSETS, "--topic-partitions", f"{tools.prefix}-.*:-1")
    tools.run(_OFFSETS, "--exclude-internal-topics", only=f"^{tools.prefix}-")
    tools.run(_OFFSETS, "--topic", topic, "--partitions", "7", status=1)
    tools.run(_OFFSETS, "--topic", f"{tools.prefix}-nothing", status=1)


def offsets_by_time(tools: Tools) -> None:
    topic, empty = tools.topic("a"), tools.topic("b", 2)
    for day in (0, 2, 1):
        tools.produce(topic, "1", "2", timestamp_ms=_START_MS + day * _DAY_MS)
    for time in (
        "latest",
        "earliest",
        "max-timestamp",
        *range(-3, 0),
        *(_START_MS + moment for moment in (0, 1, _DAY_MS, 2 * _DAY_MS, 3 * _DAY_MS)),
        0,
    ):
        tools.run(_OFFSETS, "--topic", topic, "--time", time)
        tools.run(_OFFSETS, "--topic", empty, "--time", time)


def offsets_of_tiers(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, "a", "b")
    for time in ("earliest-local", "latest-tiered", "-4", "-5"):
        tools.run(_OFFSETS, "--topic", topic, "--time", time)


def offsets_after_a_deletion(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, *"abcdef")
    _delete(tools, [(topic, 0, 4)])
    for time in ("earliest", "latest", "earliest-local"):
        tools.run(_OFFSETS, "--topic", topic, "--time", time)


def wrong_usage_of_offsets(tools: Tools) -> None:
    tools.run(_OFFSETS, "--time", "yesterday", status=1)
    tools.run(_OFFSETS, "--topic", "a", "--partitions", "x", status=1)
    tools.run(_OFFSETS, "--topic", "a", "--topic-partitions", "a:0", status=1)


def _delete(
    tools: Tools, offsets: list[tuple[str, int, int]], status: int = 0, says: str = ""
) -> None:
    partitions = [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partition, offset in offsets
    ]
    file = tools.file("offsets.json", json.dumps({"partitions": partitions, "version": 1}))
    patience = tools.file("patience", "default.api.timeout.ms=3000\nrequest.timeout.ms=3000\n")
    options = ("--offset-json-file", file, "--command-config", patience)
    tools.run(_DELETE, *options, status=status, says=says, is_sorted=True)


def delete_records(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, *"abcdef")
    _delete(tools, [(topic, 0, 3)])
    tools.run(_OFFSETS, "--topic", topic, "--time", "earliest")
    _read(tools, topic, 3)
    _delete(tools, [(topic, 0, 1)])
    _delete(tools, [(topic, 0, -1), (topic, 1, -1)])
    tools.run(_OFFSETS, "--topic", topic, "--time", "earliest")


def delete_records_out_of_range(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, "a")
    _delete(tools, [(topic, 0, 100)], says="OffsetOutOfRange")
    _delete(tools, [(topic, 0, -5)], says="OffsetOutOfRange")
    _delete(tools, [(f"{tools.prefix}-nothing", 0, 1)], says="Timeout")
    _delete(tools, [(topic, 7, 1)], says="Timeout")
    _delete(tools, [(topic, 0, 1), (topic, 0, 1)], status=1)
    tools.run(_OFFSETS, "--topic", topic, "--time", "earliest")


def delete_records_of_a_compacted_topic(tools: Tools) -> None:
    topic = tools.topic(cleanup_policy="compact")
    tools.produce(topic, "a", "b")
    _delete(tools, [(topic, 0, 1)], says="PolicyViolation")
    tools.run(_OFFSETS, "--topic", topic, "--time", "earliest")


def delete_records_by_a_bad_file(tools: Tools) -> None:
    for name, text in {"empty": "", "list": "[]", "version": '{"version": 7}'}.items():
        tools.run(_DELETE, "--offset-json-file", tools.file(name, text), status=1)
    tools.run(_DELETE, "--offset-json-file", f"{tools.folder}/nothing", status=1)


_FIGURES = ((r"\b\d+([.,]\d+)?\b", "0"),)
"""Patterns of the figures of a benchmark, which differ from run to run."""


def producer_benchmark(tools: Tools) -> None:
    topic, tool = tools.topic(), "kafka-producer-perf-test"
    target = ("--topic", topic, "--throughput", -1)
    size = ("--num-records", 2000, "--record-size", 100)
    tools.run(tool, *target, *size, hidden=_FIGURES)
    payload = tools.file("payload", "a\nbb\nccc\n")
    tools.run(tool, *target, "--num-records", 10, "--payload-file", payload, hidden=_FIGURES)
    tools.run(tool, *target, "--num-records", 10, "--payload-monotonic", hidden=_FIGURES)
    tools.run(_OFFSETS, "--topic", topic)
    tools.run(tool, "--topic", topic, status=1)


def transactional_producer_benchmark(tools: Tools) -> None:
    topic = tools.topic()
    options = ("--transactional-id", f"{tools.prefix}-id", "--transaction-duration-ms", 100000)
    size = ("--num-records", 500, "--record-size", 100, "--throughput", -1)
    tools.run("kafka-producer-perf-test", "--topic", topic, *size, *options, hidden=_FIGURES)
    tools.run(_OFFSETS, "--topic", topic)  # the records, and the marker of the commit
    committed = ("--isolation-level", "read_committed")
    _read(tools, topic, 500, *committed, "--property", "print.value=false")


def consumer_benchmark(tools: Tools) -> None:
    topic, tool = tools.topic(), "kafka-consumer-perf-test"
    filled = ("--num-records", 2000, "--record-size", 100, "--throughput", -1)
    tools.run("kafka-producer-perf-test", "--topic", topic, *filled, hidden=_FIGURES)
    hidden = (*_FIGURES, (r"\bDATE\b", "0"))
    group = ("--group", f"{tools.prefix}-group", "--timeout", 60000)
    figures = tools.run(tool, "--topic", topic, "--messages", 2000, *group, hidden=hidden)
    tools.note("records that were read", figures.splitlines()[1].split(",")[4])
    detailed = ("--show-detailed-stats", "--reporting-interval", 60000, "--timeout", 60000)
    tools.run(tool, "--topic", topic, "--messages", 2000, *detailed, hidden=hidden)
    tools.run(tool, "--topic", topic, status=1)


def verifiable_producer_and_consumer(tools: Tools) -> None:
    topic = tools.topic()
    counted = ("--max-messages", 5, "--value-prefix", 7, "--repeating-keys", 3)
    hidden = ((r'"timestamp":\d+', '"timestamp":0'), (r'("\w+_throughput"):[\d.]+', r"\1:0"))
    produced = ("--topic", topic, *counted, "--acks", -1)
    tool = "kafka-verifiable-producer"
    tools.run(tool, *produced, hidden=hidden, is_sorted=True, is_apart=True)
    for protocol in ("classic", "consumer"):
        group = ("--group-id", f"{tools.prefix}-{protocol}", "--group-protocol", protocol)
        options = (*group, "--verbose", "--reset-policy", "earliest")
        with tools.running("kafka-verifiable-consumer", "--topic", topic, *options) as consumer:
            consumer.wait_for("offsets_committed")
            consumer.end()
            lines = [json.loads(line) for line in consumer.log.read_text().splitlines()]
        shown = (
            {key: value for key, value in line.items() if key != "timestamp"}
            for line in lines
            if line["name"] != "shutdown_complete"  # SIGTERM may end it before
        )
        tools.note(f"verifiable-consumer {protocol}", "\n".join(map(json.dumps, shown)))


def verifiable_producer_to_an_invalid_topic(tools: Tools) -> None:
    hidden = ((r'"timestamp":\d+', '"timestamp":0'), (r'("\w+_throughput"):[\d.]+', r"\1:0"))
    options = ("--topic", "bad name!", "--max-messages", 1)
    tool = "kafka-verifiable-producer"
    tools.run(tool, *options, hidden=hidden, says="InvalidTopic", is_apart=True)


def transactional_copy(tools: Tools) -> None:
    topic, copy = tools.topic("a"), tools.topic("b")
    tools.produce(topic, *map(str, range(1000)))
    options = (
        *("--input-topic", topic, "--input-partition", 0, "--output-topic", copy),
        *("--transactional-id", f"{tools.prefix}-id", "--transaction-size", 100),
        *("--consumer-group", f"{tools.prefix}-group", "--enable-random-aborts"),
    )
    counted = tools.run("transactional-message-copier", *options, only="nothing", is_apart=True)
    tools.note("the last line", counted.splitlines()[-1])
    _read(tools, copy, 1000, "--isolation-level", "read_committed")
    tools.run("kafka-consumer-groups", "--group", f"{tools.prefix}-group", "--describe")


def end_to_end_latency(tools: Tools) -> None:
    topic, tool = tools.topic(), "kafka-e2e-latency"
    tools.run(tool, topic, 20, "all", 100, hidden=_FIGURES)
    tools.run(_OFFSETS, "--topic", topic)
    tools.run(tool, f"{tools.prefix}-new", 5, "1", 100, hidden=_FIGURES)
    tools.run("kafka-topics", "--describe", "--topic", f"{tools.prefix}-new")
    tools.run(tool, topic, 20, "0", 100, status=1)


def replica_verification(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, "a", "b")
    options = ("--topics-include", topic, "--report-interval-ms", 200)
    with tools.running("kafka-replica-verification", *options) as verification:
        text = verification.wait_for("max lag is 0")
    tools.note("kafka-replica-verification", text.splitlines()[0].split(":")[-1])


SCENARIOS = {
    "kafka-console-producer, kafka-console-consumer": (
        produce_and_consume,
        keys_headers_and_nulls,
        timestamps,
        codecs,
        settings_of_the_producer,
        produce_what_is_too_large,
        produce_without_a_key_to_a_compacted_topic,
        produce_to_an_invalid_topic,
        produce_to_an_unknown_topic,
        consume_from_an_offset,
        consume_in_a_group,
        consume_several_topics,
        formatters,
        consume_by_isolation_level,
        consume_an_unknown_topic,
        wrong_usage,
    ),
    _OFFSETS: (
        offsets,
        offsets_by_time,
        offsets_of_tiers,
        offsets_after_a_deletion,
        wrong_usage_of_offsets,
    ),
    _DELETE: (
        delete_records,
        delete_records_out_of_range,
        delete_records_of_a_compacted_topic,
        delete_records_by_a_bad_file,
    ),
    "kafka-producer-perf-test": (producer_benchmark, transactional_producer_benchmark),
    "kafka-consumer-perf-test": (consumer_benchmark,),
    "kafka-verifiable-producer, kafka-verifiable-consumer": (
        verifiable_producer_and_consumer,
        verifiable_producer_to_an_invalid_topic,
    ),
    "TransactionalMessageCopier": (transactional_copy,),
    "kafka-e2e-latency": (end_to_end_latency,),
    "kafka-replica-verification": (replica_verification,),
}
"""Scenarios by their tool."""
