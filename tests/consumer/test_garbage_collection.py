"""Python's garbage collector does not look through the records of a poll while they are made."""

import gc

import pytest

from spark_log.errors import RecordDeserializationError
from tests.consumer.support import append, numbered, poll_until, values_of

RECORDS = 5_000


@pytest.fixture
def collections():
    """The generations that were collected since."""
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_a_poll_collects_no_garbage_while_it_makes_records(root, open_consumer, collections):
    append(root, numbered(0, RECORDS))
    during = []

    def noted(data):
        during.append(len(collections))
        return [data]  # an object that the collector counts

    consumer = open_consumer("t", value_deserializer=noted, max_poll_records=RECORDS)
    assert len(values_of(poll_until(consumer, RECORDS))) == RECORDS
    assert during[0] == during[-1]
    assert gc.isenabled()


def test_the_collector_continues_after_a_record_that_cannot_be_deserialized(root, open_consumer):
    def refuse(data):
        raise ValueError(data)

    append(root, [b"one"])
    consumer = open_consumer("t", value_deserializer=refuse)
    with pytest.raises(RecordDeserializationError):
        poll_until(consumer, 1)
    assert gc.isenabled()


def test_a_collector_that_the_user_stopped_stays_so(root, open_consumer):
    append(root, [b"one"])
    consumer = open_consumer("t")
    gc.disable()
    try:
        poll_until(consumer, 1)
        assert not gc.isenabled()
    finally:
        gc.enable()
