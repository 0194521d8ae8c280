"""Mistakes that people make who know Kafka's other clients: told early, with what to do."""

import subprocess
import warnings
from datetime import UTC, datetime

import pytest

from spark_log import (
    Admin,
    Consumer,
    IgnoredOptionWarning,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTopicError,
    NewTopic,
    OffsetSpec,
    Producer,
    StorageError,
    TopicPartition,
)
from spark_log.consumer import consumer as consumer_module
from spark_log.errors import InvalidTimestampError
from spark_log.producer import validation
from spark_log.storage.local import LocalStore
from spark_log.storage.os_errors import storage_errors
from tests.storage.full_disk import SmallDisk

T0 = TopicPartition("t", 0)
NOW_MS = 1_764_000_000_000


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("t", topic_configs={"flush.on.append": False})])
    return root


@pytest.fixture
def admin(root):
    return Admin(root)


@pytest.fixture
def producer(root):
    with Producer(root) as producer:
        yield producer


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch):
    monkeypatch.setattr(consumer_module, "_has_warned_of_seconds", False)
    monkeypatch.setattr(validation, "_has_warned_of_seconds", False)


class TestSettingsOfOtherClients:
    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("bootstrap_servers", "Give root, its path or URL, such as root="),
            ("bootstrap.servers", "Give root, its path or URL, such as root="),
            ("metadata.broker.list", "Give root, its path or URL, such as root="),
            ("queue.buffering.max.ms", "its name here is linger_ms"),
            ("message.timeout.ms", "its name here is delivery_timeout_ms"),
            ("enable.partition.eof", "compare position() with end_offsets()"),
        ],
    )
    @pytest.mark.parametrize("client", [Producer, Consumer, Admin])
    def test_that_would_change_what_is_done_are_refused_with_what_to_do_here(
        self, root, client, key, advice
    ):
        for given in ({"root": root}, {}):  # no root is the consequence, not the cause
            with pytest.raises(InvalidConfigurationError) as caught:
                client(**given, **{key: "x"})
            assert repr(key) in caught.value.message
            assert advice in caught.value.message
            assert caught.value.key == key

    @pytest.mark.parametrize("client", [Producer, Consumer, Admin])
    def test_of_connections_are_ignored_with_one_warning(self, root, client):
        keys = ("api_version", "reconnect_backoff_ms", "socket.timeout.ms", "metrics_num_samples")
        with pytest.warns(IgnoredOptionWarning) as caught:
            client(root=root, **dict.fromkeys(keys, "x")).close()
        assert [str(each.message) for each in caught] == [
            f"{client.__name__} ignores {', '.join(keys)}"
        ]
        assert caught[0].filename == __file__, "the line of the program is named"

    def test_a_slip_of_a_setting_that_counts_is_refused_even_if_it_begins_like_one_of_them(
        self, root
    ):
        with pytest.raises(InvalidConfigurationError, match=r"did you mean 'max\.in\.flight"):
            Producer(root, max_in_flight_request_per_connection=1)  # type: ignore[call-arg]

    @pytest.mark.parametrize("key", ["security_protocol", "ssl_cafile", "sasl.mechanism"])
    @pytest.mark.parametrize("client", [Producer, Consumer, Admin])
    def test_of_security_are_ignored_and_the_warning_says_what_takes_their_place(
        self, root, client, key
    ):
        with pytest.warns(
            IgnoredOptionWarning, match=f"ignores {key}: there are no conn"
        ) as caught:
            client(root=root, **{key: "hunter2"}).close()
        (warning,) = caught
        assert "give credentials as storage_options={…}" in str(warning.message)
        assert "hunter2" not in str(warning.message)

    @pytest.mark.parametrize("client", [Producer, Consumer])
    def test_without_a_root_the_error_says_what_it_is(self, client):
        with pytest.raises(InvalidConfigurationError, match="root is missing; give the path"):
            client()

    @pytest.mark.parametrize("client", [Producer, Consumer])
    def test_a_dict_of_settings_as_confluent_takes_it_is_refused(self, client):
        with pytest.raises(InvalidConfigurationError, match="settings are keyword arguments"):
            client({"bootstrap.servers": "localhost:9092"})

    def test_a_typing_error_is_still_answered_with_the_nearest(self, root):
        with pytest.raises(InvalidConfigurationError, match=r"did you mean 'linger\.ms'"):
            Producer(root, linger_msec=5)  # type: ignore[call-arg]


class TestDeserializers:
    @pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
    def test_what_cannot_be_called_is_refused_before_anything_is_read(self, root, name):
        with pytest.raises(InvalidConfigurationError) as caught:
            Consumer("t", root=root, **{name: "utf-8"})  # type: ignore[arg-type]
        assert caught.value.message.startswith(f"{name} is 'utf-8', which is not callable")
        assert "lambda data: data.decode('utf-8')" in caught.value.message

    def test_functions_and_kafka_pythons_objects_are_taken(self, root):
        class Text:
            def deserialize(self, topic, data):
                return data.decode()

        for deserializer in (bytes.decode, Text()):
            Consumer(root=root, value_deserializer=deserializer).close()


class TestTimestamps:
    @pytest.mark.parametrize(
        ("timestamp_ms", "reason"),
        [
            (NOW_MS * 1_000, "it looks like microseconds: divide it by 1_000"),
            (NOW_MS * 1_000_000, "it looks like nanoseconds: divide it by 1_000_000"),
            (-1, "it is negative"),
            (10**13, "it is after the year 2262"),
            ("now", "it is a str"),
            (True, "it is a bool"),
            (float("nan"), "it is a float"),
            (datetime(2026, 1, 1, tzinfo=UTC), r"give int\(time\.timestamp\(\) \* 1000\)"),
        ],
    )
    def test_are_milliseconds_and_the_error_says_what_they_look_like(
        self, producer, timestamp_ms, reason
    ):
        with pytest.raises(InvalidRecordError, match=f"{reason}$"):
            producer.send("t", b"x", timestamp_ms=timestamp_ms)

    @pytest.mark.parametrize("seconds", [NOW_MS // 1_000, NOW_MS / 1_000 + 0.5])
    def test_in_seconds_are_taken_with_one_warning(self, producer, seconds):
        with pytest.warns(UserWarning, match="looks like seconds: multiply it by 1_000") as caught:
            [producer.send("t", b"x", timestamp_ms=seconds) for _ in range(3)]
        assert len(caught) == 1
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("timestamp_ms", [NOW_MS, NOW_MS + 0.25, 0, 5_000, None])
    def test_others_are_taken_without_a_word(self, producer, timestamp_ms):
        with warnings.catch_warnings(action="error"):
            producer.send("t", b"x", timestamp_ms=timestamp_ms)


class TestPollsTimeout:
    @pytest.mark.parametrize("poll", ["poll", "poll_table"])
    def test_one_that_looks_like_seconds_is_told_once(self, root, poll):
        with Consumer("t", root=root) as consumer:
            with pytest.warns(UserWarning, match=r"poll\(1\.0\) waits for 1 millisecond") as caught:
                [getattr(consumer, poll)(1.0) for _ in range(3)]
            assert len(caught) == 1
            assert "timeout_ms=1000" in str(caught[0].message)
            assert caught[0].filename == __file__

    @pytest.mark.parametrize("timeout_ms", [0, 1, 0.0, 10.0, 2])
    def test_others_are_not(self, root, timeout_ms):
        with warnings.catch_warnings(action="error"), Consumer("t", root=root) as consumer:
            consumer.poll(timeout_ms)


class TestTypes:
    @pytest.mark.parametrize("given", [["foo"], "foo", [{"name": "foo"}], NewTopic("foo")])
    def test_topics_are_created_of_new_topics(self, admin, given):
        with pytest.raises(InvalidTopicError, match=r"give a list.* NewTopic|give a list, such as"):
            admin.create_topics(given)
        assert admin.list_topics() == ["t"]

    def test_the_name_that_was_given_is_in_the_example(self, admin):
        with pytest.raises(InvalidTopicError, match=r"\[NewTopic\('foo', num_partitions=3\)\]"):
            admin.create_topics(["foo"])

    @pytest.mark.parametrize("table", [[1], [{"value": b"x"}], b"x", None])
    def test_a_table_is_arrows(self, producer, table):
        with pytest.raises(InvalidRecordError, match=r"is no table; .*pa\.table\("):
            producer.send_table("t", table)

    @pytest.mark.parametrize(
        ("spec", "hint"),
        [
            ("latest", "did you mean OffsetSpec.LATEST?"),
            ("max-timestamp", "did you mean OffsetSpec.MAX_TIMESTAMP?"),
            ("yesterday", "expected an OffsetSpec, or milliseconds"),
            (1.5, "is a float"),
            (None, "is a NoneType"),
        ],
    )
    def test_an_offset_is_asked_for_by_an_offset_spec(self, admin, spec, hint):
        with pytest.raises(InvalidTimestampError) as caught:
            admin.list_offsets({T0: spec})
        assert hint in caught.value.message

    def test_those_that_are_right_are_taken(self, admin):
        assert admin.list_offsets({("t", 0): OffsetSpec.LATEST})[T0].offset == 0
        assert admin.list_offsets({T0: NOW_MS})[T0].offset == -1

    @pytest.mark.parametrize("given", [{"t": -1}, {("t", "0"): -1}, {("t",): -1}, [T0]])
    def test_offsets_are_asked_for_by_partition(self, admin, given):
        for call in (admin.list_offsets, admin.delete_records):
            with pytest.raises(InvalidConfigurationError, match=r"TopicPartition\('topic', 0\)"):
                call(given)

    @pytest.mark.parametrize("offset", ["1", 1.5, None, True])
    def test_records_are_deleted_before_a_whole_number(self, admin, offset):
        with pytest.raises(InvalidConfigurationError, match=r"t-0: .* give the new first offset"):
            admin.delete_records({T0: offset})

    def test_a_topics_name_is_a_text(self, producer):
        with pytest.raises(InvalidTopicError, match="a topic's name is a string; got 5"):
            producer.send(5, b"x")


class TestReadOnlyRoots:
    @pytest.mark.parametrize(
        ("kind", "said"), [(PermissionError(13, "x"), "chmod"), (OSError(30, "x"), "remount,rw")]
    )
    def test_the_error_says_what_was_done_and_what_to_do(self, kind, said):
        with (
            pytest.raises(StorageError, match=r"^a/b: writing failed \(") as caught,
            storage_errors("a/b", "writing"),
        ):
            raise kind
        assert said in caught.value.message
        assert caught.value.path == "a/b"

    def test_on_a_disk_that_is_mounted_read_only(self, tmp_path):
        with SmallDisk(tmp_path / "disk") as disk:
            root = disk.path / "root"
            Admin(root).create_topics([NewTopic("t")])
            remount = ["mount", "-o", "remount,ro", str(disk.path)]
            subprocess.run(remount, check=True, timeout=30)
            store = LocalStore(str(root))
            for action, call in {
                "writing": lambda: store.put("a", b""),
                "deleting": lambda: store.delete("meta.properties"),
            }.items():
                with pytest.raises(StorageError, match="mounted read-only") as caught:
                    call()
                assert f"{action} failed" in caught.value.message
            with Producer(root, delivery_timeout_ms=1_000, retries=0) as producer:
                error = producer.send("t", b"x").exception(60)
            assert "writing failed (Read-only file system)" in str(error)
            with pytest.raises(StorageError, match="mounted read-only"):
                Admin(root).create_topics([NewTopic("u")])
