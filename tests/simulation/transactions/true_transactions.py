"""A model of transactions, derived only from the files of the storage; checks what actors see.

A record of a state log decides a transaction at the moment when its file is created. What the
partitions hold, which markers are right and what readers may be given is compared with these
decisions, not with what the partitions' own code says about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_log.errors import CorruptRecordError
from spark_log.log import LogAppendInfo, SegmentReader
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.record import OFFSET_DELTA_FIELD, BatchHeader, ProducerIdAndEpoch
from spark_log.storage import Store
from spark_log.transaction import TopicIdPartition, TransactionMetadata
from spark_log.transaction.records import TransactionRecord, from_json
from spark_log.transaction.state_log import TransactionStateLog
from tests.simulation.violation import ViolationError

TransactionNumber = tuple[str, int]
"""One transaction: the transactional id, and its number there."""


@dataclass(frozen=True, slots=True)
class TrueRecord:
    """One record of a partition.

    Attributes:
        value: its value; unique, except for markers.
        producer: the producer of its transaction; None for a record outside of transactions.
        is_marker: whether it is the marker of a transaction.
    """

    value: bytes
    producer: ProducerIdAndEpoch | None
    is_marker: bool = False


@dataclass(slots=True)
class TruePartition:
    """One partition's log.

    Attributes:
        partition: its topic id and number.
        directory: the directory of its files.
        start: the log start offset.
        records: all records, by offset.
        open: the open transactions: producer → offset of its first record.
        markers: the markers of ended transactions: producer → whether it is committed.
    """

    partition: TopicIdPartition
    directory: str
    start: int = 0
    records: list[TrueRecord] = field(default_factory=list)
    open: dict[ProducerIdAndEpoch, int] = field(default_factory=dict)
    markers: dict[ProducerIdAndEpoch, bool] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The log end offset."""
        return len(self.records)

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction has its marker."""
        return max(self.start, self.first_open_offset)

    @property
    def first_open_offset(self) -> int:
        """The first offset of an open transaction, also of a deleted record; else the end."""
        return min(self.open.values(), default=self.end)

    def open_before(self, offset: int) -> dict[ProducerIdAndEpoch, list[int]]:
        """Return the transactions that were open when the log ended at an offset.

        Also return the offsets of their records, of which some may have been deleted.
        """
        found: dict[ProducerIdAndEpoch, list[int]] = {}
        for at, record in enumerate(self.records[:offset]):
            if record.is_marker:
                assert record.producer is not None
                found.pop(record.producer, None)
            elif record.producer is not None:
                found.setdefault(record.producer, []).append(at)
        return found


class TrueTransactions:
    """Follows the state logs and the partitions on the disk, and checks each of their changes.

    Attributes:
        partitions: the partitions, by directory.
        states: the states, by transactional id.
        outcomes: the outcomes of decided transactions: producer → whether its records count.
        transactions: producer (with its epoch) → the transaction in which it takes part.
        decided: the decided transactions.
        batches: the committed micro-batches: transactional id and number → producers that count.
    """

    def __init__(
        self,
        disk: Store,
        partitions: Mapping[str, TopicIdPartition],
        transactional_ids: Sequence[str],
        *,
        is_compacted: bool,
    ) -> None:
        """Return the model of empty logs.

        Args:
            disk: the files.
            partitions: by directory.
            transactional_ids: all of them.
            is_compacted: whether compactions remove aborted records and old markers. All keys
                differ, so that they remove nothing else.
        """
        self._is_compacted = is_compacted
        directories = {TransactionStateLog.directory_of(each): each for each in transactional_ids}
        self._disk = disk
        self._directories = directories
        self.partitions = {
            directory: TruePartition(partition, directory)
            for directory, partition in partitions.items()
        }
        self.states = {each: TransactionMetadata(each) for each in directories.values()}
        self.transactions: dict[ProducerIdAndEpoch, TransactionNumber] = {}
        self.outcomes: dict[ProducerIdAndEpoch, bool] = {}
        self.batches: dict[TransactionNumber, frozenset[ProducerIdAndEpoch]] = {}
        self.decided: set[TransactionNumber] = set()
        self._refused: set[ProducerIdAndEpoch] = set()
        self._ends = dict.fromkeys(directories, 0)
        self._values: dict[bytes, ProducerIdAndEpoch | None] = {}

    def partition(self, partition: TopicIdPartition) -> TruePartition:
        """Return a partition."""
        return next(each for each in self.partitions.values() if each.partition == partition)

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: a log may grow."""
        directory, _, file = path.rpartition("/")
        name, start = SegmentName.parse(file), StartMarker.parse(file)
        if start is not None and directory in self.partitions:
            log = self.partitions[directory]
            log.start = max(log.start, start.log_start_offset)
        elif name is None:
            return
        elif directory in self._directories:
            self._on_state_segment(directory, name)
        elif directory in self.partitions:
            self._on_segment(self.partitions[directory], name)

    def on_file_deleted(self, path: str) -> None:
        """Ignore the deletion of a file: readers show whether it is missed."""

    def _on_state_segment(self, directory: str, name: SegmentName) -> None:
        end = self._ends[directory]
        if name.base_offset < end:
            return  # void: the name was used before
        if name.base_offset > end:
            raise ViolationError(f"{name.file_name} was created after the state log's end, {end}")
        reader = SegmentReader(
            self._disk,
            directory,
            name,
            topic_id=TransactionStateLog.topic_id,
            partition=0,
            size_bytes=None,
        )
        transactional_id = self._directories[directory]
        for batch in reader.read(reader.base_offset):
            for value in batch.records.column("value").to_pylist():
                self._replay(transactional_id, from_json(value))
        self._ends[directory] = reader.end_offset

    def _on_segment(self, log: TruePartition, name: SegmentName) -> None:
        if name.last_offset is None and name.base_offset < log.end:
            return  # void: the name was used before
        if name.base_offset > log.end:
            raise ViolationError(f"{name.file_name} was created after the log's end, {log.end}")
        records = self._records_in(log, name)
        if name.last_offset is not None:
            self._check_rewritten(log, name, name.last_offset, records)
            return
        for record in records.values():
            if record.is_marker:
                self._on_marker(log, record)
            else:
                self._on_record(log, record)
            log.records.append(record)

    def _check_rewritten(
        self, log: TruePartition, name: SegmentName, last: int, found: Mapping[int, TrueRecord]
    ) -> None:
        for at in range(name.base_offset, last + 1):
            record = log.records[at]
            if found.get(at, record) != record:
                raise ViolationError(
                    f"{name.file_name} has {found[at]} at {at} instead of {record}"
                )
            if at not in found and not (record.is_marker or self._may_be_removed(record)):
                raise ViolationError(f"{name.file_name} does not have {record} at {at}")

    def _may_be_removed(self, record: TrueRecord) -> bool:
        """Whether a compaction may remove a record: one of an aborted transaction."""
        is_aborted = record.producer is not None and self.outcomes.get(record.producer) is False
        return self._is_compacted and is_aborted

    def _records_in(self, log: TruePartition, name: SegmentName) -> dict[int, TrueRecord]:
        topic_id, number = log.partition
        reader = SegmentReader(
            self._disk, log.directory, name, topic_id=topic_id, partition=number, size_bytes=None
        )
        records: dict[int, TrueRecord] = {}
        for ordinal in range(reader.batch_count):
            headers, rows = reader.read_batch(ordinal)
            values = rows.column("value").to_pylist()
            if OFFSET_DELTA_FIELD.name in rows.schema.names:
                deltas = rows.column(OFFSET_DELTA_FIELD.name).to_pylist()
            else:
                first = headers[0].base_offset_delta
                deltas = list(range(first, first + len(values)))
            row = 0
            for header in headers:
                for _ in range(header.record_count):
                    at = reader.base_offset + deltas[row]
                    records[at] = _true_record(header, values[row])
                    row += 1
        return records

    # --- state logs ------------------------------------------------------------------------------

    def _replay(self, transactional_id: str, record: TransactionRecord) -> None:
        before = self.states[transactional_id]
        try:
            after = before.replay(record)
        except CorruptRecordError as error:
            raise ViolationError(str(error)) from error
        self.states[transactional_id] = after
        number = transactional_id, after.transaction
        for participant in after.participants.values():
            found = self.transactions.setdefault(participant.producer, number)
            if found != number:
                raise ViolationError(f"{participant.producer} takes part in {found} and {number}")
        if after.decision is not None and number not in self.decided:
            self._on_decided(number, after)

    def _on_decided(self, number: TransactionNumber, state: TransactionMetadata) -> None:
        decision = state.decision
        assert decision is not None
        self.decided.add(number)
        for producer_id, participant in state.participants.items():
            is_committed = state.is_committed and producer_id in decision.counting
            self.outcomes[participant.producer] = is_committed
            if is_committed and participant.producer in self._refused:
                raise ViolationError(f"{participant.producer} was refused, and then committed")
        if decision.batch_id is not None and state.is_committed:
            batch = number[0], decision.batch_id
            if batch in self.batches:
                raise ViolationError(f"micro-batch {batch} is committed twice")
            self.batches[batch] = frozenset(
                state.participants[each].producer for each in decision.counting
            )

    # --- partitions ------------------------------------------------------------------------------

    def _on_record(self, log: TruePartition, record: TrueRecord) -> None:
        if record.value in self._values:
            raise ViolationError(f"{record.value!r} is in the log twice")
        producer = record.producer
        self._values[record.value] = producer
        if producer is None:
            return
        if producer in log.markers:
            raise ViolationError(f"{record.value!r} lies behind the marker of its transaction")
        log.open.setdefault(producer, log.end)

    def _on_marker(self, log: TruePartition, record: TrueRecord) -> None:
        producer, is_committed = record.producer, record.value == b"commit"
        assert producer is not None
        if producer in log.markers:
            raise ViolationError(f"the marker of {producer} is put twice")
        if self.outcomes.get(producer) is not is_committed:
            raise ViolationError(
                f"the marker of {producer} says {record.value!r}, but whether it is committed is "
                f"{self.outcomes.get(producer)}"
            )
        log.open.pop(producer, None)
        log.markers[producer] = is_committed
        for each in log.open:
            if each.producer_id == producer.producer_id:
                raise ViolationError(f"the marker of {producer} ends the transaction of {each}")

    # --- results of actors -----------------------------------------------------------------------

    def check_appended(
        self, partition: TopicIdPartition, values: Sequence[bytes], info: LogAppendInfo
    ) -> None:
        """Check that acknowledged records are at the offsets of the acknowledgement."""
        log = self.partition(partition)
        found = [each.value for each in log.records[info.base_offset : info.last_offset + 1]]
        if found != list(values):
            raise ViolationError(f"{values[0]!r} was acknowledged at {info.base_offset}: {found}")

    def check_decided(self, counting: Sequence[ProducerIdAndEpoch], *, is_committed: bool) -> None:
        """Check that an acknowledged commit or abort is the one that was decided."""
        for each in counting:
            if self.outcomes.get(each, False) is not is_committed:
                raise ViolationError(f"{each}: {is_committed=} was acknowledged, and is not so")

    def check_ended(self, values: Sequence[bytes], *, is_committed: bool) -> None:
        """Check that the records of an acknowledged end have its outcome, in one transaction."""
        numbers = set()
        for value in values:
            producer = self._values[value]
            assert producer is not None
            numbers.add(self.transactions.get(producer))
            if self.outcomes.get(producer) is not is_committed:
                raise ViolationError(
                    f"{value!r} belongs to {producer}, whose outcome is "
                    f"{self.outcomes.get(producer)}; its client was told {is_committed=}"
                )
        if len(numbers) > 1:
            raise ViolationError(f"{list(values)} are in several transactions: {numbers}")

    def check_refused(self, counting: Sequence[ProducerIdAndEpoch]) -> None:
        """Check that a commit that was refused has not been made, and will not be."""
        for each in counting:
            if self.outcomes.get(each):
                raise ViolationError(f"the commit of {each} was refused, and is made")
            self._refused.add(each)

    def check_read(
        self,
        partition: TopicIdPartition,
        begin: int,
        end: int,
        rows: Sequence[tuple[int, bytes]],
        *,
        is_committed: bool,
    ) -> None:
        """Check the records that a reader was given between two positions.

        Args:
            partition: the partition that was read.
            begin: the position before.
            end: the position after.
            rows: pairs of an offset and a value.
            is_committed: whether it reads with ``read_committed``.
        """
        log = self.partition(partition)
        if is_committed and end > log.last_stable_offset:
            raise ViolationError(
                f"a reader has passed the last stable offset, {log.last_stable_offset}, to {end}"
            )
        given = set(rows)
        expected = [
            (at, record.value)
            for at, record in enumerate(log.records[begin:end], begin)
            if not record.is_marker
            and (not is_committed or self._counts(record))
            and ((at, record.value) in given or not self._may_be_removed(record))
        ]
        if end > log.end or list(rows) != expected:
            raise ViolationError(
                f"between {begin} and {end} a reader got {list(rows)}, but there are {expected}"
            )

    def _counts(self, record: TrueRecord) -> bool:
        return record.producer is None or self.outcomes.get(record.producer, False)

    def check_end(self) -> None:
        """Check that nothing hangs: every transaction of every partition has its marker."""
        for log in self.partitions.values():
            if log.last_stable_offset != log.end:
                raise ViolationError(f"{log.directory}: {sorted(map(str, log.open))} hang")
        for transactional_id, state in self.states.items():
            if state.is_open:
                raise ViolationError(f"{transactional_id} is {state.state} in the end")


def _true_record(header: BatchHeader, value: bytes | None) -> TrueRecord:
    marker = header.marker
    if marker is not None:
        # A marker stands under the epoch that the decision gave its producer.
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch - 1)
        return TrueRecord(marker.name.lower().encode(), producer, is_marker=True)
    assert value is not None
    if not header.is_transactional:
        return TrueRecord(value, None)
    return TrueRecord(value, ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
