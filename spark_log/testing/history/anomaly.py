"""The anomalies that a history can show, by their usual names."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Anomaly(StrEnum):
    """An anomaly, by its name in Jepsen's tests of Kafka or in Adya's list of phenomena.

    Jepsen does not name three of them: ``torn-transaction``, ``garbage-read`` (Elle's name) and
    ``G1c-ww``, which is the part of G1c that Kafka allows.
    """

    LOST_WRITE = "lost-write"
    """An acknowledged record was never polled, although a record at or after its offset was."""

    UNSEEN = "unseen"
    """Acknowledged records were never polled, and no record after them was."""

    DUPLICATE = "duplicate"
    """A value is at more offsets of a partition than the number of times that it was sent."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """One offset of a partition has several values."""

    NONMONOTONIC_SEND = "nonmonotonic-send"
    """A client's later send was acknowledged at an offset that is not higher."""

    INTERNAL_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    """A later send of one operation was acknowledged at an offset that is not higher."""

    POLL_SKIP = "poll-skip"
    """A client's next poll left out a committed record, with no new assignment in between."""

    INTERNAL_POLL_SKIP = "int-poll-skip"
    """One operation polled a partition twice or more, and left out a committed record."""

    NONMONOTONIC_POLL = "nonmonotonic-poll"
    """A client's next poll returned an offset that is not higher, with no new assignment."""

    INTERNAL_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    """One operation polled an offset, and then one that is not higher."""

    GARBAGE_READ = "garbage-read"
    """A poll returned a value that no client sent to the partition."""

    ABORTED_READ = "G1a"
    """A poll returned a record whose send or transaction was aborted."""

    INTERMEDIATE_READ = "G1b"
    """A read_committed poll returned a record of a transaction that was not yet being committed."""

    TORN_TRANSACTION = "torn-transaction"
    """A read_committed client polled a part of a transaction, and read past another part of it."""

    WRITE_CYCLE = "G0"
    """Transactions' records follow each other in a circle. Kafka allows it: sends interleave."""

    READ_CYCLE = "G1c"
    """Several transactions form a circle: each polled records that the one before it sent."""

    WRITE_READ_CYCLE = "G1c-ww"
    """A circle of polls and of the order of records. Kafka allows it, because offsets are assigned
    before the commit."""


ALLOWED: Final = frozenset({Anomaly.WRITE_CYCLE, Anomaly.WRITE_READ_CYCLE})
"""The anomalies that Kafka's guarantees allow. They are reported, and break no guarantee."""
