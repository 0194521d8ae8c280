"""A model of offsets in transactions: checks each decision, each version and each answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spark_log.errors import CorruptRecordError
from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionMetadata, TransactionOffset
from spark_log.transaction.records import TransactionRecord, from_json
from spark_log.transaction.state_log import TransactionStateLog
from spark_log.types import TopicPartition
from tests.simulation.consumer_protocol.true_group import Position, TrueConsumerGroup
from tests.simulation.groups.true_group import Place
from tests.simulation.violation import ViolationError


@dataclass(frozen=True, slots=True)
class SentOffset:
    """The name of one offset in one transaction; it is the metadata of the offset.

    Attributes:
        acquisition: the time for which its sender has the partition (`Position`).
        process: the identity that the sender's process was given when it began.
        number: the number of the transaction; of all processes.
    """

    acquisition: str
    process: ProducerIdAndEpoch
    number: int

    def __str__(self) -> str:
        process = self.process
        return f"{self.acquisition} {process.producer_id} {process.producer_epoch} {self.number}"

    @staticmethod
    def parse(text: str) -> SentOffset:
        """Return the name from the metadata of an offset."""
        acquisition, *numbers = text.split()
        producer_id, epoch, number = map(int, numbers)
        return SentOffset(acquisition, ProducerIdAndEpoch(producer_id, epoch), number)


class TrueSentOffsets(TrueConsumerGroup):
    """Follows the group's log and the state logs; compares the offsets table with the decisions.

    An offset of a transaction is committed in the moment in which the decision's file is created.

    Attributes:
        states: the states, by transactional id.
        decided: the offset of each partition after all decisions so far.
        transactions: number of transactions that were committed with offsets.
    """

    def __init__(self, *args: Any, transactional_ids: Collection[str]) -> None:
        """Return the model of an empty group, and of transactional ids without transactions."""
        super().__init__(*args)
        self.states = {each: TransactionMetadata(each) for each in transactional_ids}
        self.decided: dict[Place, Position] = {}
        self.transactions = 0
        self._directories = {TransactionStateLog.directory_of(each): each for each in self.states}
        self._ends = dict.fromkeys(self._directories, 0)
        self._processes: dict[str, ProducerIdAndEpoch] = {}
        self._committed: set[int] = set()
        self._aborted: set[int] = set()

    # --- state logs ------------------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: the group's log, or a state log, may grow."""
        super().on_file_created(path)
        directory, _, file = path.rpartition("/")
        name = SegmentName.parse(file)
        if directory not in self._directories or name is None:
            return
        if name.base_offset < self._ends[directory]:
            return  # void: its name was used before
        reader = SegmentReader(
            self._disk,
            directory,
            name,
            topic_id=TransactionStateLog.topic_id,
            partition=0,
            size_bytes=None,
        )
        for batch in reader.read(reader.base_offset):
            for value in batch.records.column("value").to_pylist():
                self._change_state(self._directories[directory], from_json(value))
        self._ends[directory] = reader.end_offset

    def _change_state(self, transactional_id: str, record: TransactionRecord) -> None:
        before = self.states[transactional_id]
        try:
            after = before.replay(record)
        except CorruptRecordError as error:
            raise ViolationError(str(error)) from error
        self.states[transactional_id] = after
        self.note(f"{transactional_id}: {record.change}, {after.state.value} {after.transaction}")
        if record.change == "initialize":
            assert after.owner is not None
            self._processes[transactional_id] = after.owner
        if after.is_committed and not before.is_committed:
            assert after.decision is not None
            if after.decision.offsets:
                self.transactions += 1
            for offset in after.decision.offsets:
                self._decide(transactional_id, offset)

    def _decide(self, transactional_id: str, offset: TransactionOffset) -> None:
        sent = SentOffset.parse(offset.metadata)
        place = offset.topic_id, TopicPartition(offset.topic, offset.partition)
        if sent.process != self._processes[transactional_id]:
            raise ViolationError(
                f"{transactional_id} commits an offset of {sent.process}, after "
                f"{self._processes[transactional_id]} has begun"
            )
        if sent.number in self._aborted:
            raise ViolationError(f"transaction {sent.number} is committed after its abort")
        position = Position(offset.offset, sent.acquisition)
        self.check_holder(place, position)
        self._committed.add(sent.number)
        self.decided[place] = position

    # --- answers to clients ----------------------------------------------------------------------

    def check_ended(self, number: int, *, is_committed: bool, has_offsets: bool) -> None:
        """Check the outcome of a transaction that a client was told."""
        if is_committed and has_offsets and number not in self._committed:
            raise ViolationError(f"transaction {number} was acknowledged, and is not committed")
        if not is_committed:
            if number in self._committed:
                raise ViolationError(f"transaction {number} was aborted, and is committed")
            self._aborted.add(number)

    # --- the offsets table -----------------------------------------------------------------------

    def _check_rows(self, generation: int, member_id: str, rows: Mapping[Place, Any]) -> None:
        for place, position in rows.items():
            if self.decided.get(place) != position:
                raise ViolationError(
                    f"{position} of {place[1]} is in the table, and {self.decided.get(place)} was "
                    f"decided"
                )
            self.positions[place] = position.offset

    def _committed_offset(self, place: Place) -> int:
        decided = self.decided.get(place)
        return 0 if decided is None else decided.offset
