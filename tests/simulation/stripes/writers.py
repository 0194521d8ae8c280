"""Actors that append: with producers, without, in transactions; several threads share puts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogEndOffsetMismatchError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend
from spark_log.log.append import LogAppendInfo
from spark_log.log.stripe import AppendResult, GroupCommit, StripeEntry
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.simulation.log.records import Record, record_batch
from tests.simulation.scheduler import START_US
from tests.simulation.stripes.world import KnownTransaction, SharedProcess, StripesWorld
from tests.simulation.violation import ViolationError


def batch_of(values: Sequence[bytes], producer: ProducerAppend | None) -> BatchAppend:
    """Return records as a writer appends them."""
    return BatchAppend(record_batch([Record(value, START_US) for value in values]), producer)


@dataclass(slots=True)
class Sent:
    """A batch that a writer appends until it is answered.

    Attributes:
        partition: its partition.
        values: the values of its records, which are unique.
        producer: its producer; None without one.
        expected: the log end offset that it requires; None for any.
        times: number of times that it was passed to an append.
    """

    partition: int
    values: Sequence[bytes]
    producer: ProducerAppend | None
    expected: int | None = None
    times: int = 0

    @property
    def entry(self) -> StripeEntry:
        """The entry to append."""
        return StripeEntry(self.partition, batch_of(self.values, self.producer), self.expected)


@dataclass(slots=True)
class Window:
    """The batches of one producer in one partition that are not answered, in order.

    Attributes:
        sent: the batches.
        sequence: the sequence number behind the last.
    """

    sent: list[Sent] = field(default_factory=list)
    sequence: int = 0


class ProducerWriter:
    """A thread that appends batches of some partitions at once, for one producer."""

    def __init__(
        self,
        world: StripesWorld,
        process: SharedProcess | None = None,
        producer_id: int | None = None,
        epoch: int = 0,
        after_ms: float = 0,
    ) -> None:
        """Return a writer; without a producer id it takes a new one whenever it starts.

        Args:
            world: the simulation's state.
            process: the process of this thread; None for a process of its own.
            producer_id: the producer's id.
            epoch: the producer's epoch.
            after_ms: time before it begins.
        """
        self._world = world
        self._process = process
        self._producer_id = producer_id
        self._epoch = epoch
        self._after_ms = after_ms

    def run(self) -> None:
        """Append until the simulation ends and all is answered; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        if self._after_ms:
            world.scheduler.pass_time(self._after_ms)
        appends = (self._process or SharedProcess(world)).appends
        producer_id = self._producer_id or world.next_producer_id()
        windows = {partition: Window() for partition in range(world.profile.partitions)}
        while not world.is_ending or any(each.sent for each in windows.values()):
            world.rest(world.profile.think_ms)
            stripe = random.randrange(world.profile.stripes)
            sent: list[Sent] = []
            for partition in world.partitions_of(stripe):
                window = windows[partition]
                if not world.is_ending and random.random() < 0.6 and len(window.sent) < 3:
                    window.sent.append(self._next(partition, producer_id, window))
                sent += window.sent
                if window.sent and random.random() < 0.1:
                    sent.append(random.choice(window.sent))  # sent twice by one client
            if not sent:
                continue
            if self._is_fenced(appends[stripe], sent, windows):
                return

    def _is_fenced(
        self, append: GroupCommit, sent: Sequence[Sent], windows: Mapping[int, Window]
    ) -> bool:
        """Append batches, and handle the answers; return whether the producer was fenced."""
        for each in sent:
            each.times += 1
        results = append.append([each.entry for each in sent])
        is_fenced, is_given_up = False, False
        for each, result in zip(sent, results, strict=True):
            producer = each.producer
            assert producer is not None
            identity = producer.producer_id, producer.producer_epoch
            self._world.scheduler.note(f"append {each.values[0]!r}: {outcome(result)}")
            match result:
                case LogAppendInfo():
                    self._world.truth.check_appended(
                        each.partition, each.values, result.base_offset
                    )
                    window = windows[each.partition]
                    window.sent = [other for other in window.sent if other is not each]
                case InvalidProducerEpochError():
                    self._world.truth.check_fenced(each.partition, *identity)
                    is_fenced = True
                case OutOfOrderSequenceError():
                    self._world.truth.check_not_next(
                        each.partition, *identity, producer.base_sequence
                    )
                    # A twin may be more than five batches ahead.
                    is_given_up = True
                case StorageError():
                    pass
                case _:
                    raise ViolationError(f"{each.values[0]!r} was answered with {result!r}")
        if is_given_up and self._producer_id is None:
            raise ViolationError("a batch of a producer of its own was out of order")
        return is_fenced or is_given_up

    def _next(self, partition: int, producer_id: int, window: Window) -> Sent:
        """Return the batch with the next sequence number; of equal producers, the same one."""
        sequence = window.sequence
        of_batch = Random(f"{producer_id}-{self._epoch}-{partition}-{sequence}")
        values = [
            b"p%d.%d:%d:%d" % (producer_id, self._epoch, partition, number)
            for number in range(sequence, sequence + of_batch.choice((1, 1, 3)))
        ]
        window.sequence += len(values)
        return Sent(partition, values, ProducerAppend(producer_id, self._epoch, sequence))


class PlainWriter:
    """A process that appends batches without a producer, each once; some require an offset."""

    def __init__(self, world: StripesWorld, name: str) -> None:
        """Return a writer whose records begin with a name."""
        self._world = world
        self._name = name
        self._numbers = 0

    def run(self) -> None:
        """Append until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        appends = SharedProcess(world).appends
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            stripe = random.randrange(world.profile.stripes)
            sent = [
                self._next(partition)
                for partition in world.partitions_of(stripe)
                for _ in range(random.choice((1, 1, 2)))
                if random.random() < 0.6
            ]
            if sent:
                ends = {each.partition: self._end(each.partition) for each in sent}
                results = appends[stripe].append([each.entry for each in sent])
                for each, result in zip(sent, results, strict=True):
                    self._check(each, result, ends[each.partition])

    def _end(self, partition: int) -> int:
        return self._world.truth.shown(partition)[0]

    def _check(self, sent: Sent, result: AppendResult, end: int) -> None:
        """Check an answer.

        Args:
            sent: the batch.
            result: its result.
            end: the log end offset when the append began.
        """
        truth = self._world.truth
        self._world.scheduler.note(f"append {sent.values[0]!r}: {outcome(result)}")
        match result:
            case LogAppendInfo():
                truth.check_appended(sent.partition, sent.values, result.base_offset)
                if sent.expected not in (None, result.base_offset):
                    raise ViolationError(f"{sent} was acknowledged at {result.base_offset}")
            case LogEndOffsetMismatchError():
                truth.check_refused(sent.values)
                if end == sent.expected == truth.partitions[sent.partition].end:
                    raise ViolationError(f"{sent} was refused, and the log ends there")
            case UnknownOutcomeError():
                pass
            case StorageError():
                truth.check_refused(sent.values)
            case _:
                raise ViolationError(f"{sent.values[0]!r} was answered with {result!r}")

    def _next(self, partition: int) -> Sent:
        random = self._world.scheduler.random
        count, first = random.choice((1, 1, 2)), self._numbers
        self._numbers += count
        values = [b"%s:%d" % (self._name.encode(), first + at) for at in range(count)]
        expected = self._end(partition) if random.random() < 0.3 else None
        return Sent(partition, values, None, expected)


class TransactionalWriter:
    """A process that appends in transactions, and ends those of its crashed predecessor."""

    def __init__(self, world: StripesWorld) -> None:
        """Return a writer with a producer id of its own."""
        self._world = world
        self._producer_id = world.next_producer_id()
        world.transactions[self._producer_id] = KnownTransaction(
            self._producer_id, 0, is_committed=False, is_complete=True
        )

    def run(self) -> None:
        """Append until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        appends = SharedProcess(world).appends
        self._end(appends, is_committed=False)
        while not world.is_ending:
            known = world.transactions[self._producer_id]
            epoch = known.epoch + 1 if known.partitions else known.epoch
            known = KnownTransaction(self._producer_id, epoch)
            world.transactions[self._producer_id] = known
            sequences = dict.fromkeys(range(world.profile.partitions), 0)
            for _ in range(random.choice((1, 2, 3))):
                world.rest(world.profile.think_ms)
                if not self._append(appends, known, sequences):
                    break
            else:
                self._end(appends, is_committed=random.random() < 0.6)
                continue
            self._end(appends, is_committed=False)

    def _append(
        self,
        appends: Mapping[int, GroupCommit],
        known: KnownTransaction,
        sequences: dict[int, int],
    ) -> bool:
        """Append a batch to some partitions of a stripe; return whether all are in it."""
        world, random = self._world, self._world.scheduler.random
        stripe = random.randrange(world.profile.stripes)
        sent = []
        for partition in world.partitions_of(stripe):
            if random.random() < 0.6:
                producer = ProducerAppend(
                    self._producer_id, known.epoch, sequences[partition], is_transactional=True
                )
                values = [
                    b"t%d.%d:%d:%d"
                    % (self._producer_id, known.epoch, partition, sequences[partition])
                ]
                sequences[partition] += 1
                sent.append(Sent(partition, values, producer))
        if known.is_committed is not None:
            return False  # registration is refused
        known.partitions.update(each.partition for each in sent)  # registered before the put
        while sent:
            results = appends[stripe].append([each.entry for each in sent])
            left = []
            for each, result in zip(sent, results, strict=True):
                world.scheduler.note(f"append {each.values[0]!r}: {outcome(result)}")
                match result:
                    case LogAppendInfo():
                        world.truth.check_appended(each.partition, each.values, result.base_offset)
                    case InvalidProducerEpochError():
                        world.truth.check_fenced(each.partition, self._producer_id, known.epoch)
                        return False
                    case StorageError():
                        left.append(each)
                    case _:
                        raise ViolationError(f"{each.values[0]!r} was answered with {result!r}")
            sent = left
            if sent:
                if known.is_committed is not None or random.random() < 0.2:
                    return False
                world.rest(world.profile.think_ms)
        return True

    def _end(self, appends: Mapping[int, GroupCommit], *, is_committed: bool) -> None:
        known = self._world.transactions[self._producer_id]
        if known.is_committed is None:
            known.is_committed = is_committed
        put_markers(self._world, appends, known)


class Finisher:
    """A process that decides, and puts the markers of, transactions of others."""

    def __init__(self, world: StripesWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Work until the simulation ends; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        appends = SharedProcess(world).appends
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            known = world.transactions[random.choice(list(world.transactions))]
            if known.is_committed is None and random.random() < 0.5:
                known.is_committed = False
            if known.is_committed is not None and not known.is_complete:
                put_markers(world, appends, known)


def put_markers(
    world: StripesWorld, appends: Mapping[int, GroupCommit], known: KnownTransaction
) -> None:
    """Put the markers of a decided transaction into all its partitions, until all are there."""
    assert known.is_committed is not None
    marker = EndTransactionMarker(known.producer_id, known.epoch + 1, known.is_committed)
    waiting = sorted(known.partitions)
    while waiting and not known.is_complete:
        stripe = world.stripe_of(waiting[0])
        chosen = [each for each in waiting if world.stripe_of(each) == stripe]
        results = appends[stripe].append([StripeEntry(each, marker) for each in chosen])
        for partition, result in zip(chosen, results, strict=True):
            world.scheduler.note(f"marker of {known.producer_id}: {outcome(result)}")
            match result:
                case LogAppendInfo():
                    world.truth.check_appended(partition, [None], result.base_offset)
                case None:
                    pass
                case StorageError():
                    continue
                case _:
                    raise ViolationError(f"a marker was answered with {result!r}")
            world.truth.check_marked(partition, known.producer_id, known.epoch + 1)
            waiting.remove(partition)
        if waiting:
            world.rest(world.profile.think_ms)
    known.is_complete = True


def outcome(result: AppendResult | InvalidTxnStateError) -> str:
    """Return a short text of a result, for the trace."""
    if result is None:
        return "exists"
    if isinstance(result, LogAppendInfo):
        found = " found" if result.is_duplicate else ""
        return f"at {result.base_offset} to {result.last_offset}{found}"
    return type(result).__name__
