"""`OffsetSyncs`: the exact mapping between a partition's offsets in Kafka and in the log.

They are a set of runs: ``count`` records that have consecutive offsets on both sides. A run ends at
a transaction marker, at a record that compaction or an abort removed, and at the end of the
mirror's transaction. A run without records states that the source has no record to mirror between
the previous run, or the start, and the run's offset in the source. It is valid until records of the
other direction are mirrored to this place.

Runs are kept in a compacted topic of the target, and are written in the transaction that writes the
records. A run covers a record if and only if the target has the record. After a crash a mirror
continues at the end of the last run. Runs of records that neither side has any more are pruned.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from spark_log.errors import CorruptRecordError
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.util import parse_json

_LITTLE_ENDIAN: Final = np.dtype("<i8")
_FIELDS: Final = 3
_TO: Final = 3
"""Index of the column with the side that the records of a run were written to."""
_IS_FIRST: Final = 4
"""Index of the column that is 1 in the first run of each record of the topic."""
_COLUMNS: Final = 5


class OffsetSyncs:
    """The runs of one `MirroredPartition`, in both directions."""

    def __init__(self) -> None:
        self._runs = np.empty((16, _COLUMNS), np.int64)
        self._size = 0
        self._is_sorted = True
        self._checked = 0
        self._ends = [-1, -1]
        self._forgotten = [-1, -1]

    def __len__(self) -> int:
        return self._size

    def add(self, runs: np.ndarray, to: Side) -> None:
        """Add the runs of one record of the offset-sync topic.

        Args:
            runs: int64 of shape (runs, 3): first offset in Kafka, first offset in the log, number
                of records.
            to: the side that the mirrored records were written to.
        """
        needed = self._size + len(runs)
        if needed > len(self._runs):
            grown = np.empty((max(needed, 2 * len(self._runs)), _COLUMNS), np.int64)
            grown[: self._size] = self._runs[: self._size]
            self._runs = grown
        added = self._runs[self._size : needed]
        added[:, :_FIELDS] = runs
        added[:, _TO] = to
        added[:, _IS_FIRST] = 0
        added[:1, _IS_FIRST] = 1
        for side in Side:
            # A run without records must not let the opposite direction skip records of the target.
            counted = runs if side != to else runs[runs[:, 2] > 0]
            if len(counted):
                end = int((counted[:, side] + counted[:, 2]).max())
                self._ends[side] = max(self._ends[side], end)
        last = self._runs[max(self._size - 1, 0), 0]
        self._is_sorted &= not self._size or not len(runs) or last <= runs[0, 0]
        self._size = needed

    def end(self, side: Side) -> int | None:
        """Return the offset up to which one side is mirrored; None without a mirrored record."""
        return self._ends[side] if self._ends[side] >= 0 else None

    def translate(self, offset: int, side: Side) -> int | None:
        """Return the offset on the other side at which a reader finds the same next record.

        Args:
            offset: the next offset to read on ``side``.
            side: the side of ``offset``.

        Returns:
            None if records before the offset are not mirrored yet, or there are no runs.
        """
        if not self._size:
            return None
        runs = self._sorted()
        at = int(np.searchsorted(runs[:, side], offset, "right")) - 1
        if at < 0:  # records before the first run were deleted before they could be mirrored
            return int(runs[0, side.other])
        first, there, count = int(runs[at, side]), int(runs[at, side.other]), int(runs[at, 2])
        passed = offset - first
        # The marker of the mirror's transaction follows the last record in the target.
        beyond = count + (runs[at, _TO] == side)
        if at == len(runs) - 1 and passed > beyond:
            return None
        return there + min(passed, count)

    def prune(self, earliest: tuple[int, int], to: Side) -> np.ndarray:
        """Remove records of the topic whose offsets neither side has any more.

        The last record stays: the mirror continues after it.

        Args:
            earliest: the first offsets that Kafka and the log still have.
            to: the target of the removed records; records of the other direction stay.

        Returns:
            The first run of each removed record: int64 of shape (records, 3).
        """
        runs = self._sorted()
        own = runs[runs[:, _TO] == to]
        is_needed = (own[:, :2] + own[:, 2:3] > np.array(earliest)).any(axis=1)
        needed = int(np.argmax(is_needed)) if is_needed.any() else len(own)
        firsts = np.flatnonzero(own[:, _IS_FIRST])
        count = max(0, int(np.searchsorted(firsts, needed, "right")) - 1)
        forgotten: np.ndarray = own[firsts[:count], :_FIELDS]
        if count:
            self.forget(forgotten[-1], to)
        return forgotten

    def forget(self, first: np.ndarray, to: Side) -> None:
        """Remove a record of one direction, and the records before it.

        Args:
            first: the record's first run. Only the first offset in Kafka and the number of records
                are used.
            to: the target of the direction.
        """
        self._forgotten[to] = max(self._forgotten[to], int(_order(first)))

    def _sorted(self) -> np.ndarray:
        runs = self._runs[: self._size]
        if not self._is_sorted:  # the runs of the two directions are in two topics
            runs[:] = runs[np.lexsort((runs[:, 1], runs[:, 0]))]
            self._is_sorted = True
        if self._checked != self._size:
            runs = self._without_contradicted(runs)
            self._checked = self._size
        for side in Side:
            if self._forgotten[side] < 0:
                continue
            is_own = runs[:, _TO] == side
            own = runs[is_own]
            kept = own[:, _IS_FIRST].astype(bool) & (_order(own) > self._forgotten[side])
            first = int(np.argmax(kept)) if kept.any() else len(own)
            is_own[np.flatnonzero(is_own)[first:]] = False
            runs = self._keep(runs[~is_own])
            self._checked = self._size
            self._forgotten[side] = -1
        return runs

    def _without_contradicted(self, runs: np.ndarray) -> np.ndarray:
        """Drop runs without records where the other direction has mirrored records since."""
        is_empty = runs[:, 2] == 0
        records = runs[~is_empty]
        if not is_empty.any() or not len(records) or (runs[:, _TO] == runs[0, _TO]).all():
            return runs
        places = runs[is_empty][:, :2]
        after = np.searchsorted(records[:, 0], places[:, 0], "left")
        before = records[np.maximum(after - 1, 0)]
        is_behind = (before[:, :2] + before[:, 2:3] <= places).all(axis=1) | (after == 0)
        behind = records[np.minimum(after, len(records) - 1)]
        is_before = (behind[:, :2] >= places).all(axis=1) | (after == len(records))
        kept = ~is_empty
        kept[is_empty] = is_behind & is_before
        return self._keep(runs[kept])

    def _keep(self, runs: np.ndarray) -> np.ndarray:
        self._size = len(runs)
        self._runs[: self._size] = runs
        return self._runs[: self._size]


class OffsetSyncStore:
    """The offset syncs of all partitions of a mirror."""

    def __init__(self) -> None:
        self._maps: dict[MirroredPartition, OffsetSyncs] = {}

    def __getitem__(self, partition: MirroredPartition) -> OffsetSyncs:
        """Return a partition's offset syncs, which are empty if it was never mirrored."""
        return self._maps.setdefault(partition, OffsetSyncs())

    def replay(self, key: bytes, value: bytes | None, to: Side) -> None:
        """Add the runs of a record of the offset-sync topic.

        Args:
            key: the record's key.
            value: the record's value; None removes the record with this key, and those before it.
            to: the side that has the offset-sync topic.

        Raises:
            CorruptRecordError: the record holds no offset syncs.
        """
        try:
            fields = parse_json(key)
            partition = MirroredPartition(fields["kafka"], fields["log"], fields["partition"])
            if value is None:
                first = np.array([int(fields["offset"]), 0, fields.get("records", 1)], np.int64)
                self[partition].forget(first, to)
                return
            runs = np.frombuffer(value, _LITTLE_ENDIAN).reshape(-1, _FIELDS)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"a record with the key {key[:200]!r} holds no offset syncs: {error}"
            ) from None
        self[partition].add(runs, to)

    def of_topic(self, topic: str, side: Side) -> dict[int, list[MirroredPartition]]:
        """Return the mirrored partitions of a topic on one side, by their number."""
        found: dict[int, list[MirroredPartition]] = {}
        for each, runs in self._maps.items():
            if each.topic(side) == topic and len(runs):
                found.setdefault(each.partition, []).append(each)
        return found


def sync_record(partition: MirroredPartition, runs: np.ndarray) -> tuple[bytes, bytes]:
    """Return key and value of the record that holds runs.

    Every key is used once, so compaction keeps all runs that are not pruned. The value has three
    little-endian int64 per run: first offset in Kafka, first offset in the log, number of records.
    """
    key = {
        "kafka": partition.kafka_topic,
        "log": partition.log_topic,
        "partition": partition.partition,
        "offset": int(runs[0, Side.KAFKA]),
    }
    if not runs[0, 2]:
        key["records"] = 0  # the next run may begin at the same offset
    return json.dumps(key).encode(), runs.astype(_LITTLE_ENDIAN).tobytes()


def _order(runs: np.ndarray) -> np.ndarray:
    """Return numbers by which the first runs of records sort in the order of writing."""
    order: np.ndarray = 2 * runs[..., Side.KAFKA] + (runs[..., 2] > 0)
    return order


def find_runs(kafka_offsets: np.ndarray, log_offsets: np.ndarray) -> np.ndarray:
    """Return the runs of records from their offsets on both sides, in order.

    Returns:
        int64 of shape (runs, 3), the form that `OffsetSyncs.add` takes.
    """
    breaks = np.flatnonzero((np.diff(kafka_offsets) != 1) | (np.diff(log_offsets) != 1)) + 1
    firsts = np.concatenate(([0], breaks)).astype(np.int64)
    counts = np.diff(np.append(firsts, len(kafka_offsets)))
    return np.column_stack((kafka_offsets[firsts], log_offsets[firsts], counts))
