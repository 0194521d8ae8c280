"""Checks a log against the operations that its writers and its reader noted."""

from collections import Counter
from typing import Any

from tests.faults.operation_notes import check_operations, polled, read_of_log, read_operations
from tests.faults.reader_process import PARTITION
from tests.log.support import open_log, values


def check_results(store, notes, *, idempotent, **config):
    """Check a log that is no longer written to, and return counts.

    Args:
        store: the log's store.
        notes: directory of the notes of its writers and of its reader, if there is one.
        idempotent: whether the writers were idempotent.
        config: settings of the topic.
    """
    log = open_log(store, **config)
    found = [(offset, value.decode()) for offset, value in values(log)]
    assert [offset for offset, _ in found] == list(range(log.observe().log_end_offset)), "not dense"
    writes, reads = read_operations(notes, "writer-*"), read_operations(notes, "reader")
    check_operations([*writes, *reads, read_of_log(PARTITION, found)])
    if idempotent:
        _check_order(value for _, value in found)
    if reads:
        assert len(polled(reads)) == len(found), "the reader did not read up to the log's end"
    return {**Counter(f"appends {each.outcome}" for each in writes), "records": len(found)}


def _check_order(there):
    """Each producer's epochs are in order, and its numbers in each epoch have no gap."""
    latest: dict[Any, tuple[int, int]] = {}
    for record in there:
        producer, epoch, number = map(int, record.split("."))
        was_epoch, was_number = latest.get(producer, (-1, -1))
        assert epoch >= was_epoch, f"{record} follows a record of epoch {was_epoch}"
        due = was_number + 1 if epoch == was_epoch else 0
        assert number == due, f"{record} is in the place of number {due}"
        latest[producer] = epoch, number
