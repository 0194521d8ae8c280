"""`Producer`: its public methods, and the resulting log."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from spark_log import (
    Admin,
    BufferExhaustedError,
    ConfigResource,
    ConfigResourceType,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRecordError,
    KafkaTimeoutError,
    Producer,
    RecordTooLargeError,
    RootNotFoundError,
    SerializationError,
    StorageError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from tests.log.support import failing
from tests.producer.support import SteppedProducer, by_hand, hooked, new_root, rows, run, values

START_MS = 1_700_000_000_000


@pytest.fixture
def root(tmp_path):
    """A root with the topics ``flights`` (2 partitions) and ``weather`` (1)."""
    return new_root(tmp_path, ("flights", 2), "weather")


class TestSend:
    def test_record_is_in_the_log_where_the_future_says(self, root):
        with Producer(root, linger_ms=0) as producer:
            sent = producer.send(
                "flights", b"UA", b"EWR", [("trace", b"7"), ("trace", None)], 1, START_MS
            )
            metadata = sent.result(10)
        assert (metadata.topic, metadata.partition, metadata.offset) == ("flights", 1, 0)
        assert metadata.timestamp == START_MS
        (row,) = rows(root, "flights")[1]
        assert (row["key"], row["value"]) == (b"EWR", b"UA")
        assert row["headers"] == [{"key": "trace", "value": b"7"}, {"key": "trace", "value": None}]
        assert row["timestamp"].timestamp() * 1000 == START_MS

    def test_without_a_timestamp_it_is_when_it_was_sent(self, root, clock):
        producer = by_hand(root, clock)
        sent = producer.send("weather", b"rain")
        run(producer, clock)
        assert sent.result(0).timestamp == START_MS

    def test_nulls_of_keys_values_and_headers_stay_nulls(self, root, clock):
        producer = by_hand(root, clock)
        given: tuple[Any, ...]
        given = ((None, b"a", None), (b"x", None, [("h", b"1")]), (b"", b"", []))
        for value, key, headers in given:
            producer.send("weather", value, key, headers, 0)
        run(producer, clock)
        found = [(row["value"], row["key"], row["headers"]) for row in rows(root, "weather")[0]]
        assert found == [
            (None, b"a", None),
            (b"x", None, [{"key": "h", "value": b"1"}]),
            (b"", b"", []),
        ]

    def test_records_of_a_thread_keep_their_order(self, root):
        with Producer(root) as producer:
            futures = [producer.send("weather", b"%d" % number) for number in range(5_000)]
            producer.flush(30)
        assert [future.result().offset for future in futures] == list(range(5_000))
        assert values(root, "weather")[0] == [b"%d" % number for number in range(5_000)]

    def test_several_threads_lose_nothing_and_keep_each_its_order(self, root):
        def send(name):
            for number in range(1_500):
                producer.send("flights", b"%s %d" % (name, number), partition=number % 2)

        with Producer(root, linger_ms=1, batch_size=500) as producer:
            threads = [threading.Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for partition, found in values(root, "flights").items():
            for name in (b"a", b"b", b"c"):
                mine = [int(value[2:]) for value in found if value[:1] == name]
                assert mine == list(range(partition, 1_500, 2))

    def test_all_that_came_while_an_append_was_under_way_is_one_append(self, root, clock):
        producer = by_hand(root, clock, linger_ms=0, batch_size=100)
        for number in range(300):
            producer.send("weather", b"%050d" % number)
        assert producer.run_once()
        assert not producer.run_once()
        cluster = Cluster(root)
        view = cluster.partition_log(cluster.topic("weather"), 0).observe()
        assert (view.log_end_offset, len(view.live.segments)) == (300, 1)

    def test_a_batch_lingers_until_it_is_full(self, root, clock):
        producer = by_hand(root, clock, linger_ms=50, batch_size=1_000)
        first = producer.send("weather", b"x" * 100)
        clock.advance_ms(49)
        assert not producer.run_once()
        clock.advance_ms(1)
        assert producer.run_once()
        assert first.done()
        for _ in range(9):
            last = producer.send("weather", b"x" * 100)
        assert producer.run_once()
        assert last.done()

    def test_compression_is_the_writers_where_the_topic_leaves_it_to_it(self, root, clock):
        for compression in ("none", "zstd"):
            producer = by_hand(root, clock, compression_type=compression)
            producer.send("weather", b"a" * 100_000, partition=0)
            run(producer, clock)
        cluster = Cluster(root)
        view = cluster.partition_log(cluster.topic("weather"), 0).observe()
        plain, compressed = (segment.file.size_bytes for segment in view.live.segments)
        assert compressed < plain / 10

    def test_acks_0_is_done_without_offset_when_its_append_begins(self, root, clock):
        producer = by_hand(root, clock, acks=0)
        sent = producer.send("weather", b"x")
        store = hooked(producer)
        seen = []

        def noted(path, call):
            seen.append(sent.done())
            call()

        store.once("put_if_absent", noted)
        run(producer, clock)
        assert seen == [True]
        assert sent.result().offset == -1
        assert values(root, "weather") == {0: [b"x"]}

    def test_topic_that_stamps_records_tells_its_stamp(self, tmp_path, clock):
        root = new_root(tmp_path, "stamped", **{"message.timestamp.type": "LogAppendTime"})
        producer = by_hand(root, clock)
        sent = producer.send("stamped", b"x", timestamp_ms=5)
        run(producer, clock)
        assert sent.result().timestamp == START_MS + 5  # linger.ms later


class TestSerializers:
    def test_functions_and_kafka_pythons_objects_make_bytes(self, root):
        class Upper:
            def serialize(self, topic, value):
                return f"{topic} {value}".upper().encode()

        with Producer(root, key_serializer=str.encode, value_serializer=Upper()) as producer:
            producer.send("weather", "rain", "JFK")
        ((row),) = rows(root, "weather")[0]
        assert (row["key"], row["value"]) == (b"JFK", b"WEATHER RAIN")

    def test_only_the_record_fails_that_the_serializer_does_not_take(self, root):
        with Producer(root, value_serializer=str.encode) as producer:
            good, bad, other = (producer.send("weather", value) for value in ("a", 7, "b"))
            error = bad.exception(0)
            assert isinstance(error, SerializationError)
            assert "int" in error.message
            assert [good.result(10).offset, other.result(10).offset] == [0, 1]

    def test_what_is_not_bytes_needs_a_serializer(self, root):
        with (
            Producer(root) as producer,
            pytest.raises(SerializationError, match="value_serializer"),
        ):
            producer.send("weather", "text")

    def test_buffers_are_copied_when_they_are_sent(self, root):
        with Producer(root) as producer:
            value = bytearray(b"before")
            producer.send("weather", value)
            value[:] = b"after!"
        assert values(root, "weather") == {0: [b"before"]}

    def test_what_cannot_serialize_is_refused(self, root):
        with pytest.raises(InvalidConfigurationError, match="value_serializer"):
            Producer(root, value_serializer="utf-8")


class TestBadInput:
    def test_unknown_topic_is_refused_at_once_with_a_near_one(self, root):
        with (
            Producer(root) as producer,
            pytest.raises(UnknownTopicOrPartitionError, match="flights"),
        ):
            producer.send("flight", b"x")

    @pytest.mark.parametrize("partition", [2, -1, "0", True])
    def test_unknown_partition_is_refused(self, root, partition):
        with Producer(root) as producer:
            for _ in range(2):
                with pytest.raises(InvalidPartitionsError, match="has 2"):
                    producer.send("flights", b"x", partition=partition)
                for each in range(2):  # batches that are open, and have room, change nothing
                    producer.send("flights", b"y", partition=each)

    def test_records_for_a_partition_join_its_open_batch_with_key_and_headers(self, root, clock):
        producer = by_hand(root, clock)
        for number in range(2):
            producer.send("flights", b"v%d" % number, b"k", [("h", b"1")], partition=np.int64(1))
            producer.send("flights", b"w%d" % number, b"k", [("h", b"1")], partition=1)
        run(producer, clock)
        found = rows(root, "flights")
        assert found[0] == []
        assert [row["value"] for row in found[1]] == [b"v0", b"w0", b"v1", b"w1"]
        assert all(row["key"] == b"k" for row in found[1])
        assert all(row["headers"] == [{"key": "h", "value": b"1"}] for row in found[1])

    def test_root_that_is_not_there_is_refused(self, tmp_path):
        with pytest.raises(RootNotFoundError):
            Producer(tmp_path / "nowhere")

    def test_record_that_is_too_large_fails_alone(self, root, clock):
        producer = by_hand(root, clock, max_request_size=1_000)
        small, large, exact = (producer.send("weather", b"x" * size) for size in (9, 1_001, 1_000))
        run(producer, clock)
        assert isinstance(large.exception(0), RecordTooLargeError)
        assert [small.result(0).offset, exact.result(0).offset] == [0, 1]
        assert [each.was_refused for each in (small, large, exact)] == [False, True, False]

    def test_topics_limit_counts_too(self, tmp_path, clock):
        root = new_root(tmp_path, "small", **{"max.message.bytes": 100})
        producer = by_hand(root, clock)
        assert isinstance(producer.send("small", b"x" * 101).exception(0), RecordTooLargeError)

    @pytest.mark.parametrize("headers", [[("a",)], [(b"a", b"b")], 7, [("a", "text")]])
    def test_headers_are_pairs_of_text_and_bytes(self, root, headers):
        with Producer(root) as producer, pytest.raises(InvalidRecordError, match="pairs"):
            producer.send("weather", b"x", headers=headers)

    def test_names_of_headers_are_unicode(self, root):
        with Producer(root) as producer, pytest.raises(InvalidRecordError, match=r"'a\\udcff'"):
            producer.send("weather", b"x", headers=[("a\udcff", b"1")])

    @pytest.mark.parametrize("timestamp_ms", [-1, "now", 2**63, True])
    def test_timestamp_is_milliseconds_since_the_epoch(self, root, timestamp_ms):
        with Producer(root) as producer, pytest.raises(InvalidRecordError, match="timestamp_ms"):
            producer.send("weather", b"x", timestamp_ms=timestamp_ms)

    def test_only_the_record_fails_whose_time_the_topic_does_not_take(self, tmp_path, clock):
        root = new_root(tmp_path, "fresh", **{"message.timestamp.after.max.ms": 1_000})
        producer = by_hand(root, clock)
        sent = [
            producer.send("fresh", b"%d" % number, timestamp_ms=START_MS + after_ms)
            for number, after_ms in enumerate((0, 900_000, 1, 2, 950_000))
        ]
        run(producer, clock)
        assert [future.failed() for future in sent] == [False, True, False, False, True]
        assert [sent[row].result().offset for row in (0, 2, 3)] == [0, 1, 2]
        assert [sent[row].result().timestamp - START_MS for row in (0, 2, 3)] == [0, 1, 2]
        assert values(root, "fresh") == {0: [b"0", b"2", b"3"]}

    def test_unknown_key_names_the_nearest(self, root):
        with pytest.raises(InvalidConfigurationError, match=r"linger\.ms"):
            Producer(root, linger_msec=5)  # type: ignore[call-arg]

    @pytest.mark.parametrize("other", [{"acks": 0}, {"acks": 1}, {"retries": 0}])
    def test_idempotence_that_cannot_be_is_refused_where_it_was_asked_for(self, root, other):
        with pytest.raises(InvalidConfigurationError, match="idempotence"):
            Producer(root, enable_idempotence=True, **other)
        assert not Producer(root, **other).config.enable_idempotence
        assert Producer(root).config.enable_idempotence

    def test_delivery_timeout_below_linger_is_refused(self, root):
        with pytest.raises(InvalidConfigurationError, match=r"linger\.ms"):
            Producer(root, linger_ms=100, delivery_timeout_ms=99)


class TestFuture:
    def test_waiting_ends_when_its_time_is_over(self, root):
        with Producer(root, linger_ms=600_000, delivery_timeout_ms=900_000) as producer:
            sent = producer.send("weather", b"x")
            with pytest.raises(KafkaTimeoutError, match="still on its way"):
                sent.result(timeout=0.001)
            with pytest.raises(TimeoutError):
                sent.exception(timeout=0)
            assert not sent.done()
            assert sent.running()
            assert not sent.cancel()

    def test_callbacks_are_called_with_what_became_of_it(self, root, clock):
        producer = by_hand(root, clock)
        seen: list[Any] = []
        sent = producer.send("weather", b"x")
        sent.add_callback(lambda *args, **kwargs: seen.append((args, kwargs)), "given", more=1)
        sent.add_errback(seen.append)
        sent.add_done_callback(lambda future: seen.append(future is not None and future.done()))
        run(producer, clock)
        sent.add_done_callback(lambda future: seen.append("late"))
        assert seen == [(("given", sent.result()), {"more": 1}), True, "late"]

    def test_errbacks_are_called_with_the_error(self, root, clock):
        producer = by_hand(root, clock, max_request_size=1)
        seen: list[Any] = []
        sent = producer.send("weather", b"xx")
        sent.add_callback(seen.append).add_errback(seen.append)
        assert seen == [sent.exception()]

    def test_a_callback_that_fails_harms_nobody(self, root, clock, caplog):
        producer = by_hand(root, clock)
        first, second = producer.send("weather", b"a"), producer.send("weather", b"b")
        first.add_done_callback(lambda future: 1 / 0)
        run(producer, clock)
        assert second.result(0).offset == 1
        assert "callback" in caplog.text

    def test_futures_are_themselves(self, root, clock):
        producer = by_hand(root, clock)
        first, second = producer.send("weather", b"a"), producer.send("weather", b"b")
        assert len({first, second, first}) == 2
        assert first != second
        run(producer, clock)

    def test_a_future_that_is_kept_does_not_keep_the_records(self, root, clock):
        producer = by_hand(root, clock)
        sent = producer.send("weather", b"x" * 1_000)
        run(producer, clock)
        assert sent[0].records == []
        assert sent.result().timestamp == START_MS


class TestBuffer:
    def test_full_buffer_blocks_and_then_says_so(self, root):
        producer = SteppedProducer(root, buffer_memory=1_000, batch_size=100, max_block_ms=30)
        for _ in range(10):
            producer.send("weather", b"x" * 60)
        with pytest.raises(BufferExhaustedError, match=r"buffer\.memory") as caught:
            producer.send("weather", b"x" * 60)
        assert caught.value.buffer_bytes == 1_000
        assert producer.metrics()["producer-metrics"]["buffer-exhausted-wait-time-total"] >= 30

    def test_who_waits_for_room_makes_the_rest_go_and_goes_on(self, root):
        with Producer(root, buffer_memory=2_000, linger_ms=60_000, batch_size=1_000) as producer:
            began = time.monotonic()
            for number in range(200):
                producer.send("flights", b"%0100d" % number, partition=number % 2)
            assert time.monotonic() - began < 30
        assert sum(map(len, values(root, "flights").values())) == 200

    def test_memory_is_given_back(self, root, clock):
        producer = by_hand(root, clock)
        for number in range(100):
            producer.send("flights", b"x" * 1_000, partition=number % 2)
        run(producer, clock)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        assert metrics["records-in-flight"] == 0


class TestFlushAndClose:
    def test_flush_does_not_linger(self, root):
        with Producer(root, linger_ms=600_000, delivery_timeout_ms=900_000) as producer:
            sent = producer.send("weather", b"x")
            producer.flush(10)
            assert sent.done()

    def test_flush_that_takes_too_long_says_what_is_left(self, root):
        producer = SteppedProducer(root)
        producer.send("weather", b"x")
        with pytest.raises(KafkaTimeoutError, match="1 records"):
            producer.flush(0.001)

    def test_flush_in_a_callback_would_wait_for_itself(self, root):
        with Producer(root, linger_ms=0) as producer:
            seen = []

            def flush(_):
                try:
                    producer.flush()
                except IllegalStateError as error:
                    seen.append(error)

            sent = producer.send("weather", b"x")
            sent.add_done_callback(flush)
            sent.result(10)
            producer.flush(10)
            assert "callback" in seen[0].message

    def test_close_sends_what_waits(self, root):
        producer = Producer(root, linger_ms=600_000, delivery_timeout_ms=900_000)
        sent = producer.send("weather", b"x")
        producer.close(10)
        assert sent.result(0).offset == 0
        producer.close()
        for call in (lambda: producer.send("weather", b"x"), lambda: producer.partitions_for("x")):
            with pytest.raises(IllegalStateError, match="closed"):
                call()

    def test_repr_tells_root_and_client_id(self, root):
        with Producer(root, client_id="loader") as producer:
            assert repr(producer) == f"<Producer root='{root}' client_id='loader'>"

    def test_close_ends_its_threads(self, root):
        with Producer(root, client_id="ending", linger_ms=0) as producer:
            producer.send("weather", b"x").result(10)
            assert any("ending" in thread.name for thread in threading.enumerate())
        assert not any("ending" in thread.name for thread in threading.enumerate())

    def test_what_close_has_no_time_for_fails(self, root, caplog):
        producer = Producer(root, linger_ms=0)
        store = hooked(producer)
        hangs, may_go_on = threading.Event(), threading.Event()

        def hang(path, call):
            hangs.set()
            may_go_on.wait(30)
            return call()

        store.on("put_if_absent", hang)
        sent = producer.send("weather", b"x")
        hangs.wait(10)
        producer.close(0.01)
        with pytest.raises(UnknownOutcomeError, match=r"may be in the log or not.*was closed"):
            sent.result(0)
        assert "1 records were not acknowledged" in caplog.text
        may_go_on.set()


class TestMetadata:
    def test_partitions_for(self, root):
        with Producer(root) as producer:
            assert producer.partitions_for("flights") == {0, 1}
            with pytest.raises(UnknownTopicOrPartitionError):
                producer.partitions_for("nothing")

    def test_partitions_that_are_added_are_used_when_metadata_is_old(self, root, clock):
        from spark_log.metadata.records import PartitionRecord

        producer = by_hand(root, clock, metadata_max_age_ms=1_000, partitioner="round_robin")
        producer.send("weather", b"x")
        run(producer, clock, until_ms=100)
        cluster = Cluster(root)
        topic_id = cluster.topic("weather").topic_id
        added = PartitionRecord(topic_id=topic_id, partition_id=1)
        cluster.metadata.commit(lambda image: [added])
        assert producer.partitions_for("weather") == {0}
        clock.advance_ms(1_000)
        for _ in range(4):
            producer.send("weather", b"y")
        run(producer, clock)
        assert len(values(root, "weather")[1]) == 2

    @pytest.mark.partition_logs_only("an append writes snapshots and merges")
    def test_settings_changed_during_an_append_count_from_the_next_one(self, root, clock):
        producer = by_hand(root, clock)
        producer.send("weather", b"x")
        run(producer, clock)

        def change(path, call):
            changed = {"message.timestamp.type": "LogAppendTime"}
            topic = ConfigResource(ConfigResourceType.TOPIC, "weather", changed)
            Admin(root, clock=clock).alter_configs([topic])
            producer.refresh("weather")
            call()

        hooked(producer).once("put_if_absent", change)
        producer.forget_log("weather")  # opened anew, behind the hooks
        for _ in range(2):
            producer.send("weather", b"y", timestamp_ms=1_000)
            run(producer, clock)
        times = [row["timestamp"].timestamp() for row in rows(root, "weather")[0]]
        assert times[1] == 1
        assert times[2] > 1

    def test_metrics_count_what_was_sent(self, root, clock):
        producer = by_hand(root, clock)
        for _ in range(30):
            producer.send("weather", b"x" * 10)
        producer.send("weather", b"x" * 2_000_000)
        run(producer, clock)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["record-send-total"] == 30
        assert metrics["records-per-request-avg"] == 30
        assert metrics["request-total"] == 1

    @pytest.mark.partition_logs_only("an append writes snapshots and merges")
    def test_metrics_count_what_failed_behind_an_append(self, tmp_path, clock):
        root = new_root(tmp_path, "weather", **{"snapshot.interval.segments": 1})
        producer = by_hand(root, clock)
        store = hooked(producer)
        assert producer.metrics()["suppressed-errors"] == {"suppressed-errors-total": 0}
        store.on("put", failing(StorageError("no room")))
        for offset in range(4):
            sent = producer.send("weather", b"x")
            run(producer, clock)
            assert sent.result(0).offset == offset
        figures = producer.metrics()["suppressed-errors"]
        assert figures["snapshot-errors-total"] == figures["suppressed-errors-total"] >= 1
