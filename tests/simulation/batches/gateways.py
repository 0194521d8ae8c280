"""Gateways that append what waits for them to one log, which is not replicated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spark_log.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend, LocalLog, LogAppendInfo
from tests.simulation.batches.clients import SentBatch, SimulatedClient, draw_group
from tests.simulation.log.records import Record
from tests.simulation.log.world import World
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_GAP_CHANCE = 0.05
"""Probability that a client leaves a gap in its sequence."""

_NEW_EPOCH_CHANCE = 0.05
"""Probability that a client begins a new epoch, while gateways may hold batches of the old one."""


class Gateway:
    """Appends the batches of the clients that wait for it, by one put, and answers each."""

    def __init__(self, world: World, clients: list[SimulatedClient]) -> None:
        """Return a gateway that the clients are connected to, as they are to all others."""
        self._world = world
        self._clients = clients

    def run(self) -> None:
        """Append until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        log = world.open_log()
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            for client in self._clients:
                if client.producer_id is not None and random.random() < _NEW_EPOCH_CHANCE:
                    client.begin_epoch()
            waiting = draw_group(random, self._clients, _GAP_CHANCE)
            while waiting:
                waiting = self._append(log, waiting)

    def _append(self, log: LocalLog, sent: Sequence[SentBatch]) -> list[SentBatch]:
        """Append and answer batches; return those that wait for another put."""
        batches = [
            BatchAppend(self._world.true_log.record_batch(_records(each)), each.producer)
            for each in sent
        ]
        stage = partial(log.stager.stage_batches, compression="none", leader_epoch=0)
        results: Sequence[LogAppendInfo | SparkLogError | None]
        try:
            results = log.appender.append_batches(batches, stage).results
        except StorageError as error:
            results = [error] * len(sent)
        for each, result in zip(sent, results, strict=True):
            if result is not None:
                self._answer(each, result)
        if results.count(None) == len(sent):
            raise ViolationError("no batch of an append was decided")
        return [each for each, result in zip(sent, results, strict=True) if result is None]

    def _answer(self, sent: SentBatch, result: LogAppendInfo | SparkLogError) -> None:
        true_log, records = self._world.true_log, _records(sent)
        self._world.scheduler.note(f"append {sent.values[0]!r}: {_outcome(result)}")
        match result:
            case LogAppendInfo():
                true_log.check_appended(records, result.base_offset, result.last_offset)
                sent.is_answered = True
                if sent.values[0].startswith(b"gap") and not self._had_expired(sent):
                    raise ViolationError(f"{sent} was taken, but leaves a gap")
            case InvalidProducerEpochError():
                assert sent.producer is not None
                true_log.check_fenced(sent.producer)
                if sent.times_sent == 1:
                    true_log.check_refused(records, is_final=False)
                sent.is_answered = True
            case OutOfOrderSequenceError():
                assert sent.producer is not None
                true_log.check_out_of_order(sent.producer, records, is_final=False)
            case UnknownOutcomeError():
                pass
            case StorageError():
                # Another gateway may be appending a batch that has a producer.
                if sent.producer is None:
                    true_log.check_refused(records)
            case _:
                raise result

    def _had_expired(self, sent: SentBatch) -> bool:
        assert sent.producer is not None
        position = self._world.true_log.producers[sent.producer.producer_id]
        return len(position.recent) == 1 or bool(position.known_from)


def _outcome(result: LogAppendInfo | SparkLogError) -> str:
    if isinstance(result, LogAppendInfo):
        found = " found" if result.is_duplicate else ""
        return f"at {result.base_offset} to {result.last_offset}{found}"
    return type(result).__name__


def _records(sent: SentBatch) -> list[Record]:
    return [Record(value, START_US) for value in sent.values]
