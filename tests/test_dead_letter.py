"""Dead letters have the origin of a record, and the reason why it could not be processed."""

import pytest

from spark_log import ConsumerRecord, InvalidRecordError, RecordDeserializationError
from spark_log.dead_letter import DeadLetter, DeadLetters


class Outgoing:
    """A producer that keeps what it is given."""

    def __init__(self):
        self.sent = []

    def send(self, topic, value=None, key=None, headers=None):
        self.sent.append((topic, value, key, headers))
        return "a future"


def record(**fields):
    given = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 0,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1")],
        "leader_epoch": 0,
        **fields,
    }
    return ConsumerRecord(**given)


@pytest.fixture
def outgoing():
    return Outgoing()


def as_record(sent, **fields):
    topic, value, key, headers = sent
    return record(topic=topic, value=value, key=key, headers=headers, **fields)


def test_a_letter_has_the_record_and_says_where_it_was_and_why(outgoing):
    assert DeadLetters(outgoing, "dead").send(record(), ValueError("bad")) == "a future"
    ((topic, value, key, headers),) = outgoing.sent
    assert (topic, value, key) == ("dead", b"v", b"k")
    assert headers == [
        ("h", b"1"),
        ("dead_letter.topic", b"t"),
        ("dead_letter.partition", b"2"),
        ("dead_letter.offset", b"7"),
        ("dead_letter.error", b"ValueError: bad"),
        ("dead_letter.attempt", b"1"),
    ]
    assert DeadLetter.of(as_record(outgoing.sent[0])) == DeadLetter("t", 2, 7, "ValueError: bad", 1)


def test_a_letter_that_fails_again_keeps_where_it_was_first_and_counts_on(outgoing):
    letters = DeadLetters(outgoing, "dead")
    letters.send(record(), ValueError("first"))
    letters.send(as_record(outgoing.sent[0], partition=0, offset=99), KeyError("second"))
    again = as_record(outgoing.sent[1])
    assert DeadLetter.of(again) == DeadLetter("t", 2, 7, "KeyError: 'second'", 2)
    assert again.headers[0] == ("h", b"1")
    assert len(again.headers) == 6


def test_what_a_deserializer_refused_goes_as_its_bytes(outgoing):
    refused = RecordDeserializationError(
        "no", topic="t", partition=1, offset=5, key=b"k", value=b"\xff", headers=(("h", None),)
    )
    DeadLetters(outgoing, "dead").send(refused)
    _, value, key, headers = outgoing.sent[0]
    assert (value, key, headers[0]) == (b"\xff", b"k", ("h", None))
    letter = DeadLetter.of(as_record(outgoing.sent[0]))
    assert letter is not None
    assert (letter.partition, letter.offset) == (1, 5)
    assert letter.error.startswith("RecordDeserializationError")


def test_a_record_without_letter_headers_is_none():
    assert DeadLetter.of(record()) is None


def test_headers_that_only_look_like_it_are_an_error():
    with pytest.raises(InvalidRecordError, match="offset 7 of t-2"):
        DeadLetter.of(record(headers=[("dead_letter.offset", b"x")]))


def test_a_reason_has_to_be_given(outgoing):
    with pytest.raises(ValueError, match="error"):
        DeadLetters(outgoing, "dead").send(record())
    assert outgoing.sent == []
