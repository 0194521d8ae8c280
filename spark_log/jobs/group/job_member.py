"""A job's membership of a consumer group: its partitions, and the batches to read from them.

Runs on the driver without a Spark session. The job is one member of the group. Between two batches
it takes over assigned partitions and releases revoked ones; while a batch runs, nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig, offset_reset
from spark_log.consumer import start_offset
from spark_log.coordinator import (
    GroupMember,
    MemberStatus,
    OffsetsTable,
    TransactionalOffsets,
)
from spark_log.datasource import OffsetReader, ReadOptions, limit_rate
from spark_log.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from spark_log.types import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """The offsets of one batch of a job.

    Attributes:
        starts: the first offset of every partition that the job owns.
        ends: the offset after the last one of each partition; equal to its start without new
            records.
        topic_ids: the ids of the topics, by name.
        strategy: the name of the group's assignor.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    strategy: str

    @property
    def size(self) -> int:
        """Number of offsets to read."""
        return sum(self.ends[tp] - start for tp, start in self.starts.items())


class BatchAbortedError(Exception):
    """A batch was aborted as a whole, because other members got some of its partitions.

    Attributes:
        lost: these partitions; the other ones are read again in the next batch.
    """

    def __init__(self, lost: frozenset[TopicPartition]) -> None:
        super().__init__(lost)
        self.lost = lost


class JobMember:
    """The membership and the positions of a job, from joining the group to leaving it.

    Not thread-safe. If the process ends without `close`, the member expires after
    ``session.timeout.ms``.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        config: ConsumerConfig,
        *,
        follow: bool = False,
        max_records: int | None = None,
    ) -> None:
        """Read the topics' metadata; `join` joins the group.

        Args:
            cluster: the opened root.
            options: the options of the read, with the topics and the group's id.
            config: the configuration of the member.
            follow: whether to read new records; if False, the job ends at the current log end
                offsets.
            max_records: the approximate maximum number of offsets in a batch; None for all.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        assert options.group_id is not None
        self._reader = OffsetReader(options)
        self._targets = None if follow else self._reader.latest(self._reader.partitions())
        self._target_ids = self._reader.topic_ids()
        self._cluster = cluster
        self._group = options.group_id
        self._topics = options.topics
        self._max_records = max_records
        self._config = config
        self._policy = offset_reset(config.auto_offset_reset)
        self._changed = threading.Event()
        table = OffsetsTable(cluster)
        self._member = GroupMember(
            cluster,
            self._group,
            table,
            settle=TransactionalOffsets(cluster, table).settle,
            config=config,
            on_change=self._changed.set,
        )
        self._positions: dict[TopicPartition, tuple[str, int]] = {}
        self._uncommitted: set[TopicPartition] = set()

    # --- membership ------------------------------------------------------------------------------

    def join(self) -> None:
        """Join the group; a member that has expired joins as a new one, without partitions.

        Raises:
            InconsistentGroupProtocolError, GroupMaxSizeReachedError, InvalidSessionTimeoutError:
                the group refuses the member.
        """
        self._positions.clear()
        self._uncommitted.clear()
        self._member.join(self._topics)
        _log.info("joined group %s for %s", self._group, ", ".join(self._topics))

    def keep_alive(self) -> bool:
        """Tell the group that the job makes progress; needed every ``max.poll.interval.ms``.

        Returns:
            Whether the job is still a member. If not, other members own its partitions.
        """
        try:
            self._member.poll()
        except UnknownMemberIdError as error:
            _log.warning("%s", error)
            return False
        return True

    def wait(self, timeout_s: float) -> None:
        """Wait until the group changes, or until the timeout."""
        self._changed.wait(timeout_s)

    def close(self) -> None:
        """Leave the group; its partitions go to the other members at once."""
        self._member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- batches ---------------------------------------------------------------------------------

    def next_batch(self) -> tuple[Batch, bool]:
        """Return the next batch, and whether an empty batch means that the job is complete.

        No batch may run during the call, because revoked partitions are released. Start offsets
        that the group has not committed yet are committed, so that the group records where the job
        has started.

        Returns:
            A batch, which may be empty. The flag is True for a job that does not follow, unless
            partitions are being moved between members.

        Raises:
            FencedInstanceIdError: another process has taken over the ``group.instance.id``.
            NoOffsetForPartitionError, OffsetOutOfRangeError: a partition has no valid committed
                offset, and ``auto.offset.reset`` is ``none``.
        """
        self._changed.clear()
        status = self._take_over()
        ends = self._ends()
        starts = {tp: self._positions[tp][1] for tp in ends}
        if self._max_records is not None:
            ends = limit_rate(self._max_records, starts, ends)
        ids = {name: topic.topic_id for name, topic in status.topics.items()}
        batch = Batch(starts, ends, ids, status.protocol)
        if self._uncommitted:
            self._commit(batch, {tp: starts[tp] for tp in self._uncommitted & ends.keys()})
        return batch, self._targets is not None and status.is_settled

    def commit(
        self, batch: Batch, reached: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Commit the offsets of a batch; they are durable on return.

        Args:
            batch: the batch that was processed.
            reached: the next offset to read, by partition.

        Returns:
            The partitions that were not committed, because another member got them or their topic
            was deleted.

        Raises:
            CommitFailedError: the group changes too often.
            StorageError: the offsets may have been committed.
        """
        return self._commit(batch, reached)

    # --- internals -------------------------------------------------------------------------------

    def _commit(
        self, batch: Batch, reached: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        offsets = {
            tp: OffsetAndMetadata(offset)
            for tp, offset in reached.items()
            if tp in self._uncommitted
            or self._positions.get(tp) != (batch.topic_ids[tp.topic], offset)
        }
        lost: set[TopicPartition] = set()
        while offsets:
            ids = {tp.topic: batch.topic_ids[tp.topic] for tp in offsets}
            try:
                self._member.commit(offsets, ids)
                break
            except (CommitFailedError, UnknownTopicOrPartitionError):
                gone = offsets.keys() - self._still_owned(batch)
                if not gone:
                    raise
                lost |= gone
                offsets = {tp: at for tp, at in offsets.items() if tp not in gone}
        self._advance(batch, {tp: reached[tp] for tp in offsets})
        return frozenset(lost)

    def _advance(self, batch: Batch, committed: Mapping[TopicPartition, int]) -> None:
        """Continue after offsets that are committed."""
        for tp, offset in committed.items():
            self._positions[tp] = batch.topic_ids[tp.topic], offset
        self._uncommitted -= committed.keys()

    def _take_over(self) -> MemberStatus:
        """Return the group's status, after releasing revoked partitions and adding new ones."""
        is_waiting = False
        while True:
            try:
                status = self._member.poll()
                if status.revoking:
                    status = self._member.release(status.revoking)
                if self._apply_assignment(status):
                    return status
            except FencedInstanceIdError:
                raise
            except UnknownMemberIdError as error:
                _log.warning("%s; joining again", error)
                self.join()
            except UnstableOffsetCommitError as error:
                if not is_waiting:
                    _log.warning("waiting for a transaction to be decided: %s", error)
                is_waiting = True
                self._cluster.clock.sleep_ms(self._config.retry_backoff_ms)

    def _apply_assignment(self, status: MemberStatus) -> bool:
        """Drop lost partitions and add new ones; return False if a new one was lost meanwhile."""
        mine = {tp: status.topics[tp.topic].topic_id for tp in status.assigned}
        self._positions = {
            tp: (topic_id, offset)
            for tp, (topic_id, offset) in self._positions.items()
            if mine.get(tp) == topic_id
        }
        self._uncommitted &= self._positions.keys()
        new = mine.keys() - self._positions.keys()
        if new:
            _log.debug(
                "group %s: new partitions: %s", self._group, ", ".join(map(str, sorted(new)))
            )
            committed = self._member.begin(new)
            if committed.keys() != new:
                return False
            self._reader.partitions()
            ids = self._reader.topic_ids()
            for tp in sorted(new):
                if ids.get(tp.topic) != mine[tp]:
                    continue  # deleted, or created again: the next assignment shows it
                offset = self._start_offset(tp, committed[tp])
                self._positions[tp] = mine[tp], offset
                if offset != committed[tp]:
                    self._uncommitted.add(tp)
        return True

    def _start_offset(self, tp: TopicPartition, committed: int | None) -> int:
        now_us = self._cluster.clock.time_us()
        offset = start_offset(tp, self._reader.log(tp), committed, self._policy, now_us)
        if committed is not None and offset != committed:
            _log.warning(
                "%s: offset %d is out of range, reset to %d by auto.offset.reset",
                tp,
                committed,
                offset,
            )
        return offset

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the end of the next batch for each partition; deleted partitions are left out."""
        self._reader.partitions()
        ends = self._reader.latest(sorted(self._positions))
        for tp in list(ends):
            topic_id, position = self._positions[tp]
            if self._reader.topic_ids().get(tp.topic) != topic_id:
                del ends[tp]  # created again: the next assignment shows it
                continue
            if self._targets is not None:
                is_known = self._target_ids.get(tp.topic) == topic_id
                ends[tp] = self._targets.get(tp, position) if is_known else position
            ends[tp] = max(position, ends[tp])
        active = [tp for tp, end in ends.items() if end > self._positions[tp][1]]
        for tp, earliest in self._reader.earliest(active).items():
            topic_id, position = self._positions[tp]
            if position < earliest:  # retention has deleted unread records
                self._positions[tp] = topic_id, self._start_offset(tp, position)
                ends[tp] = max(ends[tp], self._positions[tp][1])
        return ends

    def _still_owned(self, batch: Batch) -> set[TopicPartition]:
        """Return the partitions of a batch that this member still owns."""
        try:
            status = self._member.poll()
        except UnknownMemberIdError:
            return set()
        image = self._cluster.image()
        now = {name: image.find(name) for name in batch.topic_ids}
        same = {
            name
            for name, topic_id in batch.topic_ids.items()
            if name in status.topics and status.topics[name].topic_id == topic_id
            if (found := now[name]) is not None and found.topic_id == topic_id
        }
        return {tp for tp in status.held if tp.topic in same}
