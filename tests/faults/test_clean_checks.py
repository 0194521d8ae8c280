"""`clean_checks` finds errors that are planted in topics and notes."""

import pytest

from spark_log import Admin, NewTopic, Producer
from tests.faults.clean_checks import check_results
from tests.faults.clean_clients import KEPT, TABLE, TOPICS
from tests.faults.notes import Notes


@pytest.fixture
def note(tmp_path):
    """Write a note as a process does."""

    def note(who, *fields):
        with Notes(str(tmp_path / who)) as notes:
            notes.write(*fields)

    return note


@pytest.fixture
def root(tmp_path, note):
    """Topics in which each of two keys has two records, all acknowledged."""
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic(topic, 1) for topic in TOPICS])
    with Producer(root) as producer:
        for topic in TOPICS:
            for number in range(4):
                name, key = f"0.0.{number}", f"0-{number % 2}"
                note("producer-0.0", "sent", topic, name, key, 0)
                headers = [("name", name.encode())]
                future = producer.send(topic, name.encode(), key=key.encode(), headers=headers)
                note("producer-0.0", "acknowledged", topic, name, future.result().offset)
    return root


def test_what_is_as_it_was_acknowledged_is_in_order(root, tmp_path, note):
    note("consumer-0.0", KEPT, 0, "0.0.0", "0-0", False)
    counts = check_results(root, None, tmp_path)
    assert (counts[f"{KEPT}: acknowledged"], counts[f"{KEPT}: read"]) == (4, 1)


@pytest.mark.parametrize(
    ("who", "line", "wrong"),
    [
        ("producer-0.0", ("acknowledged", KEPT, "0.0.9", 9), "lost"),
        ("producer-0.0", ("acknowledged", KEPT, "0.0.3", 1), "was acknowledged at 1"),
        ("producer-0.0", ("sent", KEPT, "0.0.3", "another", 0), "nobody sent"),
        ("consumer-0.0", (KEPT, 1, "0.0.1", "0-1", False), "missed some"),
        ("consumer-0.0", (KEPT, 0, "0.0.1", "0-1", False), "saw"),
        ("consumer-0.0", ("ended",), "did not see"),
    ],
)
def test_the_checks_notice_what_contradicts_the_log(root, tmp_path, note, who, line, wrong):
    note(who, *line)
    with pytest.raises(AssertionError, match=wrong):
        check_results(root, None, tmp_path)


def test_it_notices_that_a_key_has_an_older_record(root, tmp_path, note):
    note("producer-0.0", "sent", TABLE, "0.0.9", "0-1", 0)
    note("producer-0.0", "acknowledged", TABLE, "0.0.9", 9)
    with pytest.raises(AssertionError, match=r"instead of 0\.0\.9"):
        check_results(root, None, tmp_path)
