"""A producer whose client id has a quota pauses, and neither loses nor reorders records."""

import logging
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from spark_log import Admin, BufferExhaustedError, KafkaTimeoutError, Producer
from spark_log.errors import StorageUnavailableError
from spark_log.util.clock import SYSTEM_CLOCK
from tests.producer.support import InspectedProducer, by_hand, new_root, run, values


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, ("flights", 3), "weather")


def limit(root, bytes_per_second, client_id="loader"):
    Admin(root).alter_client_quotas({client_id: {"producer_byte_rate": bytes_per_second}})


def sized(root, clock, records=100, **config):
    """Return the size of the segment of one append of this many records."""
    producer = by_hand(root, clock, **config)
    send(producer, records)
    run(producer, clock)
    return int(producer.metrics()["producer-metrics"]["outgoing-byte-total"])


def send(producer, records=100, topic="weather", **more):
    return [producer.send(topic, b"%0100d" % number, **more) for number in range(records)]


def wait_until_asleep(producer):
    """Wait until the leader thread sleeps until the end of the pause."""
    accumulator = producer.accumulator
    for _ in range(30_000):
        with accumulator.lock:
            if accumulator.ready.leader_wakes_ms > SYSTEM_CLOCK.monotonic_ms() + 60_000:
                return
        threading.Event().wait(0.001)
    raise AssertionError("it never slept")


def throttle_ms(producer):
    metrics = producer.metrics()["producer-metrics"]
    return metrics["produce-throttle-time-avg"], metrics["produce-throttle-time-max"]


class TestPauses:
    def test_after_too_much_was_appended_all_that_follows_waits(self, root, clock):
        """Also records of other partitions and topics, and full batches."""
        limit(root, 100)
        producer = by_hand(root, clock, client_id="loader", linger_ms=0)
        first = send(producer)
        assert producer.run_once()
        assert first[-1].done()
        appended_ms = clock.monotonic_ms()
        size_bytes = producer.metrics()["producer-metrics"]["outgoing-byte-total"]
        pause_ms = size_bytes / 100 * 1_000 - 11_000
        assert throttle_ms(producer) == (pytest.approx(pause_ms), pytest.approx(pause_ms))
        second = send(producer, 500, topic="flights", partition=1)
        assert not producer.run_once()
        assert producer.next_ready_ms() - appended_ms <= pause_ms + 1
        clock.advance_ms(pause_ms - 1)
        assert not any(future.done() for future in second)
        clock.advance_ms(2)
        assert producer.run_once()
        assert second[0].done()

    def test_the_long_run_is_at_the_quota_and_every_record_there_in_order(self, root, clock):
        size_bytes = sized(root, clock, compression_type="zstd")
        limit(root, size_bytes)  # what is appended counts: after compression
        config = {"compression_type": "zstd", "delivery_timeout_ms": 10**9, "batch_size": 10_000}
        producer = by_hand(root, clock, client_id="loader", **config)
        began_ms = clock.monotonic_ms()
        for part in range(60):
            sent = [producer.send("flights", b"%d" % part, partition=0) for _ in range(100)]
            send(producer)
            run(producer, clock)
        assert sent[-1].done()
        seconds = (clock.monotonic_ms() - began_ms) / 1_000
        total = producer.metrics()["producer-metrics"]["outgoing-byte-total"]
        assert 0.9 * size_bytes < total / (seconds + 11) <= 1.1 * size_bytes
        expected = [b"%d" % part for part in range(60) for _ in range(100)]
        assert values(root, "flights")[0] == expected

    def test_an_append_takes_no_more_than_a_second_s_share_where_it_can(self, root, clock):
        limit(root, 5_000)
        config = {"client_id": "loader", "batch_size": 1_000, "delivery_timeout_ms": 10**9}
        producer = by_hand(root, clock, **config)
        send(producer, 1_000)
        run(producer, clock)
        assert throttle_ms(producer)[1] < 2_500
        assert values(root, "weather")[0] == [b"%0100d" % number for number in range(1_000)]

    def test_no_partition_starves_behind_one_that_always_has_more(self, root, clock):
        limit(root, 3_000)
        producer = by_hand(root, clock, client_id="loader", batch_size=2_000, linger_ms=50)
        waiting: Any = None
        for second in range(100):
            send(producer, 40, topic="flights", partition=0)
            if second == 20:
                waiting = producer.send("flights", b"alone", partition=1)
            while producer.run_once():
                pass
            if waiting is not None and waiting.done():
                break
            clock.advance_ms(1_000)
        assert waiting.result(0).offset == 0
        assert producer.metrics()["producer-metrics"]["records-in-flight"] > 0

    def test_nobody_is_woken_for_what_has_to_wait(self, root, clock):
        limit(root, 1)
        producer = by_hand(root, clock, client_id="loader", linger_ms=0)
        send(producer)
        assert producer.run_once()
        accumulator = producer.accumulator
        accumulator.ready.leader_wakes_ms = accumulator.ready.muted_until_ms
        send(producer, topic="flights")
        assert accumulator.ready.leader_wakes_ms == accumulator.ready.muted_until_ms

    def test_who_has_none_does_not_wait(self, root, clock):
        limit(root, 1, client_id="another")
        producer = by_hand(root, clock, client_id="loader", linger_ms=0)
        for _ in range(5):
            (sent,) = send(producer, 1)
            assert producer.run_once()
            assert sent.done()
        assert throttle_ms(producer) == (0, 0)

    def test_the_default_counts_for_all_that_have_none_of_their_own(self, root, clock):
        limit(root, 1, client_id=None)
        limit(root, 10**9, client_id="loader")
        for client_id, waits in (("", True), ("another", True), ("loader", False)):
            producer = by_hand(root, clock, client_id=client_id, linger_ms=0)
            send(producer)
            run(producer, clock, until_ms=10)
            assert (throttle_ms(producer)[1] > 0) == waits


class TestTimeouts:
    def test_what_waits_too_long_fails_and_says_why(self, root, clock):
        limit(root, 1)
        producer = by_hand(root, clock, client_id="loader", delivery_timeout_ms=5_000)
        send(producer)
        run(producer, clock, until_ms=100)
        (late,) = send(producer, 1)
        run(producer, clock, until_ms=6_000)
        with pytest.raises(KafkaTimeoutError, match=r"1 bytes a second \(producer_byte_rate\)"):
            late.result(0)
        assert len(values(root, "weather")[0]) == 100

    def test_a_full_buffer_says_why(self, root):
        limit(root, 1)
        producer = Producer(
            root, client_id="loader", buffer_memory=20_000, max_block_ms=0, linger_ms=0
        )
        producer.send("weather", b"x" * 1_000).result(30)
        for _ in range(10):
            producer.send("weather", b"x" * 1_000)
        with pytest.raises(BufferExhaustedError, match="held to its quota"):
            producer.send("flights", b"x" * 10_000)
        producer.close(0)

    def test_flush_and_close_take_no_longer_than_they_may(self, root):
        limit(root, 1)
        before = set(threading.enumerate())
        producer = Producer(root, client_id="loader", linger_ms=0)
        producer.send("weather", b"x").result(30)
        waiting = producer.send("weather", b"y")
        with pytest.raises(KafkaTimeoutError, match="1 records are not acknowledged"):
            producer.flush(0.01)
        producer.close(0.01)
        assert waiting.exception(0) is not None
        assert set(threading.enumerate()) <= before


class TestChanges:
    def test_another_quota_counts_from_the_next_append_on(self, root, clock):
        producer = by_hand(root, clock, client_id="loader", linger_ms=0)
        send(producer)
        run(producer, clock)
        assert throttle_ms(producer) == (0, 0)
        limit(root, 10)
        send(producer)
        assert producer.run_once()
        assert throttle_ms(producer)[1] > 0

    @pytest.mark.parametrize("changed", [10**9, None])
    def test_who_waits_looks_again_when_metadata_is_old(self, root, clock, changed):
        limit(root, 1)
        producer = by_hand(root, clock, client_id="loader", metadata_max_age_ms=3_000)
        send(producer)
        run(producer, clock, until_ms=10)
        (waiting,) = send(producer, 1)
        limit(root, changed)
        run(producer, clock, until_ms=2_900)
        assert not waiting.done()
        run(producer, clock, until_ms=3_100)
        assert waiting.done()

    @pytest.mark.parametrize("metadata_max_age_ms", [0, 1_000])
    def test_it_goes_on_waiting_where_the_metadata_cannot_be_read(
        self, root, clock, caplog, metadata_max_age_ms
    ):
        """And reads the quota at most once a second."""
        limit(root, 1)
        config = {"client_id": "loader", "metadata_max_age_ms": metadata_max_age_ms}
        producer = by_hand(root, clock, **config)
        send(producer)
        run(producer, clock, until_ms=10)
        (waiting,) = send(producer, 1)
        looks = []

        def refuse():
            looks.append(clock.monotonic_ms())
            raise StorageUnavailableError("away", path="x")

        producer.cluster.image = refuse
        with caplog.at_level(logging.INFO):
            run(producer, clock, until_ms=5_000)
        assert not waiting.done()
        assert len(looks) == 5
        assert "the quota cannot be read, and stays as it was: away" in caplog.text

    def test_who_sleeps_is_woken_when_another_thread_has_looked(self, root):
        limit(root, 1)
        producer = InspectedProducer(root, client_id="loader", linger_ms=0)
        producer.send("weather", b"x" * 100_000).result(30)
        waiting = producer.send("weather", b"y")
        wait_until_asleep(producer)
        limit(root, None)
        producer.refresh("weather")
        assert waiting.exception(30) is None
        producer.close()

    def test_with_threads_who_waits_goes_on_as_soon_as_it_has_looked(self, root):
        limit(root, 1)
        producer = Producer(root, client_id="loader", linger_ms=0, metadata_max_age_ms=0)
        producer.send("weather", b"x" * 100_000).result(30)
        sent = [producer.send("flights", b"%d" % n, partition=n % 3) for n in range(30)]
        limit(root, None)
        for future in sent:
            assert future.exception(30) is None
        producer.close()

    def test_a_look_that_hangs_keeps_nobody_from_expiring(self, root, monkeypatch):
        limit(root, 1)
        config: dict[str, Any] = {"metadata_max_age_ms": 0, "delivery_timeout_ms": 1_500}
        producer = InspectedProducer(root, client_id="loader", linger_ms=0, **config)
        producer.send("weather", b"x" * 100_000).result(30)
        looking, may_go_on = threading.Event(), threading.Event()
        image, sending = producer.cluster.image, threading.current_thread()

        def hang():
            if threading.current_thread() is sending:
                return image()
            looking.set()
            may_go_on.wait(60)
            return image()

        monkeypatch.setattr(producer.cluster, "image", hang)
        late = producer.send("weather", b"y")
        assert looking.wait(30)
        assert isinstance(late.exception(30), KafkaTimeoutError)
        may_go_on.set()
        producer.close(0)


def test_a_quota_costs_no_further_look_at_the_metadata(root, clock, monkeypatch):
    limit(root, 10**9)
    producer = by_hand(root, clock, client_id="loader", linger_ms=0)
    send(producer, 1)
    run(producer, clock)
    look = Mock(side_effect=producer.cluster.image)
    monkeypatch.setattr(producer.cluster, "image", look)
    send(producer, 1)
    run(producer, clock)
    assert look.call_count == 1  # the check that the topic still exists, as after every append
