"""The simulation of gateways that append the batches of several clients to one log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from spark_log.record.batch_header import BatchHeader
from tests.simulation.batches.clients import SimulatedClient
from tests.simulation.batches.gateways import Gateway
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.log.simulation import LogSimulation
from tests.simulation.log.true_log import TrueLog


class TrueBatchLog(TrueLog):
    """The model of a log whose segments may have the batches of several producers."""

    def appends_of(self, headers: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
        """Yield the headers of each append: each batch is decided alone."""
        yield from ([header] for header in headers)


def draw_batches_profile(random: Random) -> Profile:
    """Draw the conditions: those of a log, with few other writers."""
    drawn = draw_profile(random)
    return replace(
        drawn,
        writers=random.choice((0, 0, 1)),
        conditional_writers=0,
        idempotent_writers=random.choice((0, 0, 1)),
        twins=0,
        epoch_pairs=0,
        seekers=0,
        steps=random.choice((150, 300)),
    )


class BatchesSimulation(LogSimulation):
    """Gateways, and the readers, mergers and cleaners of one partition's log."""

    draw_profile = staticmethod(draw_batches_profile)
    true_log_class: ClassVar[type[TrueLog]] = TrueBatchLog

    def spawn_actors(self) -> None:
        """Make the gateways, their clients, and the actors of a log."""
        super().spawn_actors()
        world, random = self.world, self.world.scheduler.random
        clients = [
            SimulatedClient(f"c{number}", Random(random.getrandbits(32)), producer_id)
            for number, producer_id in enumerate(
                [
                    *(world.next_producer_id() for _ in range(random.choice((1, 2, 3)))),
                    *[None] * random.choice((0, 0, 1, 2)),
                ]
            )
        ]
        for number in range(random.choice((2, 2, 3))):
            world.scheduler.spawn_mortal(f"gateway {number}", Gateway(world, clients).run)
