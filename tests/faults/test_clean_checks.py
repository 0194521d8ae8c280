"""`clean_checks` finds errors that are planted in topics and histories."""

import pytest

from spark_log import Admin, NewTopic, Producer, TopicPartition
from spark_log.testing.history import Polled
from tests.faults.clean_checks import check_results
from tests.faults.clean_clients import ENDED, EXPIRING, KEPT, TABLE, TOPICS, text_of
from tests.faults.operation_notes import OperationNotes

RECORDS = [text_of(f"0.0.{number}", f"0-{number % 2}", is_tombstone=False) for number in range(4)]


@pytest.fixture
def notes_of(tmp_path):
    """Return the notes of a client of a topic."""
    return lambda client, topic: OperationNotes(tmp_path / f"{client}.{topic}")


@pytest.fixture
def root(tmp_path, notes_of):
    """Topics in which each of two keys has two records, all acknowledged."""
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic(topic, 1) for topic in TOPICS])
    with Producer(root) as producer:
        for topic in TOPICS:
            with notes_of("producer-0.0", topic) as notes:
                for text in RECORDS:
                    name, key, _ = text.split()
                    operation = notes.begin(TopicPartition(topic, 0), text)
                    headers = [("name", name.encode())]
                    future = producer.send(topic, name.encode(), key=key.encode(), headers=headers)
                    notes.acknowledge(operation, [future.result().offset])
    return root


@pytest.fixture
def read(notes_of):
    """Note that a consumer read records of a topic from its beginning."""

    def read(topic, *records):
        partition = TopicPartition(topic, 0)
        with notes_of("consumer-0.0", topic) as notes:
            notes.assign([partition], 0)
            notes.poll(*(Polled(partition, *record) for record in records))

    return read


@pytest.fixture
def send(notes_of):
    """Note that a record was sent, and acknowledged if it has an offset."""

    def send(topic, text, offset=None):
        with notes_of("producer-1.0", topic) as notes:
            operation = notes.begin(TopicPartition(topic, 0), text)
            if offset is not None:
                notes.acknowledge(operation, [offset])

    return send


def test_what_is_as_it_was_acknowledged_is_in_order(root, tmp_path, read):
    read(KEPT, (0, RECORDS[0]))
    counts = check_results(root, None, tmp_path)
    assert (counts[f"{KEPT}: acknowledged"], counts[f"{KEPT}: read"]) == (4, 1)


@pytest.mark.parametrize(
    ("topic", "offset", "wrong"),
    [
        (KEPT, 9, "unseen"),
        (KEPT, 2, "lost-write"),
        (TABLE, 2, "inconsistent-offsets"),
        (EXPIRING, 9, "lost"),
        (TABLE, 9, r"instead of 1\.0\.0"),
    ],
)
def test_an_acknowledged_record_that_is_not_there(root, tmp_path, send, topic, offset, wrong):
    send(topic, "1.0.0 0-1 value", offset)
    with pytest.raises(AssertionError, match=wrong):
        check_results(root, None, tmp_path)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_record_at_another_offset_than_it_was_acknowledged_at(root, tmp_path, send, topic):
    send(topic, RECORDS[3], 1)
    with pytest.raises(AssertionError, match="inconsistent-offsets"):
        check_results(root, None, tmp_path)


@pytest.mark.parametrize(
    ("topic", "records", "wrong"),
    [
        (KEPT, [(1, RECORDS[1])], "poll-skip"),
        (TABLE, [(1, RECORDS[1]), (0, RECORDS[0])], "nonmonotonic-poll"),
        (TABLE, [(0, RECORDS[1])], "inconsistent-offsets"),
        (EXPIRING, [(4, "0.0.4 0-0 value")], "garbage-read"),
        (TABLE, [(3, "0.0.3 0-1 null")], "garbage-read"),
    ],
)
def test_a_consumer_that_saw_what_it_should_not_see(root, tmp_path, read, topic, records, wrong):
    read(topic, *records)
    with pytest.raises(AssertionError, match=wrong):
        check_results(root, None, tmp_path)


def test_a_consumer_that_ended_before_it_saw_everything(root, tmp_path, read):
    for topic in TOPICS:
        read(topic, *enumerate(RECORDS))
    (tmp_path / f"consumer-0.0{ENDED}").touch()
    assert check_results(root, None, tmp_path)
    (tmp_path / f"consumer-0.1{ENDED}").touch()
    with pytest.raises(AssertionError, match="did not see"):
        check_results(root, None, tmp_path)
