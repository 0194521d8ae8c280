"""A job's share of a consumer group: which partitions it has, and from where to where to read them.

Driver side; needs no Spark session. The job is one member of the group: between two batches it
takes what it was given, and gives up what was taken from it; while a batch runs nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from spark_log.config import ConsumerConfig, offset_reset
from spark_log.consumer.offset_reset import reset_offset
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupStatus
from spark_log.coordinator.group.member import GroupMember
from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.stream.read_limits import limit_rate
from spark_log.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of a job is about.

    Attributes:
        starts: the first offset to read, of every partition that the job has.
        ends: the offset after the last; the same where there is nothing new.
        topic_ids: of the topics, by name.
        strategy: the group's assignor.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    strategy: str

    @property
    def size(self) -> int:
        """How many offsets there are to read."""
        return sum(self.ends[named] - start for named, start in self.starts.items())


class GroupShare:
    """One member's partitions and positions, from joining to leaving. For one thread.

    A process that ends without `close` is expired by the others after ``session.timeout.ms``.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        config: ConsumerConfig,
        *,
        follows: bool = False,
        most: int | None = None,
    ) -> None:
        """Look at the topics; joins nothing yet.

        Args:
            cluster: the opened root.
            options: with the topics, and the group's id.
            config: of the member.
            follows: whether to read what comes, and not just what is there now.
            most: about how many offsets a batch takes; None: all that there are.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        assert options.group_id is not None
        self._reader = OffsetReader(options)
        self._targets = None if follows else self._reader.latest(self._reader.partitions())
        self._target_ids = self._reader.topic_ids()
        self._cluster = cluster
        self._group = options.group_id
        self._topics = options.topics
        self._most = most
        self._config = config
        self._policy = offset_reset(config.auto_offset_reset)
        self._changed = threading.Event()
        self._member = GroupMember(
            cluster,
            self._group,
            OffsetsTable(cluster),
            config=config,
            on_change=self._changed.set,
        )
        self._positions: dict[TopicPartition, tuple[str, int]] = {}
        self._uncommitted: set[TopicPartition] = set()

    # --- membership ------------------------------------------------------------------------------

    def join(self) -> None:
        """Become a member; who was expired comes back as a new one, with nothing.

        Raises:
            InconsistentGroupProtocolError, GroupMaxSizeReachedError, InvalidSessionTimeoutError:
                it may not.
        """
        self._positions.clear()
        self._uncommitted.clear()
        self._member.join(self._topics)

    def show_life(self) -> bool:
        """Say that the job is at work: it is not for ``max.poll.interval.ms`` without this.

        Returns:
            Whether it is a member still. If not, what it is at work on is the others'.
        """
        try:
            self._member.poll()
        except UnknownMemberIdError as error:
            _log.warning("%s", error)
            return False
        return True

    def wait(self, timeout_s: float) -> None:
        """Wait until something changes in the group, or for so long."""
        self._changed.wait(timeout_s)

    def close(self) -> None:
        """Leave the group: its partitions go to the others at once."""
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
        """Return what there is to read now, and whether that is all for good.

        Nothing may be at work: what was revoked is given up here. Positions that the group did not
        have yet are committed, so that it is known to have begun.

        Returns:
            A batch, perhaps of size 0; and for a job that does not follow, whether a batch of size
            0 means that its share is done: nothing is on its way from or to other members.

        Raises:
            FencedInstanceIdError: another process has taken its place.
            NoOffsetForPartitionError, OffsetOutOfRangeError: nothing says where to begin
                (``auto.offset.reset=none``).
        """
        self._changed.clear()
        status = self._current_share()
        while not self._begin(status):
            status = self._current_share()
        ends = self._ends(status)
        starts = {named: self._positions[named][1] for named in ends}
        if self._most is not None:
            ends = limit_rate(self._most, starts, ends)
        ids = {name: topic.topic_id for name, topic in status.topics.items()}
        batch = Batch(starts, ends, ids, status.protocol)
        if self._uncommitted:
            self.commit(batch, {named: starts[named] for named in self._uncommitted & ends.keys()})
        return batch, self._targets is not None and status.is_settled

    def commit(
        self, batch: Batch, reached: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Commit where the job has come to; durable on return.

        Args:
            batch: that was done.
            reached: the next offset to read, by partition.

        Returns:
            Partitions that went to another member, or whose topics are gone: nothing was committed
            for these, they are the others' now.

        Raises:
            CommitFailedError: the group changes too fast.
            StorageError: they may have been committed.
        """
        offsets = {
            named: OffsetAndMetadata(offset)
            for named, offset in reached.items()
            if named in self._uncommitted
            or self._positions.get(named) != (batch.topic_ids[named.topic], offset)
        }
        lost: set[TopicPartition] = set()
        while offsets:
            ids = {named.topic: batch.topic_ids[named.topic] for named in offsets}
            try:
                self._member.commit(offsets, ids)
                break
            except (CommitFailedError, UnknownTopicOrPartitionError):
                gone = offsets.keys() - self._held(batch)
                if not gone:
                    raise
                lost |= gone
                offsets = {named: at for named, at in offsets.items() if named not in gone}
        for named in offsets:
            self._positions[named] = batch.topic_ids[named.topic], reached[named]
        self._uncommitted -= offsets.keys()
        return frozenset(lost)

    # --- helpers ---------------------------------------------------------------------------------

    def _current_share(self) -> GroupStatus:
        """Return what this member has now, with nothing left to be given up."""
        while True:
            try:
                status = self._member.poll()
                if status.revoking:
                    status = self._member.release(status.revoking)
                return status
            except FencedInstanceIdError:
                raise
            except UnknownMemberIdError as error:
                _log.warning("%s; joining again", error)
                self.join()

    def _begin(self, status: GroupStatus) -> bool:
        """Take up what was given, and drop what is gone; False where the group changed again."""
        mine = {named: status.topics[named.topic].topic_id for named in status.assigned}
        self._positions = {
            named: (topic_id, offset)
            for named, (topic_id, offset) in self._positions.items()
            if mine.get(named) == topic_id
        }
        self._uncommitted &= self._positions.keys()
        new = mine.keys() - self._positions.keys()
        if new:
            found = {named: each.offset for named, each in self._member.begin(new).items()}
            if self._generation() != status.generation:
                return False  # what has no position and what was taken away look alike
            self._reader.partitions()
            ids = self._reader.topic_ids()
            for named in sorted(new):
                if ids.get(named.topic) != mine[named]:
                    continue  # deleted, or created again; the group will tell
                offset, is_committed = self._start(named, found.get(named))
                self._positions[named] = mine[named], offset
                if not is_committed:
                    self._uncommitted.add(named)
        return True

    def _generation(self) -> int:
        try:
            return self._member.poll().generation
        except UnknownMemberIdError:
            return -1

    def _start(self, named: TopicPartition, committed: int | None) -> tuple[int, bool]:
        """Return where to begin, and whether that is what the group has committed."""
        log = self._reader.log(named)
        if committed is not None:
            view = log.observe()
            if view.log_start_offset <= committed <= view.log_end_offset:
                return committed, True
            if self._policy == "none":
                raise OffsetOutOfRangeError(
                    f"{named}: group {self._group!r} stands at offset {committed}, and the log "
                    f"holds {view.log_start_offset} to before {view.log_end_offset}; reset the "
                    f"group, or set auto.offset.reset",
                    offset=committed,
                    log_start_offset=view.log_start_offset,
                    log_end_offset=view.log_end_offset,
                )
        if self._policy == "none":
            raise NoOffsetForPartitionError(
                f"group {self._group!r} has no offset in {named}; reset the group, or set "
                f"auto.offset.reset",
                topic=named.topic,
                partition=named.partition,
            )
        offset = reset_offset(log, self._policy, self._cluster.clock.time_us())
        if committed is not None:
            _log.warning("%s: offset %d is not there any more, going to %d by auto.offset.reset",
                         named, committed, offset)  # fmt: skip
        return offset, False

    def _ends(self, status: GroupStatus) -> dict[TopicPartition, int]:
        """Return how far to read each partition now; what is gone is left out."""
        self._reader.partitions()
        ends = self._reader.latest(sorted(self._positions))
        for named in list(ends):
            topic_id, position = self._positions[named]
            if self._reader.topic_ids().get(named.topic) != topic_id:
                del ends[named]  # created again; the group will tell
                continue
            if self._targets is not None:
                is_known = self._target_ids.get(named.topic) == topic_id
                ends[named] = self._targets.get(named, position) if is_known else position
            ends[named] = max(position, ends[named])
        active = [named for named, end in ends.items() if end > self._positions[named][1]]
        for named, earliest in self._reader.earliest(active).items():
            topic_id, position = self._positions[named]
            if position < earliest:  # retention was faster
                self._positions[named] = topic_id, self._start(named, position)[0]
                ends[named] = max(ends[named], self._positions[named][1])
        return ends

    def _held(self, batch: Batch) -> set[TopicPartition]:
        """Return what this member has still of a batch."""
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
        return {named for named in status.held if named.topic in same}
