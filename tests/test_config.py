"""The table of keys: every key described, every value checked, every mistake named."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spark_log.config import (
    MODELS,
    AdminConfig,
    ClientQuotaConfig,
    ClusterConfig,
    ConsumerConfig,
    GroupConfig,
    ProducerConfig,
    ToolConfig,
    TopicConfig,
    load_properties,
    markdown,
    parse_broker_options,
    parse_duration,
    parse_time_ms,
    parse_time_us,
    to_keys,
    to_text,
)
from spark_log.config.foreign_keys import TOPIC_KEYS
from spark_log.errors import IgnoredOptionWarning, InvalidConfigurationError

PROJECT = Path(__file__).parent.parent

NOON_US = 1_370_088_000_000_000  # date -u -d 2013-06-01T12:00:00 +%s

KEYS = [(model, key) for model in MODELS for key in model.keys().values()]


class TestTable:
    @pytest.mark.parametrize(("model", "key"), KEYS, ids=lambda part: getattr(part, "name", ""))
    def test_every_key_says_what_it_means_takes_and_is_by_default(self, model, key):
        assert len(key.doc) > 20
        assert key.doc.endswith(".")
        assert key.type in ("int", "double", "string", "boolean", "list")
        assert key.name == key.name.lower()
        assert ("_" in key.name) == (model is ClientQuotaConfig)  # as in Kafka
        default = model.parse({}).dotted()[key.name]
        assert key.default == ("" if default is None else f"`{to_text(default)}`")

    def test_defaults_are_kafkas_or_designs(self):
        replication = {
            "min.insync.replicas": 1,
            "unclean.leader.election.enable": False,
            "replica.lag.time.max.ms": 30_000,
        }
        assert TopicConfig.parse({}).dotted() == replication | {
            "compression.type": "producer",
            "segment.bytes": 1_073_741_824,
            "segment.ms": 604_800_000,
            "retention.ms": 604_800_000,
            "retention.bytes": -1,
            "merge.tail.segments": 128,
            "merge.compression.type": "producer",
            "cleanup.policy": ("delete",),
            "min.cleanable.dirty.ratio": 0.5,
            "min.compaction.lag.ms": 0,
            "max.compaction.lag.ms": 2**63 - 1,
            "delete.retention.ms": 86_400_000,
            "index.interval.bytes": 4_096,
            "max.message.bytes": 1_048_588,
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": 2**63 - 1,
            "message.timestamp.after.max.ms": 3_600_000,
            "producer.id.expiration.ms": 86_400_000,
            "snapshot.interval.segments": 128,
            "file.delete.delay.ms": 60_000,
            "stripes": 0,
            "flush.on.append": True,
            "table.commit.interval.ms": 300_000,
            "table.deleted.file.retention.ms": 604_800_000,
            "table.format": "none",
            "table.keep.value": True,
            "table.schema": "",
            "table.value.format": "none",
        }
        assert ProducerConfig.parse({}).dotted() == {
            "acks": "all",
            "batch.size": 16_384,
            "buffer.memory": 33_554_432,
            "client.id": "",
            "compression.type": "none",
            "delivery.timeout.ms": 120_000,
            "enable.idempotence": True,
            "flush.on.exit": True,
            "linger.ms": 5,
            "max.block.ms": 60_000,
            "max.in.flight.requests.per.connection": 5,
            "max.request.size": 1_048_576,
            "metadata.max.age.ms": 300_000,
            "partitioner.ignore.keys": False,
            "request.timeout.ms": 30_000,
            "retries": 2_147_483_647,
            "retry.backoff.max.ms": 1_000,
            "retry.backoff.ms": 100,
            "transaction.timeout.ms": 60_000,
            "transactional.id": None,
        }
        assert ConsumerConfig.parse({}).dotted() == {
            "client.id": "",
            "auto.offset.reset": "latest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 5000,
            "fetch.min.bytes": 1,
            "fetch.max.wait.ms": 500,
            "fetch.idle.interval.ms": 1000,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 1_048_576,
            "max.poll.records": 500,
            "consumer.timeout.ms": -1,
            "isolation.level": "read_uncommitted",
            "exclude.internal.topics": True,
            "check.crcs": True,
            "metadata.max.age.ms": 300_000,
            "retry.backoff.ms": 100,
            "retry.backoff.max.ms": 1_000,
            "request.timeout.ms": 30_000,
            "default.api.timeout.ms": 60_000,
            "group.instance.id": None,
            "client.rack": "",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 3000,
            "max.poll.interval.ms": 300_000,
            "partition.assignment.strategy": ("range", "cooperative-sticky"),
        }
        assert AdminConfig.parse({}).dotted() == {
            "request.timeout.ms": 30_000,
            "default.api.timeout.ms": 60_000,
        }
        assert ClusterConfig.parse({}).dotted() == replication | {
            "group.max.size": 2**31 - 1,
            "group.min.session.timeout.ms": 6000,
            "group.max.session.timeout.ms": 1_800_000,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.session.timeout.ms": 45_000,
            "group.consumer.heartbeat.interval.ms": 5000,
            "group.consumer.min.session.timeout.ms": 45_000,
            "group.consumer.max.session.timeout.ms": 60_000,
            "group.consumer.min.heartbeat.interval.ms": 5000,
            "group.consumer.max.heartbeat.interval.ms": 15_000,
            "max.clock.skew.ms": 600_000,
            "transaction.max.timeout.ms": 900_000,
            "transactional.id.expiration.ms": 604_800_000,
            "default.replication.factor": 1,
            "auto.leader.rebalance.enable": True,
            "leader.imbalance.per.broker.percentage": 10,
            "leader.imbalance.check.interval.seconds": 300,
            "replication.throttled.rate": 2**63 - 1,
        }
        assert GroupConfig.parse({}).dotted() == {
            "consumer.session.timeout.ms": 45_000,
            "consumer.heartbeat.interval.ms": 5000,
        }
        assert ClientQuotaConfig.parse({}).dotted() == {
            "producer_byte_rate": 2**63 - 1,
            "consumer_byte_rate": 2**63 - 1,
        }
        assert ToolConfig.parse({}).dotted() == {
            "root": None,
            "num.partitions": 1,
            "default.api.timeout.ms": 60_000,
        }

    def test_the_page_in_docs_is_what_the_table_says(self):
        assert (PROJECT / "docs/configuration.md").read_text("utf-8") == markdown()

    def test_the_page_has_a_row_for_every_key_with_what_is_allowed(self):
        rows = [line for line in markdown().splitlines() if line.startswith("| `")]
        assert len(rows) == len(KEYS)
        text = markdown()
        assert "| `segment.bytes` | int | `1073741824` | ≥ 1048576 |" in text
        assert "| `flush.on.append` | boolean | `true` | `true`, `false` |" in text
        assert "| string | `none` | `none`, `lz4`, `zstd` |" in text
        assert "| `root` | string |  |  |" in text
        for model in MODELS:
            assert f"\n## {model.title}\n" in text


class TestParse:
    @pytest.mark.parametrize("value", [2_097_152, "2097152", 2_097_152.0])
    @pytest.mark.parametrize("key", ["segment.bytes", "segment_bytes"])
    def test_dotted_and_snake_case_keys_text_and_typed_values(self, key, value):
        assert TopicConfig.parse({key: value}).segment_bytes == 2_097_152

    @pytest.mark.parametrize(
        ("value", "meaning"), [(True, True), ("true", True), ("False", False), ("false", False)]
    )
    def test_booleans_are_written_as_in_kafka(self, value, meaning):
        assert TopicConfig.parse({"flush.on.append": value}).flush_on_append is meaning

    def test_a_config_is_frozen(self):
        with pytest.raises(ValidationError):
            TopicConfig.parse({}).segment_bytes = 1

    @given(st.integers(1_048_576, 2**31 - 1))
    def test_what_is_written_as_text_is_read_as_the_same(self, size):
        config = TopicConfig.parse({"segment.bytes": size, "flush.on.append": False})
        text = {key: to_text(value) for key, value in config.dotted().items()}
        assert TopicConfig.parse(text) == config
        assert text["flush.on.append"] == "false"

    @pytest.mark.parametrize(
        ("model", "key", "nearest"),
        [
            (TopicConfig, "segment.byte", "segment.bytes"),
            (TopicConfig, "segment_byte", "segment.bytes"),
            (TopicConfig, "SEGMENT.BYTES", "segment.bytes"),
            (TopicConfig, "compresion.type", "compression.type"),
            (TopicConfig, "flush.on.apend", "flush.on.append"),
            (ConsumerConfig, "check.crc", "check.crcs"),
            (ToolConfig, "num.partition", "num.partitions"),
        ],
    )
    def test_an_unknown_key_is_refused_with_the_nearest_one(self, model, key, nearest):
        with pytest.raises(InvalidConfigurationError) as caught:
            model.parse({key: "1"})
        assert (caught.value.key, caught.value.nearest) == (key, nearest)
        assert caught.value.message == (
            f"unknown {model.title.lower()} config {key!r}; did you mean {nearest!r}?"
        )

    @pytest.mark.parametrize(
        ("model", "key"),
        [(model, key.name) for model, key in KEYS if key.type in ("string", "list")],
        ids=lambda part: part if isinstance(part, str) else part.title,
    )
    def test_text_that_cannot_be_stored_is_refused_in_every_key(self, model, key):
        values = ["web\ud83d", ["web\ud83d"]] if model.keys()[key].type == "list" else ["web\ud83d"]
        for value in values:
            with pytest.raises(InvalidConfigurationError, match=r"'web\\ud83d'") as caught:
                model.parse({key: value})
            assert f"config {key!r} is" in caught.value.message
            assert "lone surrogate" in caught.value.message
            caught.value.message.encode()

    def test_a_key_that_is_not_unicode_is_refused(self):
        with pytest.raises(InvalidConfigurationError, match="lone surrogate"):
            ConsumerConfig.parse({"client\ud800": "a"})

    def test_an_unknown_key_that_looks_like_none_is_refused_with_all_of_them(self):
        with pytest.raises(InvalidConfigurationError) as caught:
            TopicConfig.parse({"zzz": "1"})
        assert caught.value.nearest is None
        assert all(key in caught.value.message for key in TopicConfig.keys())  # noqa: SIM118

    def test_keys_of_one_kind_are_unknown_to_another(self):
        with pytest.raises(InvalidConfigurationError, match="unknown producer config"):
            ProducerConfig.parse({"segment.bytes": 2_097_152})

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("segment.bytes", 1_048_575, "int ≥ 1048576"),
            ("segment.bytes", 2**31, "int ≥ 1048576"),
            ("segment.bytes", "1 GiB", "int ≥ 1048576"),
            ("segment.bytes", 1.5e6 + 0.5, "int ≥ 1048576"),
            ("segment.bytes", None, "int ≥ 1048576"),
            ("index.interval.bytes", -1, "int ≥ 0"),
            ("file.delete.delay.ms", "-1", "int ≥ 0"),
            ("file.delete.delay.ms", 2**63, "int ≥ 0"),
            ("flush.on.append", "maybe", "boolean true, false"),
            ("compression.type", "brotli", "string producer, none, lz4, zstd"),
            ("compression.type", 7, "string producer, none, lz4, zstd"),
        ],
    )
    def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_with_what_is_allowed(
        self, key, value, expected
    ):
        for spelled in (key, key.replace(".", "_")):
            with pytest.raises(InvalidConfigurationError) as caught:
                TopicConfig.parse({spelled: value})
            assert caught.value.key == key
            assert caught.value.message == f"config {key!r} is {value!r}, expected {expected}"

    @pytest.mark.parametrize("model", [TopicConfig, ProducerConfig])
    @pytest.mark.parametrize("key", ["compression.type", "compression_type"])
    @pytest.mark.parametrize(("kind", "stored"), [("gzip", "zstd"), ("snappy", "lz4")])
    def test_kafkas_other_compressions_give_way_with_one_warning(self, model, key, kind, stored):
        with pytest.warns(IgnoredOptionWarning) as caught:
            config = model.parse({key: kind})
        assert config.dotted()["compression.type"] == stored
        (warning,) = caught
        assert str(warning.message) == (
            f"compression.type is {kind}, which Arrow files do not support (they support none, "
            f"lz4 and zstd); {stored} is used instead"
        )
        assert warning.filename == __file__, "the line of the program is named"

    def test_a_topics_uncompressed_is_none_without_a_word(self):
        assert TopicConfig.parse({"compression.type": "uncompressed"}).compression_type == "none"

    @pytest.mark.parametrize("key", sorted(TOPIC_KEYS.ignored))
    def test_settings_that_only_brokers_need_are_ignored_with_a_warning(self, key):
        with pytest.warns(IgnoredOptionWarning, match=f"^Topic ignores {re.escape(key)}$"):
            assert TopicConfig.parse({key: "1", "segment.ms": 7}) == TopicConfig(segment_ms=7)

    def test_no_setting_of_a_topic_is_both_known_and_ignored(self):
        assert not TOPIC_KEYS.ignored & TopicConfig.keys().keys()

    def test_a_key_in_both_spellings_is_refused(self):
        with pytest.raises(InvalidConfigurationError):
            TopicConfig.parse({"segment.bytes": 2**20, "segment_bytes": 2**21})

    @pytest.mark.parametrize("key", [1, None, ("a",)])
    def test_a_key_that_is_no_text_is_refused(self, key):
        with pytest.raises(InvalidConfigurationError):
            TopicConfig.parse({key: 1})


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "time_us"),
        [
            ("0", 0),
            ("-1", -1000),
            ("1370088000000", NOON_US),
            ("2013-06-01T12:00:00", NOON_US),
            ("2013-06-01 12:00", NOON_US),
            ("2013-06-01T12:00:00Z", NOON_US),
            ("2013-06-01T14:00:00+02:00", NOON_US),
            ("2013-06-01T12:00:00.000001", NOON_US + 1),
            ("2013-06-01", NOON_US - 12 * 3_600_000_000),
            ("20130601", NOON_US - 12 * 3_600_000_000),
            ("20130601T1200Z", NOON_US),
            ("9999999", 9_999_999_000),
            ("100000000", 100_000_000_000),
            ("1969-12-31T23:59:59.999999Z", -1),
        ],
    )
    def test_reads_milliseconds_and_iso_8601_in_utc(self, text, time_us, monkeypatch):
        monkeypatch.setenv("TZ", "America/New_York")
        assert parse_time_us("--from-time", text) == time_us

    @pytest.mark.parametrize(
        "text", ["yesterday", "", "12:00", "1.5", "2013-13-01", "20131301", "٣"]
    )
    def test_refuses_what_is_no_time(self, text):
        with pytest.raises(InvalidConfigurationError, match="expected ISO 8601"):
            parse_time_us("--from-time", text)

    def test_refuses_what_the_log_cannot_hold(self):
        with pytest.raises(InvalidConfigurationError, match="within 292,000 years"):
            parse_time_us("--from-time", "9" * 20)

    @pytest.mark.parametrize(("text", "time_ms"), [("1969-12-31T23:59:59.9991Z", 0), ("7", 7)])
    def test_in_milliseconds_are_rounded_up(self, text, time_ms):
        assert parse_time_ms("--time", text) == time_ms

    @pytest.mark.parametrize(
        ("text", "duration"),
        [
            ("P1DT2H30M", timedelta(days=1, hours=2, minutes=30)),
            ("PT0.5S", timedelta(milliseconds=500)),
            ("-PT1S", timedelta(seconds=-1)),
        ],
    )
    def test_reads_iso_8601_durations(self, text, duration):
        assert parse_duration("--by-duration", text) == duration

    @pytest.mark.parametrize("text", ["1 day", "", "P", "10", "01:00:00"])
    def test_refuses_what_is_no_duration(self, text):
        with pytest.raises(InvalidConfigurationError, match="expected a duration such as P1DT2"):
            parse_duration("--by-duration", text)


class TestPropertiesFile:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "spark-log.properties"

    @pytest.mark.parametrize(
        "line",
        [
            "storage.secret abracadabra",
            "storage.secret: abracadabra",
            "brokers.1.storage.secret abracadabra",
        ],
    )
    def test_a_malformed_storage_option_is_not_shown(self, path, line):
        path.write_text(f"{line}\n")
        with pytest.raises(InvalidConfigurationError, match="line 1: expected key=value") as caught:
            load_properties(path)
        assert "abracadabra" not in str(caught.value) + caught.value.key

    def test_keys_and_values_comments_and_empty_lines(self, path):
        path.write_text(
            "# a comment\n"
            "! another\n"
            "\n"
            "root = s3://bucket/a=b\n"
            "  num.partitions=4  \n"
            "storage.endpoint_url=http://127.0.0.1:7070\n"
            "storage.key = secret=\n"
            "storage.storage.x=1\n"
            "brokers.1.storage.key=secret1\n"
            "brokers.12.storage.endpoint_url = http://127.0.0.1:7071\n"
            "brokers.1.storage.a.b=\n"
        )
        config, storage_options, broker_options = load_properties(path)
        assert config == ToolConfig(root="s3://bucket/a=b", num_partitions=4)
        assert storage_options == {
            "endpoint_url": "http://127.0.0.1:7070",
            "key": "secret=",
            "storage.x": "1",
        }
        assert broker_options == {
            1: {"key": "secret1", "a.b": ""},
            12: {"endpoint_url": "http://127.0.0.1:7071"},
        }

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("brokers.1.endpoint_url", r"expected brokers\.<id>\.storage\."),
            ("brokers.one.storage.key", r"unknown key 'brokers\.one\.storage\.key'"),
            ("brokers.0.storage.key", "broker 0 is the root of the cluster"),
        ],
    )
    def test_a_malformed_option_of_a_broker_is_refused_and_not_shown(self, path, key, expected):
        path.write_text(f"{key}=abracadabra\n")
        with pytest.raises(InvalidConfigurationError, match=expected) as caught:
            load_properties(path)
        assert "abracadabra" not in str(caught.value)

    def test_options_of_brokers_are_the_same_as_keys(self):
        options = {1: {"key": "a", "b.c": "d"}, 20: {"key": ""}}
        keys = to_keys(options)
        assert keys["brokers.1.storage.b.c"] == "d"
        rest = {key.removeprefix("brokers."): value for key, value in keys.items()}
        assert parse_broker_options(rest) == options

    def test_an_empty_file_is_all_defaults(self, path):
        path.write_text("")
        assert load_properties(str(path)) == (ToolConfig(), {}, {})

    def test_a_value_may_be_empty_and_not_ascii(self, path):
        path.write_text("root=/tmp/µ\nstorage.token=\n", "utf-8")
        assert load_properties(path) == (ToolConfig(root="/tmp/µ"), {"token": ""}, {})

    def test_a_line_that_is_none_is_refused_by_its_number(self, path):
        path.write_text("# comment\nroot /tmp\n")
        with pytest.raises(
            InvalidConfigurationError, match=r"line 2: expected key=value"
        ) as caught:
            load_properties(path)
        assert str(path) in caught.value.message

    def test_an_unknown_key_is_refused_with_the_nearest_one(self, path):
        path.write_text("num.partition=4\n")
        with pytest.raises(InvalidConfigurationError) as caught:
            load_properties(path)
        assert caught.value.nearest == "num.partitions"

    def test_no_error_shows_a_storage_option(self, path):
        path.write_text("storage.secret=pa55word\nnum.partitions=0\n")
        with pytest.raises(InvalidConfigurationError) as caught:
            load_properties(path)
        assert "pa55word" not in f"{caught.value} {vars(caught.value)}"

    def test_the_file_that_is_shipped_is_read(self):
        load_properties(PROJECT / "conf/spark-log.properties")
