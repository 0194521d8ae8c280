"""Interceptors see and change records before they are sent, and see their outcome."""

import pytest

from spark_log import RecordTooLargeError, SerializationError
from tests.producer.support import by_hand, new_root, run, values


class Spy:
    def __init__(self):
        self.sent, self.ended, self.is_closed = [], [], False

    def on_send(self, record):
        self.sent.append(record.value)
        return record._replace(value=record.value + "!")

    def on_acknowledgement(self, metadata, exception):
        self.ended.append(exception if metadata is None else metadata.offset)

    def close(self):
        self.is_closed = True


@pytest.fixture
def root(tmp_path):
    return new_root(tmp_path, "weather")


def test_one_after_the_other_they_change_what_is_sent_and_are_told_of_its_end(root, clock):
    first, second = Spy(), Spy()
    producer = by_hand(root, clock, interceptors=[first, second], value_serializer=str.encode)
    producer.send("weather", "a")
    producer.send("weather", "b")
    producer.close()
    assert (first.sent, second.sent) == (["a", "b"], ["a!", "b!"])
    assert first.ended == second.ended == [0, 1]
    assert first.is_closed
    assert values(root, "weather") == {0: [b"a!!", b"b!!"]}


def test_they_are_told_of_what_was_never_taken(root, clock):
    ended = []

    class Ends:
        def on_acknowledgement(self, metadata, exception):
            ended.append(type(exception))

    producer = by_hand(
        root, clock, interceptors=[Ends()], value_serializer=str.encode, max_request_size=3
    )
    producer.send("weather", 7)
    producer.send("weather", "long")
    run(producer, clock)
    assert ended == [SerializationError, RecordTooLargeError]


def test_one_that_fails_harms_nobody(root, clock, caplog):
    class Broken:
        def on_send(self, record):
            raise ZeroDivisionError

        on_acknowledgement = close = on_send

    producer = by_hand(root, clock, interceptors=[Broken()])
    sent = producer.send("weather", b"x")
    run(producer, clock)
    producer.close()
    assert sent.result(0).offset == 0
    assert "on_send failed" in caplog.text
    assert "on_acknowledgement failed" in caplog.text
