"""A partition with three replicas, whose roots a test may let fail, and writers on it."""

import itertools
from dataclasses import replace

from spark_log.config import TopicConfig
from spark_log.errors import StorageUnavailableError
from spark_log.log import (
    LocalLog,
    PartitionLog,
)
from spark_log.log.chain import NO_LEADER, PartitionState
from spark_log.metadata import METADATA_LEASE_MS
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from spark_log.util.suppressed import IN_PROCESS, SuppressedErrors
from tests.log.support import ANY_TIME, DIRECTORY, TOPIC_ID, HookedStore, failing

_numbers = itertools.count()

OPERATIONS = ("stage", "put_if_absent", "put", "read", "read_tail", "open_buffer", "list", "head")


class Metadata:
    """The newest state of the partition, which writers know or do not know."""

    def __init__(self, isr, min_insync=1):
        self.state = PartitionState(leader=isr[0], isr=isr, replicas=isr)
        self.min_insync = min_insync
        self.is_down = False

    def change(self, isr=None, joining=None, leader=None, directories=None, cap_epoch=0):
        state = self.state
        isr = state.isr if isr is None else isr
        self.state = replace(
            state,
            isr=isr,
            leader=isr[0] if leader is None else leader,
            joining=state.joining if joining is None else joining,
            leader_epoch=state.leader_epoch + 1,
            directories=directories or state.directories,
            high_watermark_cap_epoch=cap_epoch,
        )


class States:
    """One process's view of the metadata, which may be stale."""

    def __init__(self, metadata, clock):
        self._metadata = metadata
        self._clock = clock
        self._known = metadata.state
        self.refreshes = 0
        self._read_ms = clock.monotonic_ms()

    def current(self):
        return self._known

    def refresh(self):
        self.refreshes += 1
        if self._metadata.is_down:
            raise StorageUnavailableError("no metadata")
        self._read_ms = self._clock.monotonic_ms()
        self._known = self._metadata.state
        return self._known

    def recent(self, max_age_ms=METADATA_LEASE_MS):
        is_recent = self._clock.monotonic_ms() - self._read_ms < max_age_ms
        return self._known if is_recent else self.refresh()

    def remove_from_isr(self, state, brokers):
        newest = self.refresh()
        isr = tuple(each for each in newest.isr if each not in brokers)
        if newest.leader_epoch == state.leader_epoch and isr:
            joining = tuple(each for each in newest.joining if each not in brokers)
            self._metadata.change(isr, joining)
        return self.refresh()

    def min_insync_replicas(self):
        return self._metadata.min_insync


class Cluster:
    """Roots, the metadata, and processes that know both."""

    def __init__(self, *isr, min_insync=1, **config):
        self.clock = ManualClock()
        self.name = f"chain{next(_numbers)}"
        self.metadata = Metadata(isr or (1, 2, 3), min_insync)
        self.emptied = set()
        self.config = TopicConfig.parse({"flush_on_append": False, **ANY_TIME, **config})

    def root(self, broker_id):
        return MemoryStore(f"{self.name}-{broker_id}", self.clock)

    def process(self):
        return Process(self)

    def empty(self, broker_id):
        """Lose all files of a root, as a mount point does without its file system."""
        root = self.root(broker_id)
        for file in list(root.list(DIRECTORY)):
            root.delete(file.path)
        self.emptied.add(broker_id)

    def check_root(self, broker_id):
        if broker_id in self.emptied:
            raise StorageUnavailableError(f"the root of broker {broker_id} is empty")


class Process:
    """One process: its log, and its connections to the roots; ``log_again`` opens another one."""

    def __init__(self, cluster):
        self.suppressed = SuppressedErrors(IN_PROCESS)
        self.stores = {each: HookedStore(cluster.root(each)) for each in (1, 2, 3, 4)}
        self.refused = {}
        """Broker id → the error of opening its root."""
        self.states = States(cluster.metadata, cluster.clock)
        self._cluster = cluster
        self.log = self.log_again()

    def log_again(self):
        cluster = self._cluster
        return PartitionLog(
            self.states,
            self._open,
            self._store_of,
            name=DIRECTORY,
            config=cluster.config,
            clock=cluster.clock,
            suppressed=self.suppressed,
            check_root=cluster.check_root,
        )

    def _store_of(self, broker_id):
        if broker_id in self.refused:
            raise self.refused[broker_id]
        return self.stores[broker_id]

    def _open(self, broker_id, number, check_root=None):
        cluster = self._cluster
        return LocalLog(
            self._store_of(broker_id),
            f"{DIRECTORY}.{number}" if number else DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            config=cluster.config,
            clock=cluster.clock,
            suppressed=self.suppressed,
            has_leader_epochs=True,
            check_root=check_root,
        )

    def replica(self, broker_id, number=0):
        """Return the replica alone, as a tool would open it."""
        return self._open(broker_id, number)

    def end_offsets(self, *brokers):
        return [self.replica(each).files.observe().log_end_offset for each in brokers or (1, 2, 3)]

    def lose(self, broker_id, error=None):
        """Let every call to a root fail."""
        error = error or StorageUnavailableError("the root is lost")
        for operation in OPERATIONS:
            self.stores[broker_id].on(operation, failing(error))

    def find(self, broker_id):
        """Let a root answer again."""
        self.stores[broker_id].hooks.clear()


__all__ = ["NO_LEADER", "Cluster", "Process"]
