"""The simulation of stripes whose root is a quorum: their objects and files at home have copies.

The stripes are the product's, and so is the store, which decides each name on the roots that are
left. Roots fail for a while, and return without the puts of that time; they lose their files, and
are replaced.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import ClassVar

from spark_log.log.stripe.file_names import StripeFileName
from spark_log.storage.quorum import MappedQuorumStore, QuorumStore
from spark_log.storage.root_directories import QUORUM_DIRECTORY
from tests.simulation.faults import DELETE_DELAY_MS, Faults
from tests.simulation.log.profile import draw_profile
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.quorum.actors import QuorumOperator
from tests.simulation.quorum.profile import QuorumProfile
from tests.simulation.quorum.simulation import found
from tests.simulation.quorum.world import QuorumWorld, seeded
from tests.simulation.same_thread import SameThread
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.stripes.profile import StripesProfile, draw_stripes_profile
from tests.simulation.stripes.simulation import StripesSimulation
from tests.simulation.stripes.true_stripes import TOPIC, TrueStripes
from tests.simulation.stripes.world import StripesWorld
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_ROOTS = 3
_MAJORITY = 2


class RangedQuorumStore(QuorumStore):
    """A quorum whose files are read in ranges."""

    executor_class: ClassVar[type[ThreadPoolExecutor]] = SameThread


class MappedSimulatedQuorumStore(MappedQuorumStore):
    """A quorum whose files are memory-mapped."""

    executor_class: ClassVar[type[ThreadPoolExecutor]] = SameThread


class TrueCopiedStripes(TrueStripes):
    """The model of stripes that have copies.

    A file exists from the moment at which it is on the first root. Readers have to be shown it when
    it is on two: then each majority has it.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        """Return a model of empty stripes."""
        super().__init__(disk)
        self._files = disk
        self._holders: dict[str, set[str]] = defaultdict(set)
        self._bounds: dict[str, dict[int, tuple[int, int]]] = {}
        self._shown: dict[int, tuple[int, int]] = {}

    def shown(self, partition: int) -> tuple[int, int]:
        """Return the offsets behind the last object that two roots have had."""
        return self._shown.get(partition, (0, 0))

    def on_put(self, root: str, path: str, content: bytes) -> None:
        """Handle a file that appeared on a root."""
        if not _is_of_topic(path):
            return
        if not self._exists(path):  # a late put of a freed name may have other bytes
            self._files.put_if_absent(path, content)
            self.on_file_created(path)
            self._bounds.setdefault(
                path,
                {partition: (each.end, each.stable) for partition, each in self.partitions.items()},
            )
        elif self._files.open_buffer(path).to_pybytes() != content:
            raise ViolationError(f"{path} has other bytes on {root}")
        holders = self._holders[path]
        holders.add(root)
        if len(holders) == _MAJORITY and _is_object(path):
            self._shown.update(self._bounds[path])

    def on_delete(self, path: str) -> None:
        """Handle the deletion of a file on one of its roots: nobody may need it any more."""
        if _is_of_topic(path) and self._exists(path):
            self._files.delete(path)
            self.on_file_deleted(path)

    def _exists(self, path: str) -> bool:
        return any(file.path == path for file in self._files.listing(path.rpartition("/")[0]))


def _is_of_topic(path: str) -> bool:
    return path.startswith(f"{TOPIC}/") and f"/{QUORUM_DIRECTORY}/" not in path


def _is_object(path: str) -> bool:
    name = StripeFileName.parse(path.rpartition("/")[2])
    return name is not None and not name.is_home


@dataclass
class QuorumStripesWorld(StripesWorld):
    """The world of stripes whose root is a quorum.

    Attributes:
        quorum: its roots.
    """

    quorum: QuorumWorld = field(kw_only=True)

    def open_store(self) -> QuorumStore:
        """Return the quorum, as a new process opens it."""
        is_ranged = self.profile.is_ranged
        return self.quorum.open_store(
            RangedQuorumStore if is_ranged else MappedSimulatedQuorumStore
        )

    def end_faults(self) -> None:
        """Let all roots work, and tell the actors to end."""
        super().end_faults()
        self.quorum.end_faults()


def draw_quorum_stripes_profile(random: Random) -> StripesProfile:
    """Draw the conditions: those of stripes; a put is some twenty requests, so these are quick."""
    drawn = draw_stripes_profile(random)
    return replace(
        drawn,
        latency_ms=DELETE_DELAY_MS / random.choice((500, 1000, 2000)),
        pause=random.choice((0.0, 0.002, 0.01)),
        crash=drawn.crash / 10,
        failed=random.choice((0.0, 0.01, 0.05)),
        lost_request=random.choice((0.0, 0.01, 0.05)),
        lost_answer=random.choice((0.0, 0.01, 0.05)),
        torn_listing=0.0,
        slow_listing=0.0,
        writers=max(1, drawn.writers),
        think_ms=min(drawn.think_ms, DELETE_DELAY_MS * 0.2),
        steps=drawn.steps * 10,
    )


class QuorumStripesSimulation(StripesSimulation):
    """The actors of stripes, on roots that fail, are wiped and are replaced by an operator."""

    MAX_STEPS_TO_END: ClassVar[int] = 200_000
    draw_profile = staticmethod(draw_quorum_stripes_profile)
    world: QuorumStripesWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of one without a safety rule."""
        super().__init__(seed, variant)
        self.patches = (*seeded(self.scheduler, 1.0), *self.patches)

    def make_world(
        self, disk: SimulatedDisk, clock: WallClocks, profile: StripesProfile
    ) -> StripesWorld:
        """Return the world, whose store is a quorum; the disk is the model's."""
        random = Random(f"quorum of {self.seed}")
        truth = TrueCopiedStripes(disk)
        faults = replace(
            draw_profile(random),
            **{each.name: getattr(profile, each.name) for each in fields(Faults)},
        )
        quorum = QuorumWorld(
            self.scheduler,
            SimulatedClock(self.scheduler),
            QuorumProfile(
                faults=faults,
                roots=_ROOTS,
                proposers=0,
                names=0,
                readers=0,
                allocators=0,
                think_ms=0.0,
                impatience=random.choice((0.0, 0.1, 0.5)),
                haste=1.0,
                has_operator=random.random() < 0.8,
                steps=profile.steps,
            ),
        )
        quorum.observer = truth
        quorum.impatience = quorum.profile.impatience
        store = SimulatedStore(disk, self.scheduler, truth, profile)
        return QuorumStripesWorld(self.scheduler, clock, store, truth, profile, quorum=quorum)

    def spawn_actors(self) -> None:
        """Found the quorum, and make the actors that the profile has."""
        quorum = self.world.quorum
        found(quorum)
        super().spawn_actors()
        if quorum.profile.has_operator:
            self.scheduler.spawn("operator", QuorumOperator(quorum).run, is_mortal=False)
