"""A model of a replicated partition, derived only from the files on the brokers' disks.

The entries of each replica are those of the files in its directory. Which replicas are in sync is
read from the metadata log when it grows. What was acknowledged by all replicas, or read by anybody,
is fixed from then on: each in-sync replica has it, at this offset, for ever. While too few are in
sync (KIP-966), what was read is fixed as far as the eligible replicas have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log import LogAppendInfo, LogBatch, SegmentReader
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.metadata import metadata_log
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import PartitionRecord, from_json
from spark_log.storage import Store
from tests.simulation.log.records import columns_of
from tests.simulation.violation import ViolationError

TOPIC = "flights"
TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"


@dataclass(frozen=True, slots=True)
class Entry:
    """The record or barrier that a replica has at one offset.

    Attributes:
        value: the value of a record, which is unique; None for a barrier.
        leader_epoch: the leader epoch of its batch.
    """

    value: bytes | None
    leader_epoch: int


@dataclass(slots=True)
class TrueReplica:
    """One directory on one broker's disk.

    Attributes:
        entries: the records and barriers, by offset.
        append_ids: the append ids of the segments that were not rewritten, by base offset.
        epochs: the leader epochs whose barriers it has.
        is_damaged: whether some of its files were lost.
        behind_gap: the segments that were created behind the end of a damaged log, by base offset.
    """

    entries: list[Entry] = field(default_factory=list)
    append_ids: dict[int, str] = field(default_factory=dict)
    epochs: set[int] = field(default_factory=set)
    is_damaged: bool = False
    behind_gap: dict[int, SegmentName] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The log end offset."""
        return len(self.entries)

    def cut(self, end: int) -> None:
        """Forget the records from an offset on."""
        del self.entries[end:]
        self.append_ids = {at: each for at, each in self.append_ids.items() if at < end}


class BrokerObserver:
    """Tells the model of the changes on the disk of one broker."""

    def __init__(self, truth: TrueReplicas, broker_id: int) -> None:
        self._truth = truth
        self._broker_id = broker_id

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: a replica, or the metadata log, may grow."""
        self._truth.on_file_created(self._broker_id, path)

    def on_file_deleted(self, path: str) -> None:
        """Ignore the deletion of a file: readers show whether it is missed."""


class TrueReplicas:
    """The replicas of the partition, its state, and the records that may not change any more.

    Attributes:
        replicas: by broker and directory.
        state: the newest state of the partition in the metadata.
        fixed: the records that were acknowledged or read, by offset.
        acknowledged_end: the offset after the last record that was acknowledged by all.
        appended: number of records that were acknowledged.
        start: the highest offset that somebody wanted to be the log start.
    """

    def __init__(self, disks: Mapping[int, Store]) -> None:
        """Begin with empty disks.

        Args:
            disks: by broker id; that of broker 0 has the metadata log.
        """
        self._disks = disks
        self._image = MetadataImage()
        self._metadata_end = 0
        self.replicas: dict[tuple[int, str], TrueReplica] = {}
        self.state = PartitionRecord(topic_id=TOPIC_ID, partition_id=0)
        self.fixed: dict[int, bytes | None] = {}
        self.acknowledged_end = 0
        self.appended = 0
        self.start = 0
        self._taken_back_from = math.inf
        self._refused: set[bytes] = set()
        self._damaged: set[int] = set()
        self._checked: dict[tuple[int, int], tuple[object, int]] = {}

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, broker_id: int, path: str) -> None:
        """Handle the creation of a file on a broker's disk."""
        directory, _, file = path.rpartition("/")
        name, start = SegmentName.parse(file), StartMarker.parse(file)
        if start is not None and directory.startswith(f"{TOPIC}.{TOPIC_ID}/"):
            self._on_start(broker_id, directory, start.log_start_offset)
        if name is None:
            return
        if directory == metadata_log.METADATA_DIRECTORY:
            self._on_metadata(name)
        elif directory.startswith(f"{TOPIC}.{TOPIC_ID}/"):
            self._on_segment(broker_id, directory, name)
        self.check_in_sync()

    def on_wiped(self, broker_id: int) -> None:
        """Handle the loss of all files of a broker."""
        for (broker, _), replica in self.replicas.items():
            if broker == broker_id:
                replica.cut(0)
                replica.epochs.clear()
                replica.behind_gap.clear()
                replica.is_damaged = True
        self._damaged.add(broker_id)
        self.check_in_sync()

    def on_replaced(self, broker_id: int) -> None:
        """Handle the registration of a broker with an empty root."""
        self._damaged.discard(broker_id)

    def _on_metadata(self, name: SegmentName) -> None:
        if name.base_offset != self._metadata_end:
            return
        reader = SegmentReader(
            self._disks[0],
            metadata_log.METADATA_DIRECTORY,
            name,
            topic_id=metadata_log.METADATA_TOPIC_ID,
            partition=0,
            size_bytes=None,
        )
        for batch in reader.read(reader.base_offset):
            for value in batch.records.column("value").to_pylist():
                self._image.replay(from_json(value))
        self._metadata_end = reader.end_offset
        topic = self._image.find(TOPIC)
        if topic is not None and topic.partitions:
            before, self.state = self.state, topic.partitions[0]
            if self.state.leader in before.eligible_leader_replicas:
                end = self.replica(self.state.leader).end
                self._taken_back_from = min(self._taken_back_from, end)

    def _on_start(self, broker_id: int, directory: str, start: int) -> None:
        """Handle a start marker: the replica's records before the start are not read any more."""
        if start > self.start:
            raise ViolationError(f"broker {broker_id}: {start} is behind all deleted records")
        replica = self.replicas.setdefault((broker_id, directory), TrueReplica())
        if replica.entries[:start] == (source := self._longest().entries)[:start]:
            return
        behind = replica.entries[start:]
        replica.cut(0)
        replica.epochs.clear()
        for entry in (*source[:start], *behind):
            self._extend(broker_id, replica, entry)
        if replica.end in replica.behind_gap:
            self._on_segment(broker_id, directory, replica.behind_gap.pop(replica.end))

    def _longest(self) -> TrueReplica:
        return max((each for _, each in self.in_sync()), key=lambda each: each.end)

    def _on_segment(self, broker_id: int, directory: str, name: SegmentName) -> None:
        replica = self.replicas.setdefault((broker_id, directory), TrueReplica())
        base = name.base_offset
        if name.last_offset is None and base < replica.end:
            return  # void: the name was used before
        if base > replica.end:
            if replica.is_damaged:
                replica.behind_gap[base] = name
                return
            raise ViolationError(
                f"broker {broker_id}: {name.file_name} was created after the log's end, "
                f"{replica.end}"
            )
        reader = self._reader_of(broker_id, directory, name)
        found = self._entries_of(reader)
        for at, entry in enumerate(found, base):
            if at < replica.end and replica.entries[at] != entry:
                if not self._is_outside(broker_id, replica):
                    raise ViolationError(
                        f"broker {broker_id}: {name.file_name} has {entry} at {at}, which was "
                        f"{replica.entries[at]}"
                    )
                # A late put was covered by a copy of committed records.
                replica.cut(at)
            if at == replica.end:
                self._extend(broker_id, replica, entry)
        if name.last_offset is None:
            replica.append_ids[base] = reader.append_id
        if replica.end in replica.behind_gap:
            self._on_segment(broker_id, directory, replica.behind_gap.pop(replica.end))

    def _extend(self, broker_id: int, replica: TrueReplica, entry: Entry) -> None:
        at, epoch = replica.end, entry.leader_epoch
        last = replica.entries[-1].leader_epoch if replica.entries else 0
        # A joining replica may get a late put at its end. It is compared before it is in sync.
        is_in_sync = replica is self.replica(broker_id) and broker_id in self.state.isr
        if epoch < last and is_in_sync:
            raise ViolationError(f"broker {broker_id}: leader epoch {epoch} at {at} after {last}")
        if entry.value is None:
            replica.epochs.add(epoch)
        elif epoch and epoch not in replica.epochs and not replica.is_damaged:
            raise ViolationError(
                f"broker {broker_id}: {entry} at {at} before the barrier of its epoch"
            )
        replica.entries.append(entry)

    def _is_outside(self, broker_id: int, replica: TrueReplica) -> bool:
        """Whether a replica is neither in sync nor joining."""
        is_present = replica is self.replica(broker_id)
        return not is_present or broker_id not in (*self.state.isr, *self.state.joining)

    def _reader_of(self, broker_id: int, directory: str, name: SegmentName) -> SegmentReader:
        return SegmentReader(
            self._disks[broker_id],
            directory,
            name,
            topic_id=TOPIC_ID,
            partition=0,
            size_bytes=None,
        )

    @staticmethod
    def _entries_of(reader: SegmentReader) -> list[Entry]:
        entries: list[Entry] = []
        for batch in reader.read(reader.base_offset):
            offsets, values = columns_of(batch, "value")
            if offsets[0] != reader.base_offset + len(entries):
                raise ViolationError(f"{reader.path} has a gap before {offsets[0]}")
            is_control = batch.is_control
            entries += (Entry(None if is_control else each, batch.leader_epoch) for each in values)
        return entries

    # --- in-sync replicas ------------------------------------------------------------------------

    def in_sync(self) -> list[tuple[int, TrueReplica]]:
        """Return the in-sync replicas whose files exist, in their order."""
        return [
            (broker, self.replica(broker))
            for broker in self.state.isr
            if broker not in self._damaged
        ]

    def replica(self, broker_id: int) -> TrueReplica:
        """Return the present replica of a broker."""
        topic = self._image.find(TOPIC)
        directory = "" if topic is None else topic.replica_directory(0, broker_id)
        return self.replicas.setdefault((broker_id, directory), TrueReplica())

    def leader_end(self) -> int:
        """Return the log end offset of the leader; -1 without one."""
        return self.replica(self.state.leader).end if self.state.leader in self.state.isr else -1

    def are_all_lost(self, broker_id: int) -> bool:
        """Whether no in-sync replica would be left if the disk of a broker were lost."""
        return not set(self.state.isr) - self._damaged - {broker_id}

    def check_in_sync(self) -> None:
        """Check that in-sync replicas are prefixes of each other, and have all fixed records."""
        in_sync = self.in_sync()
        if not in_sync and self._damaged:
            raise ViolationError(f"all replicas with records have left: {self.state}")
        for (broker, longer), (other, shorter) in pairwise(in_sync):
            if shorter.entries != longer.entries[: shorter.end]:
                at = next(
                    at
                    for at in range(shorter.end)
                    if at >= longer.end or shorter.entries[at] != longer.entries[at]
                )
                there = longer.entries[at] if at < longer.end else None
                raise ViolationError(
                    f"broker {other} is no prefix of {broker}: at {at} it has "
                    f"{shorter.entries[at]}, not {there}; {self.state}"
                )
            for at in shorter.append_ids.keys() & longer.append_ids.keys():
                if shorter.append_ids[at] != longer.append_ids[at]:
                    raise ViolationError(
                        f"the segment at {at} of broker {other} is no copy of broker {broker}'s; "
                        f"{self.state}"
                    )
        for broker, replica in in_sync:
            for at, value in self.fixed.items():
                self._check_has(broker, replica, at, value)

    def _check_has(self, broker: int, replica: TrueReplica, at: int, value: bytes | None) -> None:
        there = replica.entries[at] if at < replica.end else None
        if there is None or there.value != value:
            raise ViolationError(
                f"broker {broker} is in sync, and has {there} at {at} instead of {value!r}; "
                f"{self.state}"
            )

    # --- results of actors -----------------------------------------------------------------------

    def check_appended(self, values: Sequence[bytes], info: LogAppendInfo) -> None:
        """Check that all in-sync replicas have the records that all have acknowledged."""
        if info.last_offset - info.base_offset + 1 != len(values):
            raise ViolationError(f"{values} were acknowledged at {info}")
        self.appended += len(values)
        self.acknowledged_end = max(self.acknowledged_end, info.last_offset + 1)
        self._fix(enumerate(values, info.base_offset), "were acknowledged")

    def check_refused(self, values: Iterable[bytes]) -> None:
        """Record that values were refused: they must not be in the log in the end."""
        self._refused.update(values)

    def check_read(self, begin: int, end: int, rows: Sequence[tuple[int, bytes]]) -> None:
        """Check the records that a reader got between two positions.

        Args:
            begin: the position before.
            end: the position after.
            rows: pairs of an offset and a value. The others are barriers.
        """
        given = dict(rows)
        if len(given) != len(rows) or any(not begin <= at < end for at in given):
            raise ViolationError(f"between {begin} and {end} a reader got {list(rows)}")
        held = min((each.end for each in self._eligible()), default=end)
        if self.state.eligible_leader_replicas:
            # One of those that were eligible when it was read may have been elected since.
            held = min((held, *(each.end for _, each in self.in_sync())))
        read = [(at, given.get(at)) for at in range(begin, min(end, held))]
        self._fix([each for each in read if not self._is_taken_back(*each)], "were read")
        hidden_from = self.state.hidden_from_epoch
        for at in range(max(begin, held), end):
            epochs = {each.entries[at].leader_epoch for _, each in self.in_sync() if at < each.end}
            if hidden_from and epochs and min(epochs) >= hidden_from:
                raise ViolationError(
                    f"at {at} {given.get(at)!r} was read, which was written when too few were in "
                    f"sync; {self.state}"
                )

    def _is_taken_back(self, at: int, value: bytes | None) -> bool:
        """Whether the election of an eligible replica took a value back that it did not have.

        A reader that has not looked at the metadata since reads it from a replica that left.
        """
        if at < self._taken_back_from:
            return False
        in_sync = [replica for _, replica in self.in_sync()]
        holders = [
            replica
            for replica in self.replicas.values()
            if at < replica.end and replica.entries[at].value == value
        ]
        return bool(holders) and not any(each is replica for each in in_sync for replica in holders)

    def _eligible(self) -> list[TrueReplica]:
        """Return the replicas that may be elected without being in sync.

        They lack puts that were on their way when they left, which are not acknowledged either.
        """
        eligible = self.state.eligible_leader_replicas
        return [self.replica(each) for each in eligible if each not in self._damaged]

    def check_extent(self, start: int, end: int, acknowledged: int) -> None:
        """Check the extent of the log that a new listing showed.

        Args:
            start: the log start offset.
            end: the log end offset.
            acknowledged: the `acknowledged_end` when the listing began.
        """
        if start > self.start or end < acknowledged:
            raise ViolationError(
                f"a reader sees {start} to {end}, and {acknowledged} was acknowledged before"
            )

    def check_out_of_range(self, error: OffsetOutOfRangeError) -> None:
        """Check the error of a reader whose offset lies before the log's start.

        Or behind its end: what it has read was not fixed, and an eligible replica was elected.
        """
        is_before = error.offset < error.log_start_offset <= self.start
        if not is_before and error.offset <= max(self.fixed, default=-1) + 1:
            raise ViolationError(f"a reader was told: {error}")

    def _fix(self, entries: Iterable[tuple[int, bytes | None]], what: str) -> None:
        in_sync = self.in_sync()
        for at, value in entries:
            if self.fixed.setdefault(at, value) != value:
                raise ViolationError(
                    f"at {at} {value!r} {what}, and {self.fixed[at]!r} was there before"
                )
            for broker, replica in in_sync:
                self._check_has(broker, replica, at, value)

    def check_end(self) -> None:
        """Check that all replicas are equal, and have no value twice and none that was refused."""
        if set(self.state.isr) != set(self.state.replicas) or self.state.joining:
            raise ViolationError(f"not all replicas are in sync in the end: {self.state}")
        (_, first), *others = self.in_sync()
        for broker, replica in others:
            if replica.entries != first.entries:
                raise ViolationError(f"broker {broker} differs from the leader in the end")
        values = [entry.value for entry in first.entries if entry.value is not None]
        if len(set(values)) != len(values):
            doubled = sorted(each for each in set(values) if values.count(each) > 1)
            raise ViolationError(f"{doubled} are in the log more than once")
        if refused := self._refused.intersection(values):
            raise ViolationError(f"{sorted(refused)} were refused, and are in the log")


def rows_of(batch: LogBatch) -> list[tuple[int, bytes]]:
    """Return pairs of an offset and a value; none of a control batch."""
    if batch.is_control:
        return []
    offsets, values = columns_of(batch, "value")
    return list(zip(offsets, values, strict=True))
