"""A model of stripes, derived only from the changes of the storage; checks results against it.

It reads objects by Arrow alone, and knows nothing of the producer state of the package. Each result
of an actor is checked at once, so that a trace ends at the step that went wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import ipc

from spark_log.log import LogBatch, SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.log.files.live_segments import live_log
from spark_log.log.stripe.file_names import StripeFileName
from spark_log.log.stripe.home_marker import HOME_SCHEMA
from spark_log.record.batch_header import (
    METADATA_KEY,
    NO_PRODUCER_ID,
    BatchHeader,
    decode_headers,
)
from spark_log.record.control_record import ControlRecordType
from spark_log.record.entry_directory import ENTRIES_KEY, decode_entries
from tests.simulation.store import SimulatedDisk
from tests.simulation.violation import ViolationError

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
TOPIC = f"flights.{TOPIC_ID}"


def partition_path(partition: int) -> str:
    """Return the directory of a partition's records at home."""
    return f"{TOPIC}/flights-{partition}"


@dataclass
class TrueTransaction:
    """A transaction of one producer in one partition.

    Attributes:
        producer_id: the producer's id.
        epoch: the epoch of its records.
        first_offset: offset of its first record.
        is_committed: its outcome; None while it is open.
        marker_offset: offset of its marker; None while it is open.
    """

    producer_id: int
    epoch: int
    first_offset: int
    is_committed: bool | None = None
    marker_offset: int | None = None


@dataclass
class TruePartition:
    """The records of one partition, in the order in which puts took effect.

    Attributes:
        values: the value of each record; None for a marker.
        transactions: the transaction of each record; None without one.
        producers: producer id → its newest epoch, and the next sequence number in it.
        open: producer id → its open transaction.
    """

    values: list[bytes | None] = field(default_factory=list)
    transactions: list[TrueTransaction | None] = field(default_factory=list)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    open: dict[int, TrueTransaction] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The log end offset."""
        return len(self.values)

    def open_before(self, offset: int) -> dict[int, int]:
        """Return the transactions that are open at an offset: producer id → first offset."""
        return {
            each.producer_id: each.first_offset
            for each in self.transactions[:offset]
            if each is not None and (each.marker_offset is None or each.marker_offset >= offset)
        }

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((each.first_offset for each in self.open.values()), default=self.end)


class TrueStripes:
    """The model of all stripes of a topic.

    Attributes:
        partitions: the records of each partition.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        """Return a model of empty stripes."""
        self._disk = disk
        self.partitions: dict[int, TruePartition] = defaultdict(TruePartition)
        self._next_numbers: dict[str, int] = defaultdict(int)
        self._ends_at: dict[tuple[str, int], dict[int, int]] = {}
        self._values: set[bytes] = set()
        self._refused: set[bytes] = set()

    @property
    def records(self) -> int:
        """Number of records of all partitions."""
        return sum(each.end for each in self.partitions.values())

    def shown(self, partition: int) -> tuple[int, int]:
        """Return the log end offset, and the last stable offset, that a reader has to be shown."""
        true = self.partitions[partition]
        return true.end, true.stable

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file."""
        directory, _, file_name = path.rpartition("/")
        name, segment = StripeFileName.parse(file_name), SegmentName.parse(file_name)
        if name is not None and name.is_home:
            self._check_marker(directory, name.number, path)
        elif name is not None:
            self._on_object(directory, name.number, path)
        elif segment is not None:
            self._check_segment(directory, segment, path)

    def on_file_deleted(self, path: str) -> None:
        """Check that all records can still be read: at home, or in the stripe behind its marker."""
        directory, _, file_name = path.rpartition("/")
        if StripeFileName.parse(file_name) is None:
            if SegmentName.parse(file_name) is not None:
                self._check_all_home()
            return
        names = {file.name for file in self._disk.listing(directory)}
        first = self._newest_marker(directory)
        for number in range(first, self._next_numbers[directory]):
            if StripeFileName(number).file_name not in names:
                raise ViolationError(f"{directory}: {number} is gone, and home is {first}")

    def _newest_marker(self, directory: str) -> int:
        names = [StripeFileName.parse(file.name) for file in self._disk.listing(directory)]
        return max((name.number for name in names if name and name.is_home), default=0)

    def _on_object(self, directory: str, number: int, path: str) -> None:
        expected = self._next_numbers[directory]
        if number > expected:
            raise ViolationError(f"{path} was put, and {expected} is the next number")
        if number < expected:
            return  # a late put of a number that was freed: nobody may read it
        self._next_numbers[directory] += 1
        file = ipc.open_file(self._disk.open_buffer(path))
        last = file.num_record_batches - 1
        _, metadata = file.get_batch_with_custom_metadata(last)
        entries = decode_entries(metadata[ENTRIES_KEY], last)
        at = 0
        for ordinal in range(last):
            records, metadata = file.get_batch_with_custom_metadata(ordinal)
            row = 0
            for header in decode_headers(metadata[METADATA_KEY]):
                if entries.headers[at] != header or entries.ordinals[at] != ordinal:
                    raise ViolationError(f"{path}: entry {at} is not the batch that it names")
                rows = records.slice(row, header.record_count)
                self._append(int(entries.partitions[at]), header, rows, path)
                row, at = row + header.record_count, at + 1
        if at != len(entries):
            raise ViolationError(f"{path} has {at} batches of {len(entries)} entries")
        self._ends_at[directory, number + 1] = {
            partition: each.end for partition, each in self.partitions.items()
        }

    def _append(
        self, partition: int, header: BatchHeader, records: pa.RecordBatch, path: str
    ) -> None:
        true, producer_id = self.partitions[partition], header.producer_id
        transaction = self._check_producer(true, header, f"{path}, partition {partition}")
        for value in records.column("value").to_pylist():
            if not header.is_control:
                if value in self._values:
                    raise ViolationError(f"{path} has {value!r}, which is in the log already")
                if value in self._refused:
                    raise ViolationError(f"{path} has {value!r}, which was refused")
                self._values.add(value)
            true.values.append(None if header.is_control else value)
            true.transactions.append(transaction)
        if header.is_control:
            ended = true.open.pop(producer_id, None)
            if ended is not None:
                ended.is_committed = header.marker is ControlRecordType.COMMIT
                ended.marker_offset = true.end - 1

    def _check_producer(
        self, true: TruePartition, header: BatchHeader, where: str
    ) -> TrueTransaction | None:
        """Check epoch, sequence and transaction of a batch; return its transaction."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id == NO_PRODUCER_ID:
            return None
        known = true.producers.get(producer_id)
        if header.is_control:
            if known is not None and known[0] >= epoch:
                raise ViolationError(f"{where}: a marker of epoch {epoch} after {known[0]}")
            true.producers[producer_id] = epoch, 0
            return None
        if known is not None and epoch < known[0]:
            raise ViolationError(f"{where}: epoch {epoch} appends, which {known[0]} has fenced")
        expected = known[1] if known is not None and known[0] == epoch else 0
        if header.base_sequence != expected:
            raise ViolationError(f"{where}: {header.base_sequence} is appended, not {expected}")
        true.producers[producer_id] = epoch, expected + header.record_count
        opened = true.open.get(producer_id)
        if opened is not None and (opened.epoch != epoch or not header.is_transactional):
            raise ViolationError(f"{where}: the transaction of {producer_id} hangs")
        if not header.is_transactional:
            return None
        return true.open.setdefault(producer_id, TrueTransaction(producer_id, epoch, true.end))

    # --- home ------------------------------------------------------------------------------------

    def _check_marker(self, directory: str, number: int, path: str) -> None:
        batch = ipc.open_file(self._disk.open_buffer(path)).get_batch(0)
        if not batch.schema.equals(HOME_SCHEMA):
            raise ViolationError(f"{path} has other columns")
        true = self._ends_at[directory, number]
        columns = (batch.column(name).to_pylist() for name in ("partition", "end_offset"))
        for partition, end in zip(*columns, strict=True):
            if end != true[partition]:
                raise ViolationError(f"{path} ends {partition} at {end}, not {true[partition]}")
            self._check_home(partition, end)

    def _check_all_home(self) -> None:
        """Check that the records below the newest marker of each stripe are at home."""
        for directory in self._next_numbers:
            newest = self._newest_marker(directory)
            if newest:
                path = f"{directory}/{StripeFileName(newest, is_home=True).file_name}"
                batch = ipc.open_file(self._disk.open_buffer(path)).get_batch(0)
                for partition in batch.column("partition").to_pylist():
                    self._check_home(partition, self._ends_at[directory, newest][partition])

    def _check_home(self, partition: int, end: int) -> None:
        """Check that the files at home have all records of a partition before an offset."""
        reached = live_log(self._disk.list(partition_path(partition))).chain_end_offset
        if reached < end:
            raise ViolationError(f"partition {partition} is at home up to {reached}, not {end}")

    def _check_segment(self, directory: str, name: SegmentName, path: str) -> None:
        partition = int(directory.rpartition("-")[2])
        if name.last_offset is None:
            raise ViolationError(f"{path} is a plain segment")
        reader = SegmentReader(self._disk, directory, name, topic_id=TOPIC_ID, partition=partition)
        found = [
            None if batch.is_control else value
            for batch in reader.read(name.base_offset)
            for value in batch.records.column("value").to_pylist()
        ]
        true = self.partitions[partition].values[name.base_offset : name.last_offset + 1]
        if found != true:
            raise ViolationError(f"{path} has {found}, and {true} is true")

    # --- results of actors -----------------------------------------------------------------------

    def check_appended(self, partition: int, values: Sequence[bytes | None], offset: int) -> None:
        """Check the offset that an append was answered with."""
        true = self.partitions[partition].values[offset : offset + len(values)]
        if list(values) != true:
            raise ViolationError(f"{values} was acknowledged at {offset}, where {true} is")

    def check_marked(self, partition: int, producer_id: int, epoch: int) -> None:
        """Check that a partition has a marker that was acknowledged."""
        known = self.partitions[partition].producers.get(producer_id)
        if known is None or known[0] < epoch:
            raise ViolationError(f"the marker of {producer_id} in {partition} is missing: {known}")

    def check_fenced(self, partition: int, producer_id: int, epoch: int) -> None:
        """Check that a producer that was fenced is."""
        known = self.partitions[partition].producers.get(producer_id)
        if known is None or known[0] <= epoch:
            raise ViolationError(f"epoch {epoch} of {producer_id} was fenced, by {known}")

    def check_not_next(self, partition: int, producer_id: int, epoch: int, sequence: int) -> None:
        """Check that an append that was out of order is."""
        known = self.partitions[partition].producers.get(producer_id)
        expected = known[1] if known is not None and known[0] == epoch else 0
        if (known is None or known[0] <= epoch) and sequence == expected:
            raise ViolationError(f"{sequence} of {producer_id} was out of order, and is next")

    def check_refused(self, values: Sequence[bytes]) -> None:
        """Check that records that were refused are not in the log, and never will be."""
        for value in values:
            if value in self._values:
                raise ViolationError(f"{value!r} was refused, and is in the log")
            self._refused.add(value)

    def check_read(
        self, partition: int, offset: int, batches: Sequence[LogBatch], next_offset: int, end: int
    ) -> None:
        """Check what a reader got; nothing only if the log ended there when it began."""
        true = self.partitions[partition]
        expected = [
            (at, value)
            for at, value in enumerate(true.values[offset:next_offset], offset)
            if value is not None
        ]
        self._check_rows(partition, offset, batches, next_offset, end, expected)

    def check_read_committed(
        self, partition: int, offset: int, batches: Sequence[LogBatch], next_offset: int, end: int
    ) -> None:
        """Check what a reader of committed records got."""
        true = self.partitions[partition]
        expected = []
        for at in range(offset, min(next_offset, true.end)):
            transaction, value = true.transactions[at], true.values[at]
            if transaction is not None and transaction.is_committed is None:
                raise ViolationError(f"a reader of {partition} passed {at}, which is not decided")
            if value is not None and (transaction is None or transaction.is_committed):
                expected.append((at, value))
        self._check_rows(partition, offset, batches, next_offset, end, expected)

    def _check_rows(
        self,
        partition: int,
        offset: int,
        batches: Sequence[LogBatch],
        next_offset: int,
        end: int,
        expected: Sequence[tuple[int, bytes]],
    ) -> None:
        found = [
            pair
            for batch in batches
            for pair in zip(
                batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
            )
        ]
        if found != list(expected) or next_offset > self.partitions[partition].end:
            raise ViolationError(
                f"a reader got {found} from {offset} to {next_offset} of {partition}, not "
                f"{expected}"
            )
        if next_offset == offset < end:
            raise ViolationError(f"a reader got nothing at {offset} of {partition}, before {end}")
