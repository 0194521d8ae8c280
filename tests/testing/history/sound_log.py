"""A small model of a log with transactions, whose clients crash: it makes sound histories."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from spark_log.testing.history import Assign, Operation, Outcome, Poll, Polled, Send
from spark_log.types import TopicPartition

PARTITIONS = [TopicPartition("flights", number) for number in range(3)]


@dataclass
class Entry:
    """A record, or a transaction's marker, which has no value."""

    value: str | None
    transaction: "OpenTransaction | None" = None

    @property
    def state(self):
        return "committed" if self.transaction is None else self.transaction.state


@dataclass
class OpenTransaction:
    operation: Operation
    positions: dict[TopicPartition, int]
    state: str = "open"
    partitions: set[TopicPartition] = field(default_factory=set)


class SoundLog:
    """Runs clients at random; `operations` are the operations that they noted.

    A client that crashes does not know whether its last operation took effect, and another one
    takes its place. A consumer that is assigned partitions continues from a committed position.
    """

    def __init__(self, chance: Random, steps: int):
        self._chance = chance
        self._clock = count()
        self._names = count()
        self._values = count()
        self.logs: dict[TopicPartition, list[Entry]] = {each: [] for each in PARTITIONS}
        self._notes: dict[Any, Operation] = {}
        self._numbers: dict[str, Any] = defaultdict(count)
        self._producers = [self._new_name("producer") for _ in range(2)]
        self._consumers = [[self._new_name("consumer"), {}] for _ in range(2)]
        self._workers = [[self._new_name("worker"), {}, None] for _ in range(2)]
        for _ in range(steps):
            chance.choice([self._send, self._poll, self._work, self._work])()
        for worker in self._workers:
            self._end(worker, chance.choice([True, False]))
        self._read_everything()

    @property
    def operations(self):
        return list(self._notes.values())

    def _new_name(self, kind):
        return f"{kind}-{next(self._names)}"

    def _note(self, operation):
        self._notes[operation.process, operation.number] = operation
        return operation

    def _begin(self, process, *actions, **details):
        number = next(self._numbers[process])
        return self._note(Operation(process, number, actions, invoked=next(self._clock), **details))

    def _done(self, operation, outcome=Outcome.COMMITTED, **changes):
        return self._note(
            replace(operation, outcome=outcome, completed=next(self._clock), **changes)
        )

    def _append(self, partition, value, transaction=None):
        self.logs[partition].append(Entry(value, transaction))
        return len(self.logs[partition]) - 1

    def _send(self):
        place = self._chance.randrange(len(self._producers))
        sends = [
            Send(self._chance.choice(PARTITIONS), f"v{next(self._values)}")
            for _ in range(self._chance.randint(1, 2))
        ]
        begun = self._begin(self._producers[place], *sends)
        fate = self._chance.choices(["done", "refused", "crash", "crash before"], [6, 1, 1, 1])[0]
        if fate in ("done", "crash"):
            sends = [
                replace(each, offset=self._append(each.topic_partition, each.value))
                for each in sends
            ]
        if "crash" in fate:
            self._producers[place] = self._new_name("producer")
        elif fate == "done":
            self._done(begun, actions=tuple(sends))
        else:
            self._done(begun, Outcome.ABORTED)

    def _poll(self):
        consumer = self._chance.choice(self._consumers)
        name, positions = consumer
        blow = self._chance.random()
        if blow < 0.1:
            partition = self._chance.choice(PARTITIONS)
            back = self._chance.randint(0, positions.get(partition, 0))
            positions[partition] = back
            known = self._chance.choice([back, None])
            self._done(self._begin(name, Assign(((partition, known),))))
        elif blow < 0.2:
            self._begin(name, Poll(()))
            consumer[:] = [self._new_name("consumer"), {}]
        else:
            begun = self._begin(name, Poll(()))
            self._done(begun, actions=(self._fetch(positions),))

    def _fetch(self, positions):
        """Poll some partitions, up to their last stable offset at most."""
        found = []
        for partition in self._chance.sample(PARTITIONS, 2):
            log = self.logs[partition]
            stable = next((o for o, each in enumerate(log) if each.state == "open"), len(log))
            start = positions.get(partition, 0)
            end = min(stable, start + self._chance.randint(1, 5))
            found += [each for each in self._committed(partition) if start <= each.offset < end]
            positions[partition] = max(start, end)
        return Poll(tuple(found))

    def _work(self):
        """A worker begins a transaction, or polls, sends or ends it."""
        worker = self._chance.choice(self._workers)
        if worker[2] is None:
            begun = self._begin(worker[0], is_transaction=True)
            worker[2] = OpenTransaction(begun, dict(worker[1]))
            return
        transaction = worker[2]
        step = self._chance.choice(["poll", "send", "send", "end"])
        operation = transaction.operation
        if step == "poll":
            action = self._fetch(transaction.positions)
        elif step == "send":
            partition = self._chance.choice(PARTITIONS)
            value = f"v{next(self._values)}"
            action = Send(partition, value, self._append(partition, value, transaction))
            transaction.partitions.add(partition)
        else:
            self._end(worker, self._chance.choice([True, True, False]))
            return
        transaction.operation = self._note(replace(operation, actions=(*operation.actions, action)))

    def _end(self, worker, commits):
        transaction = worker[2]
        if transaction is None:
            return
        begun = self._note(replace(transaction.operation, end_invoked=next(self._clock)))
        worker[2] = None
        transaction.state = "committed" if commits else "aborted"
        for partition in sorted(transaction.partitions):
            self._append(partition, None)
        if self._chance.random() < 0.2:
            worker[:2] = [self._new_name("worker"), {}]
        elif commits:
            worker[1] = transaction.positions
            self._done(begun)
        else:
            self._done(begun, Outcome.ABORTED)

    def _read_everything(self):
        name = self._new_name("last")
        self._done(self._begin(name, Assign(tuple((each, 0) for each in PARTITIONS))))
        for partition in self.logs:
            self._done(self._begin(name, Poll(tuple(self._committed(partition)))))

    def _committed(self, partition):
        return [
            Polled(partition, offset, each.value)
            for offset, each in enumerate(self.logs[partition])
            if each.value is not None and each.state == "committed"
        ]
