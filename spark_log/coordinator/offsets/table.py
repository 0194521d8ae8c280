"""Committed offsets: rows of the Delta table ``__consumer_offsets`` (docs/offsets-table.md).

A commit appends rows and changes none. The committed offset of a group in a partition is the row
with the highest generation, and among those the latest one; offset -1 means that it was deleted.
SQL can read the table at any time::

    SELECT topic, partition, max_by(offset, struct(generation, commit_timestamp)) AS offset
    FROM delta.`<root>/__consumer_offsets` WHERE `group` = 'g' GROUP BY topic, partition
    HAVING offset >= 0

After a crash during a commit the table has all of its rows or none. A data file that no version
holds may be left.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.cluster import Cluster
from spark_log.coordinator.offsets.commit_queue import CommitQueue, CommitRequest
from spark_log.coordinator.offsets.maintenance import OffsetsMaintenance
from spark_log.coordinator.offsets.rows import (
    CommittedOffset,
    CommittedOffsets,
    PartitionKey,
    Row,
    check_metadata,
    check_offset,
)
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta import DataFile
from spark_log.errors import (
    CommitFailedError,
    InvalidGroupIdError,
    UnknownTopicOrPartitionError,
    check_unicode,
)
from spark_log.metadata import MetadataImage
from spark_log.record import int_scalar
from spark_log.storage import OFFSETS_TABLE, is_listing_valid, listing_validity_ms, map_requests
from spark_log.threads import call_beside
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import SYSTEM_CLOCK

_COMMIT_TIMEOUT_S = 60


class LastCommit(NamedTuple):
    """A group's newest commit; zeros if there is none.

    Attributes:
        generation: the fence: the highest generation with a commit or a fence.
        timestamp_us: a time in microseconds that is not earlier than the timestamp of any row of
            the group. Rows of later commits have later timestamps.
    """

    generation: int
    timestamp_us: int


class CheckpointLag(NamedTuple):
    """The lag of the table's newest checkpoint.

    Attributes:
        versions: the number of versions since the checkpoint. A process that opens the table reads
            each of them.
        interval: the number of versions after which a checkpoint is due
            (``delta.checkpointInterval``).
    """

    versions: int
    interval: int


class OffsetsTable:
    """Commits and fetches the offsets of the consumer groups of one root.

    Safe to use from any thread. All instances in a process share one cache. Their simultaneous
    commits become one version of the table; each has its own outcome.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Return the table of a root; the first commit creates it.

        Args:
            cluster: the opened root.

        Raises:
            UnsupportedStoreError: Delta tables are not possible on this storage (``memory://``).
        """
        self._cluster = cluster
        self.url = cluster.store.directory_url(OFFSETS_TABLE)
        self._shared_table: _SharedTable | None = None

    def __repr__(self) -> str:
        return f"<OffsetsTable url={self.url!r}>"

    # --- committed offsets -----------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = 0,
        member_id: str = "",
        timeout_s: float | None = None,
        topic_ids: Mapping[str, str] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets, all of them or none; durable on return.

        Args:
            group: the group's id.
            offsets: partition → the next offset to read.
            generation: the generation of the committing member (`StandaloneCommits` commits without
                membership). It becomes the group's fence.
            member_id: the id of the committing member; empty without membership.
            timeout_s: the maximum time of retries after other commits won the race; None for a
                minute.
            topic_ids: topic → the id of the topic that was read, if the caller knows it.
            check: called before each try, also after other commits won the race; raises a
                `SparkLogError` to refuse the commit.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or was created again; nothing was
                committed.
            IllegalGenerationError: a higher generation has started; nothing was committed.
            InvalidGroupIdError: the group id is not valid Unicode; nothing was committed.
            InvalidConfigurationError: the metadata of an offset is not a string, or not valid
                Unicode; nothing was committed.
            OffsetOutOfRangeError: an offset is negative; nothing was committed.
            CommitFailedError: other commits kept coming first; nothing was committed.
            UnknownOutcomeError: the answer was lost; it is safe to commit the same again.
            StorageError: the table cannot be read or written, is damaged, or was lost; nothing was
                committed.
        """
        if not offsets:
            return
        read_image = self._begin_reading_image()
        known = self._cluster.metadata.known_image()
        try:
            rows = self._rows(offsets, topic_ids or {}, known)
        except UnknownTopicOrPartitionError:
            known = read_image()
            rows = self._rows(offsets, topic_ids or {}, known)

        def decide(_: CommittedOffsets) -> tuple[Row, ...]:
            if check is not None:
                check()
            image = read_image()
            return rows if image is known else self._rows(offsets, topic_ids or {}, image)

        self._submit(group, generation, member_id, decide, timeout_s, expected=rows)

    def fence(self, group: str, generation: int) -> None:
        """Refuse all commits of lower generations of this group from now on.

        Raises:
            IllegalGenerationError: a higher generation has started.
            UnknownOutcomeError, StorageError, CommitFailedError: the fence may not have been
                raised; call again.
        """
        self._submit(group, generation, "", lambda _: (), expected=())

    def change(
        self,
        group: str,
        decide: Callable[[Mapping[PartitionKey, CommittedOffset]], Iterable[Row]],
        *,
        generation: int,
    ) -> None:
        """Decide and commit atomically, without another commit in between.

        Args:
            group: the group's id.
            decide: the function that is called with the committed offsets, and again after each
                commit that won the race. It returns the rows to commit, or raises to refuse; its
                errors are raised. A row with offset -1 deletes an offset.
            generation: the generation of the commit; it becomes the group's fence.

        Raises:
            IllegalGenerationError: a higher generation has started; nothing was committed.
            CommitFailedError: other commits kept coming first; nothing was committed.
            UnknownOutcomeError: the answer was lost; it is safe to call again.
            StorageError: the table cannot be read or written, is damaged, or was lost; nothing was
                committed.
        """

        def rows(positions: CommittedOffsets) -> Iterable[Row]:
            return decide(positions.present())

        self._submit(group, generation, "", rows)

    def roll_forward(
        self,
        group: str,
        rows: Sequence[Row],
        is_superseded: Callable[[CommittedOffset], bool],
        *,
        generation: int,
        member_id: str,
        decided_ms: float,
    ) -> None:
        """Commit a committed transaction's offsets, except those that are committed already.

        The fence does not refuse them. Any process may commit them, at any time and repeatedly
        (docs/adr/0022).

        Args:
            group: the group's id.
            rows: the offsets.
            is_superseded: the function that returns whether the newest commit of a partition came
                after the offsets were sent. A row that this method committed is such a commit.
            generation: the group's generation in which they were sent.
            member_id: the id of the member that sent them.
            decided_ms: a monotonic time, not later than one at which the group's log still had them
                as pending.

        Raises:
            CommitFailedError: other commits kept coming first, or the group's log was read too long
                ago; nothing was committed.
            UnknownOutcomeError: the answer was lost; it is safe to call again.
            StorageError: the table cannot be read or written, is damaged, or was lost; nothing was
                committed.
        """
        table = self._shared().table
        valid_ms = listing_validity_ms(table.log.deletion_delay_ms)

        def decide(positions: CommittedOffsets) -> Iterable[Row]:
            if not is_listing_valid(table.clock, decided_ms, valid_ms):
                # A deletion that was committed meanwhile may have been compacted away.
                raise CommitFailedError(
                    f"offsets of group {group!r} were not committed: the process stood still; its "
                    f"transaction is looked up again by the next try"
                )
            for row in rows:
                newest = positions.latest.get(row.key)
                if newest is None or not is_superseded(newest):
                    yield row

        self._submit(group, generation, member_id, decide, is_fenced=False)

    def last_commit(self, group: str) -> LastCommit:
        """Return the generation and the timestamp of a group's newest commit.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            found = table.transaction(group)
            return LastCommit(max(0, found.version), found.last_updated_ms * 1000)

    def fetch(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group.

        Offsets in topics that were deleted since, or created again with another id, are left out.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        image = self._cluster.image()
        found = self.committed_offsets(group)
        topics = filter(None, map(image.find, {key.topic for key in found}))
        return _in_topics(found, {topic.name: topic.topic_id for topic in topics})

    def fetch_fenced(
        self, group: str, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group whose fence this process has just raised.

        This process has made or read the version that raised the fence, and all commits of older
        generations are before that version. So requests are sent only for rows that this process
        has not read yet.

        Args:
            group: the group's id.
            topic_ids: topic → its id, for the topics whose offsets are returned.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        table = self._shared().table
        with table.lock:
            found = table.committed_offsets(group).present()
        return _in_topics(found, topic_ids)

    def refresh(self) -> None:
        """Read the table's new versions, so that the next call has less to read.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()

    def committed_offsets(self, group: str) -> dict[PartitionKey, CommittedOffset]:
        """Return the committed offsets of a group, including those in deleted topics.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.committed_offsets(group).present()

    def all_committed_offsets(self) -> dict[str, dict[PartitionKey, CommittedOffset]]:
        """Return the committed offsets of all groups, by group id; groups without one included.

        A repeated call costs one lookup of a file name, and a read for each commit since the last
        call, as long as the process's cache can hold the offsets of all groups.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            found = table.all_committed_offsets()
            return {group: positions.present() for group, positions in found.items()}

    def committed_offsets_at(self, group: str, time_us: int) -> dict[PartitionKey, CommittedOffset]:
        """Return the committed offsets of a group at a time, by the timestamps of its commits.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        rows = self.history(group)
        stamps = rows.column("commit_timestamp").cast(pa.int64())
        then = CommittedOffsets()
        then.apply(rows.filter(pc.less_equal(stamps, int_scalar(time_us, pa.int64()))))
        return then.present()

    def history(self, group: str) -> pa.Table:
        """Return all rows of a group that were not compacted away, unordered (`OFFSETS_SCHEMA`).

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.rows_of(group)

    def generation(self, group: str) -> int:
        """Return the fence: the highest generation with a commit or a fence; 0 if there is none.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        return self.last_commit(group).generation

    def groups_with_offsets(self) -> set[str]:
        """Return the ids of all groups that have a committed offset.

        Reads two columns of the whole table, one row group of each file at a time and up to 16
        files of an object store at once, and then the groups that ever deleted an offset.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            files = list(table.state.files.values())
        first_offset = int_scalar(0, pa.int64())

        def read(file: DataFile) -> tuple[set[str], set[str]]:
            found: set[str] = set()
            with_tombstones: set[str] = set()
            for part in table.files.parts(file, columns=["group", "offset"]):
                is_position = pc.greater_equal(part.column("offset"), first_offset)
                groups = part.column("group")
                found.update(pc.unique(groups.filter(is_position)).to_pylist())
                with_tombstones.update(pc.unique(groups.filter(pc.invert(is_position))).to_pylist())
            return found, with_tombstones

        read_files = map_requests(table.store, read, files)
        found = {group for groups, _ in read_files for group in groups}
        with_tombstones = {group for _, groups in read_files for group in groups}
        return {
            group
            for group in found
            if group not in with_tombstones or self.committed_offsets(group)
        }

    def checkpoint_lag(self) -> CheckpointLag:
        """Return the number of versions since the last checkpoint, and the checkpoint interval.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            versions = table.state.version - max(0, table.log.last_checkpoint())
            interval = table.state.configuration.get("delta.checkpointInterval", "")
        return CheckpointLag(max(0, versions), int(interval) if interval.isdecimal() else 100)

    def retention_us(self) -> int:
        """Return ``offsets.retention.minutes``, in microseconds."""
        shared = self._shared()
        with shared.table.lock:
            shared.table.refresh()
            return shared.maintenance.retention_us()

    def storage_time_us(self) -> int:
        """Return the time of the newest commit by the storage's clock; 0 if there is none.

        Every compaction that has dropped rows was at or before this time.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        table = self._shared().table
        with table.lock:
            table.refresh()
            return table.log.modified_us

    def maintain(self) -> None:
        """Run all maintenance on this thread, which otherwise runs in the background of commits.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing was deleted.
            StorageError: some steps were not done, which is harmless.
        """
        self._shared().maintenance.run(is_forced=True)

    # --- helpers ---------------------------------------------------------------------------------

    def _submit(
        self,
        group: str,
        generation: int,
        member_id: str,
        decide: Callable[[CommittedOffsets], Iterable[Row]],
        timeout_s: float | None = None,
        *,
        expected: tuple[Row, ...] | None = None,
        is_fenced: bool = True,
    ) -> None:
        check_unicode("the group id", group, InvalidGroupIdError)
        timeout_s = _COMMIT_TIMEOUT_S if timeout_s is None else timeout_s
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_s * 1000
        self._shared().commits.submit(
            CommitRequest(group, generation, member_id, decide, deadline_ms, expected, is_fenced)
        )

    def _begin_reading_image(self) -> Callable[[], MetadataImage]:
        """Return a function that returns the metadata as they are now, or later.

        On an object store they are read in parallel with the caller's next requests.
        """
        if not self._cluster.store.is_local:
            return call_beside(self._cluster.image)
        image = self._cluster.image()
        return lambda: image

    def _rows(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        image: MetadataImage,
    ) -> tuple[Row, ...]:
        for tp, position in offsets.items():
            check_offset(tp, position.offset)
            check_metadata(tp, position)
        for name, topic_id in topic_ids.items():
            if image.topic(name).topic_id != topic_id:
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r} was deleted and created again: offsets of the old topic are "
                    f"not valid in the new one",
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


def _in_topics(
    positions: Mapping[PartitionKey, CommittedOffset], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets in topics with these ids, by name."""
    return {
        TopicPartition(key.topic, key.partition): committed
        for key, committed in positions.items()
        if topic_ids.get(key.topic) == key.topic_id
    }


class _SharedTable:
    """The state that all `OffsetsTable` objects of one table in one process share."""

    def __init__(self, cluster: Cluster) -> None:
        self.pid = os.getpid()
        self.table = OffsetsStore(cluster.store, cluster.clock)
        self.commits = CommitQueue(self.table)
        self.maintenance = OffsetsMaintenance(self.table, self.commits, cluster.image)
        self.table.maintain = self.maintenance.start


class _SharedTables:
    """The shared tables of this process; each exists while it is referenced."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty, as in a forked child: a thread that held a lock does not exist there."""
        self._lock = threading.Lock()
        self._tables: WeakValueDictionary[tuple[object, ...], _SharedTable] = WeakValueDictionary()

    def of(self, cluster: Cluster) -> _SharedTable:
        options = tuple(sorted(cluster.store.delta_options().items()))
        key = (cluster.store.directory_url(OFFSETS_TABLE), options, id(cluster.clock))
        with self._lock:
            shared = self._tables.get(key)
            if shared is None:
                shared = self._tables[key] = _SharedTable(cluster)
            return shared


_shared_tables = _SharedTables()
os.register_at_fork(after_in_child=_shared_tables.forget)
