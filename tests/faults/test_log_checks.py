"""`log_checks` finds errors that are planted in a log's history."""

import pytest

from spark_log.testing.history import Polled
from tests.faults.log_checks import check_results
from tests.faults.operation_notes import OperationNotes, read_operations
from tests.faults.reader_process import PARTITION
from tests.log.support import open_log
from tests.record.samples import record_batch, row

VALUES = [f"1.0.{number}" for number in range(4)]


@pytest.fixture
def notes_of(tmp_path):
    """Return the notes of a client by its name."""
    return lambda client: OperationNotes(tmp_path / client)


@pytest.fixture
def check(local_store, tmp_path, notes_of):
    """Check a log of four records, of which the last two were sent and not acknowledged."""
    with notes_of("writer-1.0") as notes:
        for offset, value in enumerate(VALUES):
            operation = notes.begin(PARTITION, value)
            assert open_log(local_store).append(record_batch([row(value.encode())]))
            if offset < 2:
                notes.acknowledge(operation, [offset])
    return lambda: check_results(local_store, tmp_path, idempotent=True)


def test_what_was_not_acknowledged_may_be_in_the_log_or_not(check, notes_of):
    with notes_of("writer-2.0") as notes:
        notes.begin(PARTITION, "2.0.0")
    with notes_of("reader") as notes:
        notes.assign([PARTITION], 0)
        notes.poll(*(Polled(PARTITION, *pair) for pair in enumerate(VALUES)))
    assert check() == {"appends committed": 2, "appends unknown": 3, "records": 4}


@pytest.mark.parametrize(
    ("offset", "anomaly"), [(1, "lost-write"), (1, "inconsistent-offsets"), (4, "unseen")]
)
def test_an_acknowledged_record_that_is_not_in_the_log(check, notes_of, offset, anomaly):
    with notes_of("writer-2.0") as notes:
        notes.acknowledge(notes.begin(PARTITION, "2.0.0"), [offset])
    with pytest.raises(AssertionError, match=anomaly):
        check()


def test_a_record_at_another_offset_than_it_was_acknowledged_at(check, tmp_path):
    with OperationNotes(tmp_path / "writer-1.0") as notes:
        operation = read_operations(tmp_path)[2]
        notes.acknowledge(operation, [3])
    with pytest.raises(AssertionError, match="duplicate"):
        check()


def test_a_refused_record_that_is_in_the_log(check, tmp_path):
    with OperationNotes(tmp_path / "writer-1.0") as notes:
        notes.refuse(read_operations(tmp_path)[2])
    with pytest.raises(AssertionError, match="G1a"):
        check()


@pytest.mark.parametrize(
    ("offsets", "wrong"),
    [
        ([0, 2, 3], "int-poll-skip"),
        ([0, 1, 0, 2, 3], "int-nonmonotonic-poll"),
        ([0, 1, 2], "did not read up to the log's end"),
    ],
)
def test_a_reader_that_missed_records_or_was_given_them_again(check, notes_of, offsets, wrong):
    with notes_of("reader") as notes:
        notes.assign([PARTITION], 0)
        notes.poll(*(Polled(PARTITION, at, VALUES[at]) for at in offsets))
    with pytest.raises(AssertionError, match=wrong):
        check()


def test_a_record_that_nobody_sent(check, local_store):
    open_log(local_store).append(record_batch([row(b"3.0.0")]))
    with pytest.raises(AssertionError, match="garbage-read"):
        check()


def test_an_idempotent_writers_records_in_another_order(check, local_store, notes_of):
    with notes_of("writer-2.0") as notes:
        notes.begin(PARTITION, "2.0.1")
    open_log(local_store).append(record_batch([row(b"2.0.1")]))
    with pytest.raises(AssertionError, match="in the place of number 0"):
        check()
