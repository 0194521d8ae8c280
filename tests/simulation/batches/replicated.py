"""The simulation of gateways that append several clients' batches to a replicated partition."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from spark_log.errors import (
    CorruptRecordError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceError,
    ReplicationError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import BatchAppend, LogAppendInfo
from tests.simulation.batches.clients import SentBatch, SimulatedClient, draw_group
from tests.simulation.log.records import Record, record_batch
from tests.simulation.replication.simulation import ReplicationSimulation
from tests.simulation.replication.world import OpenPartition, ReplicationWorld
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError


class ReplicatedGateway:
    """Appends the batches of the clients that wait for it to all in-sync replicas."""

    def __init__(self, world: ReplicationWorld, clients: list[SimulatedClient]) -> None:
        """Return a gateway that the clients are connected to, as they are to all others."""
        self._world = world
        self._clients = clients

    def run(self) -> None:
        """Append until the simulation ends."""
        world = self._world
        opened = OpenPartition(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            sent = draw_group(world.scheduler.random, self._clients, gap_chance=0.0)
            batches = [
                BatchAppend(
                    record_batch([Record(value, START_US) for value in each.values]), each.producer
                )
                for each in sent
            ]
            results = opened.log.append_batches(batches)
            for each, result in zip(sent, results, strict=True):
                self._answer(each, result)

    def _answer(self, sent: SentBatch, result: LogAppendInfo | SparkLogError) -> None:
        truth, values = self._world.truth, sent.values
        match result:
            case LogAppendInfo():
                self._world.scheduler.note(f"append {values[0]!r}: at {result.base_offset}")
                truth.check_appended(values, result)
                sent.is_answered = True
                return
            case OutOfOrderSequenceError():
                if sent.times_sent == 1:
                    raise ViolationError(f"a record before {values[0]!r} is lost") from result
            case UnknownOutcomeError() | NotEnoughReplicasAfterAppendError():
                pass
            case StorageError() | ReplicationError() | CorruptRecordError():
                if sent.producer is None:
                    truth.check_refused(values)
            case _:
                raise result
        self._world.scheduler.note(f"append {values[0]!r}: {type(result).__name__}")


class ReplicatedBatchesSimulation(ReplicationSimulation):
    """Gateways, readers, controllers and cleaners of a partition whose brokers fail."""

    world: ReplicationWorld

    def spawn_actors(self) -> None:
        """Create the partition; make the gateways, and the actors that the profile has."""
        world, random = self.world, Random(f"{self.seed} gateways")
        world.profile = replace(world.profile, writers=0, leader_writers=0)
        super().spawn_actors()
        clients = [
            SimulatedClient(f"c{number}", Random(random.getrandbits(32)), producer_id)
            for number, producer_id in enumerate(
                [
                    *(next(world.producer_ids) for _ in range(random.choice((1, 2)))),
                    *[None] * random.choice((0, 0, 1)),
                ]
            )
        ]
        for number in range(2):
            gateway = ReplicatedGateway(world, clients)
            world.scheduler.spawn_mortal(f"gateway {number}", gateway.run)
