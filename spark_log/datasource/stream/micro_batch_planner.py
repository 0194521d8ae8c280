"""Plans micro-batches: start and end of each one, and what to do when topics change.

Runs on the driver without a Spark session. `LogStreamReader` forwards Spark's calls to it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from spark_log.datasource.options import LATEST, AtOffsets, ReadOptions, format_offsets
from spark_log.datasource.read import OffsetReader, PartitionOwners, group_by_member, splits_between
from spark_log.datasource.stream.kafka_checkpoint import initial_offsets
from spark_log.datasource.stream.lag import latest_document
from spark_log.datasource.stream.log_poller import LatestOffsets, LogPoller
from spark_log.datasource.stream.read_limits import TriggerDelay, count_offsets, limit_rate
from spark_log.datasource.stream.stream_offset import OffsetDocument, StreamOffset
from spark_log.datasource.stream.time_lag import TimeLag
from spark_log.datasource.stream.topic_history import TopicHistory
from spark_log.types import TopicPartition
from spark_log.util import SYSTEM_CLOCK, Clock

_log = logging.getLogger(__name__)


class MicroBatchPlanner:
    """Decides where micro-batches start and end.

    Spark may call it at any rate, because `LogPoller` limits the requests. If a call finds no new
    records, then none was acknowledged before the call.

    Changes of topics while the query runs:

    - *New partitions* are read from their start.
    - *Deleted topics* keep their offsets; `TopicHistory.on_deleted` decides whether data is lost.
    - *Topics that were created again* (with another topic id) are read from their start, and their
      offsets are not compared with those of the old topic; `TopicHistory.on_recreated` decides
      whether data is lost.

    If possible, data loss is detected before the batch is written to the checkpoint. A query that
    fails because of it then fails again after a restart only if the records are still missing.
    """

    def __init__(self, options: ReadOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open the cluster; plans nothing yet.

        Args:
            options: parsed options of a stream.
            clock: clock for polls and delays.

        Raises:
            RootNotFoundError: there is no root at ``path``.
        """
        self._options = options
        self._clock = clock
        self._reader = OffsetReader(options)
        self._history = TopicHistory(fail_on_data_loss=options.fail_on_data_loss)
        self._time_lag = TimeLag(self._reader, clock)
        self._poller = LogPoller(self._reader, self._history, clock)
        self._initial: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._end: StreamOffset | None = None
        self._idle: tuple[StreamOffset, StreamOffset] | None = None
        self._reported: tuple[StreamOffset, StreamOffset | None, OffsetDocument] | None = None
        self._owners: PartitionOwners | None = None
        if options.assignor is not None:
            self._owners = PartitionOwners(options.assignor, options.min_partitions)
        self._delay: TriggerDelay | None = None
        if options.min_offsets_per_trigger is not None:
            self._delay = TriggerDelay(
                options.min_offsets_per_trigger, options.max_trigger_delay_ms, clock
            )

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Ids of the topics that are read, from the last poll."""
        return self._poller.recent().offset.topic_ids

    def is_initial(self, offset: StreamOffset) -> bool:
        """Whether this run of the query started at an offset: nothing was processed before it.

        An offset with `StreamOffset.batch_starts` is the end of a batch, which may be empty.
        """
        return offset.batch_starts is None and offset == self._initial

    # --- called by Spark --------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return the offset at which a query without a checkpoint starts.

        It is the same for the whole run. Spark does not store it. Therefore the end of the first
        batch, which Spark stores before anything is read, contains the start of that batch
        (`StreamOffset.batch_starts`). After a restart the batch starts there again, whatever this
        method returns then.

        Raises:
            InvalidOptionError: offsets or times do not name exactly the partitions to read.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        if self._initial is None:
            offsets = self._reader.starting_offsets(is_batch=False)
            self._initial = StreamOffset(offsets, self._poller.topic_ids_of(offsets))
        return self._initial

    def prepare_available_now(self) -> None:
        """Fix the current end of the log as the end of this run (``Trigger.AvailableNow``)."""
        self._target = self._poller.poll_now().offset

    def next_end(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Return the end of the batch that starts at ``start``.

        Args:
            start: end of the last batch.
            limit: Spark's limit: the result of `default_read_limit`, or everything.

        Returns:
            ``start`` itself if there is no batch.

        Raises:
            DataLossError: records that should have been read are lost.
        """
        before = self._poller.complete_polls
        end = self._end_at(start, self._poller.recent(), limit)
        while end is start and self._poller.complete_polls == before and self._target is None:
            end = self._end_at(start, self._poller.poll(), limit)
        if self.is_initial(start):
            end = replace(end, batch_starts=start.offsets)
        self._end = end
        if end is not start:
            _log.debug("next micro-batch: from %s to %s", start.offsets, end.offsets)
        return end

    def splits(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return the input splits of a batch.

        With ``partition.assignment.strategy`` partitions stay with the member that owned them in
        the batch before, as far as the assignor allows, including partitions without new records.

        Raises:
            DataLossError: records of the batch are lost.
        """
        is_initial = self.is_initial(start)
        if is_initial:
            start = self._first_batch_start(start, end)
        log_ends = self._poller.recent()
        readable = end.for_unchanged_topics(log_ends.ends, log_ends.topic_id)
        planned = start.for_unchanged_topics(end.offsets, end.topic_ids.get)
        planned |= self._new_partition_starts(sorted(readable.keys() - planned.keys()))
        starts: dict[TopicPartition, int] = {}
        stops: dict[TopicPartition, int] = {}
        for tp, stop in sorted(end.offsets.items()):
            begin = planned.get(tp, 0)
            if begin >= stop:
                self._check_order(tp, begin, stop, is_first=is_initial)
            elif tp not in readable:
                self._history.report_loss(
                    f"{tp} was deleted: offsets {begin} to {stop - 1} of this batch are gone",
                    tp.topic,
                )
            else:
                starts[tp], stops[tp] = (
                    self._retained(tp, begin, stop),
                    self._stable(tp, begin, stop),
                )
        splits = splits_between(self._reader, starts, stops)
        if self._owners is None:
            return splits
        return group_by_member(splits, self._owners, log_ends.ends.keys(), self._reader.stripes())

    def latest(self) -> OffsetDocument | None:
        """Return the log end offsets, with the lag in time after the batch planned last."""
        log_ends = self._poller.last
        if log_ends is None:
            return None
        latest = self._target or log_ends.offset
        if self._reported is not None and self._reported[:2] == (latest, self._end):
            return self._reported[2]
        starts: dict[TopicPartition, int] = {}
        lag_ms: dict[TopicPartition, int] = {}
        if self._end is not None:
            starts = self._time_lag.log_starts(self._end, latest)
            lag_ms = self._time_lag.lag_ms(self._end, latest, starts)
        document = latest_document(latest, lag_ms, starts)
        # The lag in time grows, so a document with lag is not cached.
        self._reported = None if lag_ms else (latest, self._end, document)
        return document

    # --- starts and ends -------------------------------------------------------------------------

    def _end_at(
        self, start: StreamOffset, log_ends: LatestOffsets, limit: ReadLimit
    ) -> StreamOffset:
        """Return the end of the batch for the result of a poll; ``start`` itself for no batch."""
        if self._idle is not None and self._idle[0] is log_ends.offset and self._idle[1] == start:
            return start
        end = self._next_end(start, log_ends, limit)
        is_idle = end == start
        self._idle = None
        if is_idle and self._delay is None and self._poller.last is not None:
            self._idle = self._poller.last.offset, start
        return start if is_idle else end

    def _next_end(
        self, start: StreamOffset, log_ends: LatestOffsets, limit: ReadLimit
    ) -> StreamOffset:
        kept = self._check_topics(start, log_ends)
        ends = self._ends_without_limit(log_ends)
        starts = self._starts(start, ends, log_ends)
        if any(begin > ends[tp] for tp, begin in starts.items()) and self._target is None:
            # The end is before the start. Poll again: the topic may just have been deleted.
            log_ends = self._poller.poll_now()
            kept = self._check_topics(start, log_ends)
            ends = self._ends_without_limit(log_ends)
            starts = self._starts(start, ends, log_ends)
        ends = {tp: end for tp, end in ends.items() if tp in starts}
        for tp, begin in starts.items():
            is_missing = begin > ends[tp] and not self._is_undecided(tp, begin)
            if is_missing and self._target is None:
                self._history.report_loss(
                    f"{tp} ends at offset {ends[tp]}, but it was read up to offset {begin}; "
                    f"records may have been missed",
                    tp.topic,
                )
            elif begin > ends[tp]:
                ends[tp] = begin  # another run has read beyond the end of this run
        if not isinstance(limit, ReadAllAvailable):
            firsts = self._first_readable(starts, ends)
            if (
                self._delay is not None
                and self._target is None
                and self._delay.should_wait(count_offsets(firsts, ends))
            ):
                return start
            max_offsets = self._options.max_offsets_per_trigger
            if isinstance(limit, ReadMaxRows):
                max_offsets = limit.max_rows
            if max_offsets is not None:
                ends = limit_rate(max_offsets, firsts, ends)
        topic_ids = {tp.topic: log_ends.offset.topic_ids[tp.topic] for tp in ends}
        return StreamOffset({**kept.offsets, **ends}, {**kept.topic_ids, **topic_ids})

    def _ends_without_limit(self, log_ends: LatestOffsets) -> dict[TopicPartition, int]:
        if self._target is None:
            return dict(log_ends.ends)
        return self._target.for_unchanged_topics(log_ends.ends, log_ends.topic_id)

    def _starts(
        self, start: StreamOffset, ends: Mapping[TopicPartition, int], log_ends: LatestOffsets
    ) -> dict[TopicPartition, int]:
        """Return the start of the batch for each partition; new ones start at their log start."""
        starts = start.for_unchanged_topics(ends, log_ends.topic_id)
        new = [tp for tp in ends if tp not in starts]
        return starts | (self._reader.earliest(new) if new else {})

    def _first_readable(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the first retained offset of each partition in a batch, from the last listings.

        Limits count from these offsets, so that deleted records do not use up a batch. The deleted
        records are part of the batch, and `splits` reports them as lost.
        """
        return {
            tp: max(begin, min(self._log_start(tp, begin), ends[tp]))
            for tp, begin in starts.items()
        }

    def _new_partition_starts(self, new: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start of new partitions; records are lost if it is not 0.

        Raises:
            DataLossError: the first records of a partition are lost.
        """
        if not new:
            return {}
        beginnings = self._reader.earliest(new)
        for tp, offset in beginnings.items():
            if offset > 0:
                self._history.report_loss(
                    f"new partition {tp} starts at offset {offset} instead of 0; records may "
                    f"have been missed",
                    tp.topic,
                )
        return beginnings

    def _retained(self, tp: TopicPartition, begin: int, end: int) -> int:
        """Return the start of the batch within the retained offsets.

        Records that are deleted from now on are reported by the task that reads them.

        Raises:
            DataLossError: the first records of the batch are lost.
        """
        earliest = self._log_start(tp, begin)
        if begin < earliest:
            self._history.report_loss(
                f"{tp}: offsets {begin} to {min(earliest, end) - 1} are not retained any more; "
                f"the log starts at {earliest}",
                tp.topic,
            )
        return min(max(begin, earliest), end)

    def _log_start(self, tp: TopicPartition, begin: int) -> int:
        """Return the log start offset in the last listing, or a lower one if both are retained."""
        return self._reader.view(tp, start_offset=begin).log_start_offset

    def _stable(self, tp: TopicPartition, begin: int, end: int) -> int:
        """Return the end of the batch, or the last stable offset if it is lower.

        It is lower only if the batch was planned by a run that read uncommitted records.

        Raises:
            DataLossError: a transaction before the end is open.
        """
        if not self._options.reads_committed:
            return end
        stable = self._reader.transactions(tp, begin, end).last_stable_offset
        if stable < end:
            self._history.report_loss(
                f"{tp}: the batch ends at offset {end}, but a transaction is open since offset "
                f"{stable}: a run with another isolation.level planned it. Start the query again "
                f"when the transaction has ended",
                tp.topic,
            )
        return min(stable, end)

    def _is_undecided(self, tp: TopicPartition, offset: int) -> bool:
        """Whether an offset after the last stable offset is in the log.

        An earlier run that read uncommitted records has read up to it.
        """
        if not self._options.reads_committed:
            return False
        return offset <= self._reader.view(tp, offset, offset).log_end_offset

    def _first_batch_start(self, initial: StreamOffset, end: StreamOffset) -> StreamOffset:
        """Return the start of a query's first batch.

        Args:
            initial: the offsets at which the query would start now, by its options.
            end: end of the batch; after a restart an earlier run has planned it.

        Raises:
            DataLossError: Kafka's source planned the batch, and its start is unknown.
        """
        if end.batch_starts is not None:
            return StreamOffset(end.batch_starts, end.topic_ids)
        if end.topic_ids or not end.offsets or self._starts_at_given_offsets():
            # With topic ids, an earlier version of spark-log planned the batch and did not store
            # its start. Otherwise the start cannot have changed since the batch was planned.
            return initial
        topics = {tp.topic for tp in end.offsets}
        location = self._options.checkpoint_location
        starts = None
        if location:
            starts = initial_offsets(location, self._options.storage_options, topics)
        if starts is not None:
            return StreamOffset(starts)
        found = (
            f"option 'checkpointLocation' is {location!r}, but no file sources/<n>/0 in it names "
            f"these topics"
            if location
            else "give the query's checkpointLocation to readStream as well, because Spark does "
            "not pass it to the source"
        )
        self._history.report_loss(
            f"a query on format kafka planned the first batch, up to "
            f"{format_offsets(end.offsets)}, and did not finish it. The start of the batch is in "
            f"sources/<n>/0 of the checkpoint; {found}. Or set startingOffsets, with an offset for "
            f"each partition. Without it the batch starts at {format_offsets(initial.offsets)}, "
            f"and records may be missed",
            ", ".join(sorted(topics)),
        )
        return initial

    def _starts_at_given_offsets(self) -> bool:
        """Whether the options name an offset for each partition at which to start."""
        starting = self._options.starting
        return (
            isinstance(starting, AtOffsets)
            and isinstance(starting.offsets, Mapping)
            and min(starting.offsets.values(), default=0) >= 0
        )

    def _starts_at_latest(self) -> bool:
        starting = self._options.starting
        if starting is None:
            return True
        if not isinstance(starting, AtOffsets):
            return self._options.latest_if_no_match
        offsets = starting.offsets
        return offsets == LATEST if isinstance(offsets, int) else LATEST in offsets.values()

    def _check_order(self, tp: TopicPartition, begin: int, stop: int, *, is_first: bool) -> None:
        """Check a range that is empty or ends before it starts.

        An earlier version planned an empty first batch for a query that starts at the end, and did
        not store its start. If that batch runs again after a crash, it starts at the current end of
        the log, after its own end. This is not a loss.
        """
        if begin > stop and not (is_first and self._starts_at_latest()):
            self._history.report_loss(
                f"{tp}: the batch starts at offset {begin} and ends at {stop}, before its start; "
                f"records may have been missed",
                tp.topic,
            )

    def _check_topics(self, start: StreamOffset, log_ends: LatestOffsets) -> StreamOffset:
        """Handle deleted and recreated topics; return the offsets that stay unchanged.

        These are offsets of partitions that do not exist now, or that this run does not read. If
        such a partition exists again later, the query continues there.
        """
        kept: dict[TopicPartition, int] = {}
        for topic, positions in start.by_topic().items():
            now_id = log_ends.topic_id(topic)
            if start.is_recreated(topic, now_id):
                self._history.on_recreated(topic, positions, start.topic_ids[topic], str(now_id))
                if self._target is not None and self._target.topic_ids.get(topic) != now_id:
                    kept |= positions  # created after the end of this run
                continue
            gone = {tp: at for tp, at in positions.items() if tp not in log_ends.ends}
            if gone:
                self._history.on_deleted(topic, gone, start.topic_ids.get(topic))
                kept |= gone
            if self._target is not None:
                kept |= {tp: at for tp, at in positions.items() if tp not in self._target.offsets}
        topics = {tp.topic for tp in kept} & start.topic_ids.keys()
        return StreamOffset(kept, {topic: start.topic_ids[topic] for topic in topics})
