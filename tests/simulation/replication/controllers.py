"""Actors that change the partition's replicas: controllers, and the failures of roots."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from spark_log.cluster import clean_replicas
from spark_log.cluster.broker_registration import register_broker
from spark_log.errors import (
    ClockSkewError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    ReplicationError,
    SparkLogError,
    StorageError,
)
from spark_log.log import DivergedReplicaError
from spark_log.log.clean import MIN_DEDUPE_BUFFER_BYTES
from spark_log.metadata.brokers import fence_broker_records
from spark_log.replication import ReplicaRecovery
from tests.simulation.replication.world import OpenPartition, ReplicationWorld

_FAILURES = (StorageError, ReplicationError, CorruptRecordError, DivergedReplicaError)

_IDLE = 5
"""Factor by which a controller rests longer in the end if it has nothing to do."""

_LAG = 5
"""Factor by which a slow root is slower than usual."""


class Controller:
    """Brings replicas back that are not in sync, and takes others out by mistake.

    Attributes:
        recovery_class: the class that returns a replica to the in-sync replicas.
    """

    recovery_class: ClassVar[type[ReplicaRecovery]] = ReplicaRecovery

    def __init__(self, world: ReplicationWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Work until the simulation ends and all replicas are in sync."""
        world, is_idle = self._world, False
        opened = OpenPartition(world)
        while True:
            world.rest(world.profile.round_ms * (_IDLE if is_idle else 1))
            is_idle = False
            try:
                if self._do_round(opened):
                    if self._are_others_done():
                        return
                    is_idle = world.is_ending
            except _FAILURES as error:
                world.scheduler.note(f"round: {type(error).__name__}")

    def _are_others_done(self) -> bool:
        actors = self._world.scheduler.actors
        return all(actor.is_done or actor.name.startswith("controller") for actor in actors)

    def _do_round(self, opened: OpenPartition) -> bool:
        """Do one round of work; return whether all replicas are in sync."""
        world, random = self._world, self._world.scheduler.random
        state = opened.states.refresh()
        if not world.is_ending:
            if world.chance(world.profile.suspicion):
                suspect = random.choice(state.replicas)
                newer = opened.states.remove_from_isr(state, (suspect,))
                world.scheduler.note(f"suspects {suspect}: {newer}")
            if world.chance(world.profile.fencing):
                self._fence(opened, random.choice(state.replicas))
        self._unfence(opened)
        state = opened.states.refresh()
        for broker in (*state.joining, *(each for each in state.replicas if each not in state.isr)):
            try:
                self._bring_back(opened, broker)
            except _FAILURES as error:
                world.scheduler.note(f"{broker} stays out: {type(error).__name__}")
        opened.log.replicate()
        state = opened.states.refresh()
        return set(state.isr) == set(state.replicas) and not state.joining

    def _fence(self, opened: OpenPartition, broker: int) -> None:
        opened.cluster.metadata.commit(partial(fence_broker_records, broker_id=broker, fenced=True))
        self._world.scheduler.note(f"fences {broker}: {opened.states.current()}")

    def _unfence(self, opened: OpenPartition) -> None:
        for broker in opened.cluster.image().brokers():
            is_back = not self._world.stores[broker.broker_id].is_down
            is_kept = broker.broker_id in self._world.lost
            if broker.fenced and is_back and not is_kept:
                opened.cluster.metadata.commit(
                    partial(fence_broker_records, broker_id=broker.broker_id, fenced=False)
                )
                self._world.scheduler.note(f"unfences {broker.broker_id}")

    def _bring_back(self, opened: OpenPartition, broker: int) -> None:
        """Do the work of the replicate job for one replica."""
        done = self.recovery_class(opened.cluster, opened.topic, 0, broker).run()
        self._world.scheduler.note(f"{done}: {opened.states.current()}")


class Outages:
    """Lets roots fail, lag, return, or lose all of their files."""

    def __init__(self, world: ReplicationWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Work until the simulation ends; then every root works."""
        world = self._world
        opened = OpenPartition(world)
        while not world.is_ending:
            world.wait(world.profile.outage_ms)
            broker = world.scheduler.random.choice(world.brokers)
            if world.chance(world.profile.destroys):
                self._lose(opened, broker)
            elif world.chance(0.3):
                self._slow_down(broker)
            else:
                self._take_down(broker)

    def _slow_down(self, broker: int) -> None:
        world = self._world
        world.scheduler.note(f"broker {broker} becomes slow")
        world.stores[broker].lag_ms = world.profile.faults.latency_ms * _LAG
        world.wait(world.profile.outage_ms)
        world.stores[broker].lag_ms = 0.0
        world.scheduler.note(f"broker {broker} is not slow any more")

    def _take_down(self, broker: int) -> None:
        world, store = self._world, self._world.stores[broker]
        if store.is_down:
            return
        world.scheduler.note(f"broker {broker} is down")
        store.take_down()
        world.wait(world.profile.outage_ms)
        store.is_down = False
        world.scheduler.note(f"broker {broker} is up again")

    def _lose(self, opened: OpenPartition, broker: int) -> None:
        """Lose a disk. If no other replica can lead, the disk is found again."""
        world, store, truth = self._world, self._world.stores[broker], self._world.truth
        if world.lost or store.is_down or truth.are_all_lost(broker):
            return
        world.lost.add(broker)
        if world.profile.empties:
            self._wipe(broker)
        else:
            store.take_down()
            world.scheduler.note(f"broker {broker} is down, perhaps for ever")
        world.wait(world.profile.outage_ms)
        metadata = opened.cluster.metadata
        metadata.commit(partial(fence_broker_records, broker_id=broker, fenced=True))
        if broker in truth.state.isr:
            store.is_down = False
            world.scheduler.note(f"broker {broker} is up again, since no other one can lead")
            metadata.commit(partial(fence_broker_records, broker_id=broker, fenced=False))
        else:
            self._replace(opened, broker)
        world.lost.discard(broker)

    def _replace(self, opened: OpenPartition, broker: int) -> None:
        world, store = self._world, self._world.stores[broker]
        while True:
            self._wipe(broker)
            store.is_down = False
            try:
                register_broker(opened.cluster, broker, store.url)
            except SparkLogError as error:
                world.scheduler.note(f"registering {broker}: {type(error).__name__}")
                if not opened.cluster.image().broker(broker).fenced:
                    break  # the answer was lost
                world.rest(world.profile.outage_ms)
            else:
                break
        world.truth.on_replaced(broker)
        world.scheduler.note(f"broker {broker} is replaced")

    def _wipe(self, broker: int) -> None:
        world = self._world
        world.scheduler.note(f"broker {broker} loses all files")
        world.disks[broker].wipe()
        world.truth.on_wiped(broker)


class ReplicaCleaner:
    """Does the work of the clean job: each replica is cleaned by itself."""

    def __init__(self, world: ReplicationWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Clean until the simulation ends."""
        world = self._world
        opened = OpenPartition(world)
        while not world.is_ending:
            world.rest(world.profile.round_ms)
            try:
                for cleaned in clean_replicas(
                    opened.cluster,
                    opened.topic,
                    0,
                    dry_run=False,
                    max_clock_skew_ms=world.clock.max_skew_ms,
                    on_progress=lambda done_bytes: None,
                    dedupe_buffer_bytes=MIN_DEDUPE_BUFFER_BYTES,
                ):
                    done = "has cleaned" if cleaned.error is None else "has not cleaned"
                    world.scheduler.note(f"{done} the replica of {cleaned.broker_id}")
            except (ClockSkewError, *_FAILURES) as error:
                world.scheduler.note(f"cleaning: {type(error).__name__}")


class ReplicaRetention:
    """Deletes the records before random offsets, at times all of them."""

    def __init__(self, world: ReplicationWorld) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Delete until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        opened = OpenPartition(world)
        while not world.is_ending:
            world.rest(world.profile.retention_ms)
            try:
                view = opened.log.observe()
                start = random.choice((view.log_end_offset, random.randint(0, view.log_end_offset)))
                world.truth.start = max(world.truth.start, start)
                opened.log.move_start(start, view)
                world.scheduler.note(f"deletes the records before {start}")
            except (OffsetOutOfRangeError, *_FAILURES) as error:
                world.scheduler.note(f"deleting: {type(error).__name__}")
