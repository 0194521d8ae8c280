"""Checks cleaned topics against the operations that producers and consumers noted."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from spark_log.cluster import Cluster
from spark_log.testing.history import ALLOWED, Anomaly
from spark_log.types import TopicPartition
from tests.faults.clean_clients import COMPACTED, ENDED, EXPIRING, KEPT, TABLE, TOPICS, text_of
from tests.faults.notes import read_notes
from tests.faults.operation_notes import (
    check_operations,
    polled,
    read_of_log,
    read_operations,
    sends,
)
from tests.log.support import records_of

REMOVED = {
    Anomaly.LOST_WRITE,
    Anomaly.UNSEEN,
    Anomaly.POLL_SKIP,
    Anomaly.INTERNAL_POLL_SKIP,
}
"""Anomalies of a history whose records are compacted or expire."""


@dataclass(frozen=True)
class Found:
    """A record in a log, or in a history.

    Attributes:
        offset: the record's offset; None if it was sent and not acknowledged.
    """

    offset: int | None
    name: str
    key: str
    is_tombstone: bool

    @classmethod
    def of(cls, noted):
        """Return the record of a `Send` or `Polled`."""
        name, key, value = noted.value.split()
        return cls(noted.offset, name, key, value == "null")

    @property
    def text(self):
        return text_of(self.name, self.key, self.is_tombstone)


def check_results(root, storage_options, notes):
    """Check topics that are no longer written to, and return counts.

    Args:
        root: the topics' root.
        storage_options: the root's options.
        notes: directory of the processes' notes.
    """
    cluster = Cluster(root, storage_options)
    counts: Counter[str] = Counter()
    for topic in TOPICS:
        log = cluster.partition_log(cluster.topic(topic), 0)
        start, end = log.observe().log_start_offset, log.observe().log_end_offset
        found = _found(log.scan(start))
        writes = read_operations(notes, f"producer-*.{topic}")
        sent = {each.name: each for each in map(Found.of, sends(writes))}
        placed = {name: each.offset for name, each in sent.items() if each.offset is not None}
        counts[f"{topic}: acknowledged"] = len(placed)
        counts[f"{topic}: start"], counts[f"{topic}: end"] = start, end
        counts[f"{topic}: there"] = len(found)
        reads = read_operations(notes, f"consumer-*.{topic}")
        counts[f"{topic}: read"] = len(polled(reads))
        texts = ((each.offset, each.text) for each in found)
        check_operations(
            [*writes, *reads, read_of_log(TopicPartition(topic, 0), texts, start)],
            allowed=ALLOWED if topic == KEPT else ALLOWED | REMOVED,
        )
        if topic in COMPACTED:
            _check_dictionary(found, sent, placed, keeps_tombstones=topic == TABLE)
        else:
            assert [each.offset for each in found] == list(range(start, end)), "not dense"
            assert {each.name for each in found} >= {
                name for name, offset in placed.items() if offset >= start
            }, "lost"
        for path in sorted(notes.glob(f"consumer-*{ENDED}")):
            _check_seen(topic, read_operations(notes, f"{path.stem}.{topic}"), path.stem, found)
    assert counts[f"{KEPT}: start"] == 0
    return counts


def check_commands(notes, refused=()):
    """Check the exit status of each run of the command, and return counts.

    Args:
        notes: directory of the processes' notes.
        refused: slots of cleaners whose clocks are wrong: each of their runs must do nothing, and
            report that in one line.
    """
    statuses: Counter[Any] = Counter()
    for path in notes.glob("cleaner-*"):
        slot = int(path.name.removeprefix("cleaner-").partition(".")[0])
        for status, *error in read_notes(path):
            stderr = " ".join(error)
            if slot in refused and "max.clock.skew.ms" in stderr:
                statuses["refused"] += 1
                assert (status, stderr.count("error:")) == ("1", 1), stderr
                continue
            statuses[status] += 1
            assert slot not in refused or status != "0", f"cleaner {slot} has cleaned"
            # A listing was not fast enough, or the storage failed for a moment.
            may_pass = "takes longer" in stderr or "try again" in stderr
            assert status == "0" or (status == "1" and may_pass), stderr
    return statuses


def _found(batches):
    return [
        Found(
            offset,
            row["headers"][0]["value"].decode(),
            row["key"].decode(),
            row["value"] is None,
        )
        for offset, row in records_of(batches)
    ]


def _check_dictionary(found, sent, placed, *, keeps_tombstones):
    """Check that the last record of each key is the last acknowledged one, or unacknowledged."""
    table = {each.key: each for each in found}
    last = {}
    for name, offset in sorted(placed.items(), key=lambda pair: pair[1]):
        last[sent[name].key] = offset, name
    unacknowledged: dict[Any, list[bool]] = {}
    for name in sent.keys() - placed.keys():
        unacknowledged.setdefault(sent[name].key, []).append(sent[name].is_tombstone)
    for key, (offset, name) in last.items():
        have = table.get(key)
        if have is None:
            assert not keeps_tombstones, f"{name}, the last of {key}, is gone"
            assert sent[name].is_tombstone or any(unacknowledged.get(key, ())), (
                f"{name}, no tombstone, is gone"
            )
        elif have.name != name:
            assert have.offset > offset, f"{have} instead of {name}"
            assert have.name not in placed, f"{have} instead of {name}"


def _check_seen(topic, reads, consumer, found):
    """Check that a consumer that read a topic to its end saw all records that are still there."""
    seen = list(map(Found.of, polled(reads)))
    offsets = {each.offset for each in seen}
    there = {each.offset: each for each in found}
    missed = there.keys() - offsets
    if topic == EXPIRING:
        missed = {at for at in missed if offsets and at > min(offsets)}
    elif topic in COMPACTED:
        missed = {at for at in missed if at == _last_of(found, there[at].key)}
    assert not missed, f"{consumer} did not see {sorted(missed)[:9]} of {topic}"
    if topic == TABLE:  # no reader can have missed its tombstones
        assert _table(seen) == _table(found), f"{consumer} has another dictionary"


def _last_of(found, key):
    return max(each.offset for each in found if each.key == key)


def _table(records):
    return {each.key: each.name for each in records}
