"""Committed offsets: rows of the Delta table ``__consumer_offsets`` (DESIGN.md, section 9).

A commit appends rows and changes none; the position of a group is, per partition, its row with the
highest generation, and among those the latest. delta-rs (``deltalake``) is the only committer: it
is safe between processes, where Spark's own log stores are not. SQL reads it at any time::

    SELECT topic, partition, max_by(offset, struct(generation, commit_timestamp)) AS offset
    FROM delta.`<root>/__consumer_offsets` WHERE `group` = 'g' GROUP BY topic, partition

A crash during a commit leaves either all of its rows or none, and perhaps a file that no version
of the table names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import (
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from spark_log.errors import CommitFailedError, StorageError, UnknownOutcomeError
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

DIRECTORY = "__consumer_offsets"

OFFSETS_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("member_id", pa.string(), nullable=False),
        pa.field("commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""One row for every partition of every commit. ``offset`` is that of the next record to read."""

_COMMIT_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's position in one partition, and who committed it when."""

    offset: int
    metadata: str
    leader_epoch: int
    topic_id: str
    generation: int
    member_id: str
    commit_timestamp_us: int


class OffsetsTable:
    """Commits and fetches the offsets of consumer groups of one cluster root."""

    def __init__(self, cluster: Cluster) -> None:
        """Args: cluster: the opened root; the table is made by the first commit.

        Raises:
            UnsupportedStoreError: the root lies where Delta cannot (``memory://``).
        """
        self._cluster = cluster
        self.url = cluster.store.directory_url(DIRECTORY)
        self._storage_options = cluster.store.delta_options()
        self._last_commit_us = 0

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = 0,
        member_id: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Commit positions, all of them or none; durable on return.

        Args:
            group: the consumer group.
            offsets: by partition, the next offset to read.
            generation: of the member that commits; without membership the group's current one
                (`generation`), else a position of an earlier member would go before this one.
            member_id: empty without membership.
            timeout_s: how long to try again after other commits that came first; None: a minute.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist; nothing was committed.
            CommitFailedError: other commits kept coming first, or the table is damaged.
            UnknownOutcomeError: the storage failed; committing the same again is harmless.
        """
        if not offsets:
            return
        rows = self._rows(group, offsets, generation, member_id)
        try:
            for attempt in Retrying(
                retry=retry_if_exception(_may_succeed_later),
                wait=wait_random_exponential(multiplier=0.01, max=1),
                stop=stop_after_delay(_COMMIT_TIMEOUT_S if timeout_s is None else timeout_s),
                reraise=True,
            ):
                with attempt:
                    write_deltalake(
                        self.url, rows, mode="append", storage_options=self._storage_options
                    )
        except DeltaError as error:
            raise CommitFailedError(
                f"offsets of group {group!r} could not be committed to {self.url}: "
                f"{_reason(error)}; the group stays where it was"
            ) from None
        except OSError as error:
            raise UnknownOutcomeError(
                f"whether offsets of group {group!r} were committed to {self.url} is unknown: "
                f"{_reason(error)}; commit them again",
                path=DIRECTORY,
            ) from None

    def fetch(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's position in every partition that it ever committed.

        Positions in topics that were deleted since, or created again under another id, are left
        out.

        Raises:
            StorageError: the table cannot be read.
        """
        image = self._cluster.image()
        found = {}
        for row in self._latest(group).to_pylist():
            topic = image.find(row["topic"])
            if topic is None or topic.topic_id != row["topic_id"]:
                continue
            found[TopicPartition(row["topic"], row["partition"])] = CommittedOffset(
                offset=row["offset"],
                metadata=row["metadata"],
                leader_epoch=row["leader_epoch"],
                topic_id=row["topic_id"],
                generation=row["generation"],
                member_id=row["member_id"],
                commit_timestamp_us=row["commit_timestamp_us"],
            )
        return found

    def generation(self, group: str) -> int:
        """Return the highest generation that anything was committed in; 0 if nothing was.

        Raises:
            StorageError: the table cannot be read.
        """
        found = pc.max(self._rows_of(group, ["generation"]).column("generation")).as_py()
        return int(found or 0)

    def _rows_of(self, group: str, columns: list[str] | None = None) -> pa.Table:
        try:
            table = DeltaTable(self.url, storage_options=self._storage_options)
            rows = table.to_pyarrow_dataset()
            return rows.to_table(columns=columns, filter=pc.field("group") == group)
        except TableNotFoundError:
            return OFFSETS_SCHEMA.empty_table()
        except OSError as error:
            raise StorageError(
                f"{self.url} cannot be read: {_reason(error)}", path=DIRECTORY
            ) from None

    def _latest(self, group: str) -> pa.Table:
        rows = self._rows_of(group)
        stamps = rows.column("commit_timestamp").cast(pa.int64())
        rows = rows.append_column("commit_timestamp_us", stamps)
        ordered = rows.sort_by([("generation", "ascending"), ("commit_timestamp_us", "ascending")])
        keys = ["topic", "topic_id", "partition"]
        values = [name for name in ordered.column_names if name not in (*keys, "group")]
        latest = ordered.group_by(keys, use_threads=False).aggregate(
            [(name, "last") for name in values]
        )
        return latest.rename_columns([name.removesuffix("_last") for name in latest.column_names])

    def _rows(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: int,
        member_id: str,
    ) -> pa.Table:
        image = self._cluster.image()
        # Two commits of one process never carry the same time: the later one must win.
        self._last_commit_us = max(self._cluster.clock.time_us(), self._last_commit_us + 1)
        rows = [
            {
                "group": group,
                "topic": named.topic,
                "topic_id": image.topic(named.topic).topic_id,
                "partition": named.partition,
                "offset": position.offset,
                "leader_epoch": position.leader_epoch,
                "metadata": position.metadata,
                "generation": generation,
                "member_id": member_id,
                "commit_timestamp": self._last_commit_us,
            }
            for named, position in sorted(offsets.items())
        ]
        return pa.Table.from_pylist(rows, schema=OFFSETS_SCHEMA)


def _reason(error: Exception) -> str:
    """Return what Delta says, without the requests' URLs: a query may hold a signature."""
    return re.sub(r"\w+://\S+", "(URL)", str(error).partition("\n")[0])


def _may_succeed_later(error: BaseException) -> bool:
    """Other commits may have come first; a damaged table or another schema stays what it is.

    A commit whose answer was lost is harmless to repeat: equal rows name the same position.
    """
    lasting = (DeltaProtocolError, SchemaMismatchError)
    return isinstance(error, DeltaError) and not isinstance(error, lasting)
