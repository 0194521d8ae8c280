"""Committed offsets: rows of the Delta table ``__consumer_offsets`` (DESIGN.md, section 9).

A commit appends rows and changes none; the position of a group is, per partition, its row with the
highest generation, and among those the latest; an offset of -1 says that there is none any more.
SQL reads it at any time (docs/offsets-table.md)::

    SELECT topic, partition, max_by(offset, struct(generation, commit_timestamp)) AS offset
    FROM delta.`<root>/__consumer_offsets` WHERE `group` = 'g' GROUP BY topic, partition
    HAVING offset >= 0

A crash during a commit leaves either all of its rows or none, and perhaps a file that no version
of the table names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.clock import SYSTEM_CLOCK
from spark_log.coordinator.offsets.commit_queue import CommitQueue, CommitRequest
from spark_log.coordinator.offsets.maintenance import OffsetsMaintenance
from spark_log.coordinator.offsets.rows import (
    OFFSETS_SCHEMA,
    CommittedOffset,
    GroupPositions,
    PartitionKey,
    Row,
    check_metadata,
    check_offset,
)
from spark_log.coordinator.offsets.store import DIRECTORY, OffsetsStore
from spark_log.errors import (
    InvalidGroupIdError,
    UnknownTopicOrPartitionError,
    check_unicode,
)
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

__all__ = ["DIRECTORY", "OFFSETS_SCHEMA", "CommittedOffset", "OffsetsTable"]

_COMMIT_TIMEOUT_S = 60


class OffsetsTable:
    """Commits and fetches the offsets of consumer groups of one cluster root.

    Safe to use from any thread. All of one process share what was read, and their commits that come
    at the same time are one commit of the table, each with an outcome of its own.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Args: cluster: the opened root; the table is made by the first commit.

        Raises:
            UnsupportedStoreError: the root lies where Delta cannot (``memory://``).
        """
        self._cluster = cluster
        self.url = cluster.store.directory_url(DIRECTORY)
        self._shared_table: _SharedTable | None = None

    # --- positions -------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = 0,
        member_id: str = "",
        timeout_s: float | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Commit positions, all of them or none; durable on return.

        Args:
            group: the consumer group.
            offsets: by partition, the next offset to read.
            generation: of the member that commits; who is none commits by `StandaloneCommits`.
                It is the group's fence from now on.
            member_id: empty without membership.
            timeout_s: how long to try again after other commits that came first; None: a minute.
            topic_ids: of the topics that the positions are in, where the caller knows them.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or is another one by now;
                nothing was committed.
            IllegalGenerationError: a higher generation has begun; nothing was committed.
            InvalidGroupIdError: the group id is not Unicode text; nothing was committed.
            InvalidConfigurationError: the metadata of a position is not; nothing was committed.
            CommitFailedError: other commits kept coming first; nothing was committed.
            UnknownOutcomeError: the answer was lost; committing the same again is harmless.
            StorageError: the table cannot be read or written, is damaged, or is gone; nothing was
                committed.
        """
        if not offsets:
            return
        rows = self._rows(offsets, topic_ids or {})
        self._submit(group, generation, member_id, lambda _: rows, timeout_s)

    def fence(self, group: str, generation: int) -> None:
        """Let no commit of a lower generation of this group take effect from now on.

        Raises:
            IllegalGenerationError: a higher generation has begun.
            UnknownOutcomeError, StorageError, CommitFailedError: it may not have begun; call again.
        """
        self._submit(group, generation, "", lambda _: ())

    def change(
        self,
        group: str,
        decide: Callable[[Mapping[PartitionKey, CommittedOffset]], Iterable[Row]],
        *,
        generation: int,
    ) -> None:
        """Commit what is decided from the positions that the commit is made on, in one step.

        Args:
            group: the consumer group.
            decide: called with the positions, again whenever others commit first; raises to refuse.
                An offset of -1 forgets a position.
            generation: that it is made in.

        Raises:
            IllegalGenerationError, CommitFailedError, UnknownOutcomeError, StorageError: see
                `commit`; and what ``decide`` raises.
        """

        def rows(positions: GroupPositions) -> Iterable[Row]:
            return decide(positions.positions())

        self._submit(group, generation, "", rows, needs_positions=True)

    def fetch(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's position in every partition that it has one in.

        Positions in topics that were deleted since, or created again under another id, are left
        out.

        Raises:
            StorageError: the table cannot be read, is damaged, or is gone.
        """
        image = self._cluster.image()
        found = {}
        for key, committed in self.positions(group).items():
            topic = image.find(key.topic)
            if topic is not None and topic.topic_id == key.topic_id:
                found[TopicPartition(key.topic, key.partition)] = committed
        return found

    def positions(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """Return the group's positions, also those in topics that are gone.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.positions(group).positions()

    def positions_at(self, group: str, time_us: int) -> dict[PartitionKey, CommittedOffset]:
        """Return where the group stood at a time: after all commits up to it.

        Raises:
            StorageError: see `fetch`.
        """
        rows = self.history(group)
        stamps = rows.column("commit_timestamp").cast(pa.int64())
        then = GroupPositions()
        then.apply(rows.filter(pc.less_equal(stamps, time_us)))
        return then.positions()

    def history(self, group: str) -> pa.Table:
        """Return the group's rows, of `OFFSETS_SCHEMA`: every commit that is kept, in no order.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.rows_of(group)

    _rows_of = history

    def generation(self, group: str) -> int:
        """Return the highest generation that anything was begun or committed in; 0 without one.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return max(0, table.transaction(group).version)

    def groups(self) -> list[str]:
        """Return the ids of all groups that ever committed, sorted; some have no position any more.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return sorted(table.transactions())

    def groups_with_positions(self) -> set[str]:
        """Return the ids of all groups that have a position.

        Reads two columns of the whole table, a row group at a time, and groups that ever forgot
        a position.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            files = list(table.state.files.values())
        found: set[str] = set()
        forgetful: set[str] = set()
        for file in files:
            for part in table.files.parts(file, columns=["group", "offset"]):
                is_position = pc.greater_equal(part.column("offset"), 0)
                groups = part.column("group")
                found.update(pc.unique(groups.filter(is_position)).to_pylist())
                forgetful.update(pc.unique(groups.filter(pc.invert(is_position))).to_pylist())
        return {group for group in found if group not in forgetful or self.positions(group)}

    def retention_us(self) -> int:
        """Return for how long superseded positions, and those of empty groups, are kept."""
        shared = self._shared()
        with shared.table.lock:
            shared.table.refresh()
            return shared.maintenance.retention_us()

    def storage_time_us(self) -> int:
        """Return the newest time that the storage has shown for a commit; 0 without one.

        By this time at the latest, superseded positions were forgotten that are.

        Raises:
            StorageError: see `fetch`.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.log.modified_us

    def maintain(self) -> None:
        """Do now, and on this thread, what is done in the background of commits now and then.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's: nothing was
                forgotten or freed.
            StorageError: some of it was not done; harmless.
        """
        self._shared().maintenance.run(is_forced=True)

    # --- helpers ---------------------------------------------------------------------------------

    def _submit(
        self,
        group: str,
        generation: int,
        member_id: str,
        decide: Callable[[GroupPositions], Iterable[Row]],
        timeout_s: float | None = None,
        *,
        needs_positions: bool = False,
    ) -> None:
        check_unicode("the group id", group, InvalidGroupIdError)
        timeout_s = _COMMIT_TIMEOUT_S if timeout_s is None else timeout_s
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_s * 1000
        self._shared().commits.submit(
            CommitRequest(group, generation, member_id, decide, deadline_ms, needs_positions)
        )

    def _rows(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> tuple[Row, ...]:
        image = self._cluster.image()
        for tp, position in offsets.items():
            check_offset(tp, position.offset)
            check_metadata(tp, position)
        for name, topic_id in topic_ids.items():
            if image.topic(name).topic_id != topic_id:
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r} was deleted and created again: positions in the old one mean "
                    f"nothing in the new one",
                    topic=name,
                )
        return tuple(
            Row(
                PartitionKey(topic, image.topic(topic).topic_id, partition),
                position.offset,
                position.metadata or "",
                position.leader_epoch,
            )
            for (topic, partition), position in sorted(offsets.items())
        )

    def _shared(self) -> _SharedTable:
        if self._shared_table is None or self._shared_table.pid != os.getpid():
            self._shared_table = _shared_tables.of(self._cluster)
        return self._shared_table


class _SharedTable:
    """What all that commit to one table in one process share."""

    def __init__(self, cluster: Cluster) -> None:
        self.pid = os.getpid()
        self.table = OffsetsStore(cluster.store, cluster.clock)
        self.commits = CommitQueue(self.table)
        self.maintenance = OffsetsMaintenance(self.table, self.commits, cluster.image)
        self.table.maintain = self.maintenance.start


class _SharedTables:
    """Those of one process, kept for as long as somebody has one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: WeakValueDictionary[tuple[object, ...], _SharedTable] = WeakValueDictionary()

    def of(self, cluster: Cluster) -> _SharedTable:
        options = tuple(sorted(cluster.store.delta_options().items()))
        key = (cluster.store.directory_url(DIRECTORY), options, id(cluster.clock))
        with self._lock:
            shared = self._tables.get(key)
            if shared is None:
                shared = self._tables[key] = _SharedTable(cluster)
            return shared

    def forget(self) -> None:
        """Begin anew in a child process: a thread that held a lock is not in it."""
        self.__init__()  # type: ignore[misc]


_shared_tables = _SharedTables()
os.register_at_fork(after_in_child=_shared_tables.forget)
