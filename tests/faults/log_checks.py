"""Checks a log against the acknowledgements and the records that a reader saw."""

from collections import Counter
from typing import Any

from tests.faults.notes import read_notes
from tests.log.support import open_log, values


def check_results(store, notes, *, idempotent):
    """Check a log that is no longer written to, and return counts.

    Args:
        store: the log's store.
        notes: directory of the notes of its writers and of its reader, if there is one.
        idempotent: whether the writers were idempotent.
    """
    log = open_log(store)
    found = values(log)
    assert [offset for offset, _ in found] == list(range(log.log_end_offset())), "not dense"
    there = [value.decode() for _, value in found]
    counts = _check_acknowledged(there, notes, idempotent)
    if idempotent:
        _check_order(there)
    reader = notes / "reader"
    if reader.exists():
        seen = [(int(offset), value) for offset, value in read_notes(reader)]
        assert seen == list(enumerate(there)), "the reader did not see what the log is"
    return {**counts, "records": len(there)}


def _check_acknowledged(there, notes, idempotent):
    counts: Counter[str] = Counter()
    unknown, fenced = set(), set()
    for path in sorted(notes.glob("writer-*")):
        mark = path.name.removeprefix("writer-")
        for kind, *numbers in read_notes(path):
            number, size, *placed = map(int, numbers)
            records = [f"{mark}.{each}" for each in range(number, number + size)]
            counts[f"appends {kind}"] += 1
            if kind == "unknown":
                unknown.update(records)
            elif kind == "fenced":
                fenced.update(records)
            else:
                base, last = placed
                assert there[base : last + 1] == records, f"lost or misplaced: {records}"
    times = Counter(there)
    twice = {record for record in times if times[record] > 1}
    if idempotent:
        assert not twice, f"there more than once: {sorted(twice)}"
        refused = sorted(fenced - unknown & set(there))
        assert not refused, f"refused and there all the same: {refused}"
    else:
        # Only a writer that got an unknown outcome may have sent the record again.
        assert twice <= unknown, f"there more than once: {sorted(twice - unknown)}"
    return counts


def _check_order(there):
    """Each producer's epochs are in order, and its numbers in each epoch have no gap."""
    latest: dict[Any, tuple[int, int]] = {}
    for record in there:
        producer, epoch, number = map(int, record.split("."))
        was_epoch, was_number = latest.get(producer, (-1, -1))
        assert epoch >= was_epoch, f"{record} stands behind a record of epoch {was_epoch}"
        due = was_number + 1 if epoch == was_epoch else 0
        assert number == due, f"{record} stands where number {due} is due"
        latest[producer] = epoch, number
