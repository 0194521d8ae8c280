"""The reads that a gateway keeps open: how many of them, and which go first."""

from spark_log.gateway.partitions.log_cursor import LogCursor
from spark_log.gateway.partitions.log_cursors import LogCursors
from tests.log.chain.support import Cluster
from tests.record.samples import numbered

FIRST, SECOND = object(), object()


def cursor_at(offset, isolation_level="read_uncommitted"):
    log = Cluster(1).process().log
    log.append(numbered(0, 10))
    cursor = LogCursor(log, 0, isolation_level)
    if offset:
        cursor.read(1 << 20 if offset == 10 else 1)
    assert cursor.next_offset == offset
    return cursor


def test_a_read_is_found_once_by_its_log_its_offset_and_its_isolation_level():
    cursors, kept = LogCursors(), cursor_at(10)
    cursors.keep(FIRST, kept)
    assert cursors.take(SECOND, 10, "read_uncommitted") is None
    assert cursors.take(FIRST, 9, "read_uncommitted") is None
    assert cursors.take(FIRST, 10, "read_committed") is None
    assert cursors.take(FIRST, 10, "read_uncommitted") is kept
    assert cursors.take(FIRST, 10, "read_uncommitted") is None


def test_the_number_of_reads_of_all_logs_is_bounded_and_the_longest_unused_one_goes_first():
    cursors = LogCursors(max_cursors=3)
    logs = [object() for _ in range(4)]
    for log in logs[:3]:
        cursors.keep(log, cursor_at(10))
    used = cursors.take(logs[0], 10, "read_uncommitted")
    assert used is not None
    cursors.keep(logs[0], used)
    cursors.keep(logs[3], cursor_at(10))
    assert len(cursors) == 3
    assert [cursors.take(log, 10, "read_uncommitted") is not None for log in logs] == [
        True,
        False,
        True,
        True,
    ]


def test_the_records_that_reads_hold_are_bounded():
    held = cursor_at(1)
    assert held.held_bytes > 0
    assert cursor_at(10).held_bytes == 0, "all records were returned"
    cursors = LogCursors(max_held_bytes=held.held_bytes)
    cursors.keep(FIRST, held)
    cursors.keep(FIRST, cursor_at(10))
    cursors.keep(SECOND, cursor_at(1))
    assert cursors.take(FIRST, 1, "read_uncommitted") is None
    assert cursors.take(SECOND, 1, "read_uncommitted") is not None
    cursors.keep(FIRST, cursor_at(1))
    assert len(cursors) == 2, "what was taken is not counted"


def test_the_reads_of_a_log_are_dropped():
    cursors = LogCursors()
    for log in (FIRST, SECOND):
        cursors.keep(log, cursor_at(1))
        cursors.keep(log, cursor_at(10))
    cursors.drop(FIRST)
    assert len(cursors) == 2
    assert cursors.take(SECOND, 1, "read_uncommitted") is not None
