"""Planning micro-batches: how far each one reads, and what became of topics meanwhile.

Driver side; needs no Spark session. Everything that Spark asks a stream reader is answered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.member_splits import PartitionOwners, group_by_member
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.offsets import LATEST, AtOffsets, format_offsets
from spark_log.datasource.read.splits import splits_between
from spark_log.datasource.stream.kafka_checkpoint import initial_offsets
from spark_log.datasource.stream.lag import latest_document
from spark_log.datasource.stream.log_poller import LatestOffsets, LogPoller
from spark_log.datasource.stream.read_limits import TriggerDelay, count_offsets, limit_rate
from spark_log.datasource.stream.stream_offset import OffsetDocument, StreamOffset
from spark_log.datasource.stream.time_lag import TimeLag
from spark_log.datasource.stream.topic_history import TopicHistory
from spark_log.types import TopicPartition


class MicroBatchPlanner:
    """Decides where micro-batches begin and end.

    Safe to be asked as often as one likes: `LogPoller` sets the pace. When the answer is that there
    is nothing new, it holds for whatever was acknowledged before the question.

    What happens to a topic behind the query's back:

    - *New partitions* are read from their beginning.
    - *Deleted*: its offsets stay where they are; `TopicHistory.gone` judges.
    - *Created again* (another topic id): it is read from its beginning, and its offsets are not
      compared with those of the former one; `TopicHistory.created_again` judges.

    A loss is found before the batch is written into the checkpoint, where that can be: a query that
    fails does so again when it is restarted only if what it needs is still missing.
    """

    def __init__(self, options: ReadOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        """Args: options: checked ones of a stream; clock: says when to look.

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
        """Ids of the topics that are read, as of the last look."""
        return self._poller.recent().offset.topic_ids

    def is_initial(self, offset: StreamOffset) -> bool:
        """Whether the query started there, in this run: nothing has been processed then.

        An offset that notes where it begins is the end of a batch, an empty one perhaps.
        """
        return offset.begins is None and offset == self._initial

    # --- what Spark asks -------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return where a query starts that has no checkpoint; the same for the whole run.

        Spark does not keep it. So the end of the first batch, which it does keep before anything is
        read, notes where that batch begins (`StreamOffset.begins`), and it is run again from there
        wherever this method starts after a restart.

        Raises:
            InvalidOptionError, UnknownTopicOrPartitionError: see `OffsetReader.starting_offsets`.
        """
        if self._initial is None:
            offsets = self._reader.starting_offsets(is_batch=False)
            self._initial = StreamOffset(offsets, self._poller.topic_ids_of(offsets))
        return self._initial

    def prepare_available_now(self) -> None:
        """Read up to where the log ends now, and no further (``Trigger.AvailableNow``)."""
        self._target = self._poller.poll_now().offset

    def next_end(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Return where the batch that begins at ``start`` ends; ``start`` itself for none.

        Args:
            start: where the last batch ended.
            limit: Spark's: what `default_read_limit` said, or everything.

        Raises:
            DataLossError: records are gone that should have been read.
        """
        before = self._poller.last
        log_ends = self._poller.recent()
        end = self._end_at(start, log_ends, limit)
        if end is start and log_ends is before and self._target is None:
            end = self._end_at(start, self._poller.poll(), limit)
        if self.is_initial(start):
            end = replace(end, begins=start.offsets)
        self._end = end
        return end

    def splits(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """Return what the tasks of a batch read.

        With ``partition.assignment.strategy`` partitions stay with the member that had them in the
        batch before, as far as the assignor keeps them there, also those without new records.

        Raises:
            DataLossError: records of the batch are gone.
        """
        is_initial = self.is_initial(start)
        if is_initial:
            start = self._first_batch_start(start, end)
        log_ends = self._poller.recent()
        readable = end.for_unchanged_topics(log_ends.ends, log_ends.topic_id)
        begins = start.for_unchanged_topics(end.offsets, end.topic_ids.get)
        begins |= self._new_partition_starts(sorted(readable.keys() - begins.keys()))
        starts: dict[TopicPartition, int] = {}
        stops: dict[TopicPartition, int] = {}
        for tp, stop in sorted(end.offsets.items()):
            begin = begins.get(tp, 0)
            if begin >= stop:
                self._check_order(tp, begin, stop, is_first=is_initial)
            elif tp not in readable:
                self._history.report_loss(
                    f"{tp} was deleted: offsets {begin} to {stop - 1} of this batch are gone",
                    tp.topic,
                )
            else:
                starts[tp], stops[tp] = self._retained(tp, begin, stop), stop
        splits = splits_between(self._reader, starts, stops)
        if self._owners is None:
            return splits
        return group_by_member(splits, self._owners, log_ends.ends.keys())

    def latest(self) -> OffsetDocument | None:
        """Return where the log ends, with how far the batch planned last stays behind in time."""
        log_ends = self._poller.last
        if log_ends is None:
            return None
        latest = self._target or log_ends.offset
        if self._reported is not None and self._reported[:2] == (latest, self._end):
            return self._reported[2]
        lag_ms = {} if self._end is None else self._time_lag.lag_ms(self._end, latest)
        document = latest_document(latest, lag_ms)
        # What is unread grows older, so that nothing is kept where there is something.
        self._reported = None if lag_ms else (latest, self._end, document)
        return document

    # --- ends and beginnings ---------------------------------------------------------------------

    def _end_at(
        self, start: StreamOffset, log_ends: LatestOffsets, limit: ReadLimit
    ) -> StreamOffset:
        """Return where the batch ends by what a look showed; ``start`` itself for none."""
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
        begins = self._begins(start, ends, log_ends)
        if any(begin > ends[tp] for tp, begin in begins.items()) and self._target is None:
            # An end that went back: rather than lost, the topic may just have been deleted.
            log_ends = self._poller.poll_now()
            kept = self._check_topics(start, log_ends)
            ends = self._ends_without_limit(log_ends)
            begins = self._begins(start, ends, log_ends)
        ends = {tp: end for tp, end in ends.items() if tp in begins}
        for tp, begin in begins.items():
            if begin > ends[tp] and self._target is None:
                self._history.report_loss(
                    f"{tp} ends at offset {ends[tp]}, before offset {begin}, up to where it "
                    f"was read: records may have been missed",
                    tp.topic,
                )
            elif begin > ends[tp]:
                ends[tp] = begin  # another run read past what this one stops at
        if not isinstance(limit, ReadAllAvailable):
            if (
                self._delay is not None
                and self._target is None
                and self._delay.should_wait(count_offsets(begins, ends))
            ):
                return start
            most = self._options.max_offsets_per_trigger
            if isinstance(limit, ReadMaxRows):
                most = limit.max_rows
            if most is not None:
                ends = limit_rate(most, begins, ends)
        topic_ids = {tp.topic: log_ends.offset.topic_ids[tp.topic] for tp in ends}
        return StreamOffset({**kept.offsets, **ends}, {**kept.topic_ids, **topic_ids})

    def _ends_without_limit(self, log_ends: LatestOffsets) -> dict[TopicPartition, int]:
        if self._target is None:
            return dict(log_ends.ends)
        return self._target.for_unchanged_topics(log_ends.ends, log_ends.topic_id)

    def _begins(
        self, start: StreamOffset, ends: Mapping[TopicPartition, int], log_ends: LatestOffsets
    ) -> dict[TopicPartition, int]:
        """Return where to go on in each partition; new ones begin at their beginning."""
        begins = start.for_unchanged_topics(ends, log_ends.topic_id)
        new = [tp for tp in ends if tp not in begins]
        return begins | (self._reader.earliest(new) if new else {})

    def _new_partition_starts(self, new: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where new partitions begin; a query sees them from their very first record."""
        if not new:
            return {}
        beginnings = self._reader.earliest(new)
        for tp, offset in beginnings.items():
            if offset > 0:
                self._history.report_loss(
                    f"new partition {tp} begins at offset {offset} instead of 0: records may "
                    f"have been missed",
                    tp.topic,
                )
        return beginnings

    def _retained(self, tp: TopicPartition, begin: int, end: int) -> int:
        """Return where to begin. What is deleted from now on, the task will find out."""
        earliest = self._reader.view(tp).log_start_offset
        if begin < earliest:
            self._history.report_loss(
                f"{tp}: offsets {begin} to {min(earliest, end) - 1} are not retained any more; "
                f"the log starts at {earliest}",
                tp.topic,
            )
        return min(max(begin, earliest), end)

    def _first_batch_start(self, initial: StreamOffset, end: StreamOffset) -> StreamOffset:
        """Return where a query's first batch begins.

        Args:
            initial: where the query starts by its options, as the log is now.
            end: where the batch ends, as planned by this run or, after a restart, by a former one.

        Raises:
            DataLossError: Kafka's source planned it, and where it began cannot be found.
        """
        if end.begins is not None:
            return StreamOffset(end.begins, end.topic_ids)
        if end.topic_ids or not end.offsets or self._starts_at_given_offsets():
            return initial  # the latter two cannot differ; the first: of a version without the note
        topics = {tp.topic for tp in end.offsets}
        location = self._options.checkpoint_location
        begins = None
        if location:
            begins = initial_offsets(location, self._options.storage_options, topics)
        if begins is not None:
            return StreamOffset(begins)
        found = (
            f"option 'checkpointLocation' is {location!r}, where no sources/<n>/0 names its topics"
            if location
            else "give the query's checkpointLocation to readStream as well: Spark does not tell it"
        )
        self._history.report_loss(
            f"the first batch, up to {format_offsets(end.offsets)}, was planned by a query on "
            f"format kafka and not finished. Where it begins is in sources/<n>/0 of the "
            f"checkpoint; {found}. Or say where in startingOffsets, with a number for each "
            f"partition. Records may be missed from where the options start now, "
            f"{format_offsets(initial.offsets)}",
            ", ".join(sorted(topics)),
        )
        return initial

    def _starts_at_given_offsets(self) -> bool:
        """Whether options say for each partition at which offset to start."""
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
        """Check a range that is empty, or the wrong way round.

        The first batch of a query that starts at the end, planned by a version that did not note
        where it begins, was empty; run again after a crash it begins where the log ends by now, and
        there is nothing wrong with that.
        """
        if begin > stop and not (is_first and self._starts_at_latest()):
            self._history.report_loss(
                f"{tp}: the batch begins at offset {begin} and ends before it, at {stop}: "
                f"records may have been missed",
                tp.topic,
            )

    def _check_topics(self, start: StreamOffset, log_ends: LatestOffsets) -> StreamOffset:
        """Look for what is gone or was created again; return what stays as it is.

        Those are the offsets of partitions that cannot be read now, or not by this run: should
        they come back, they go on there.
        """
        kept: dict[TopicPartition, int] = {}
        for topic, positions in start.by_topic().items():
            now_id = log_ends.topic_id(topic)
            if start.is_recreated(topic, now_id):
                self._history.on_recreated(topic, positions, start.topic_ids[topic], str(now_id))
                if self._target is not None and self._target.topic_ids.get(topic) != now_id:
                    kept |= positions  # it came after what this run stops at
                continue
            gone = {tp: at for tp, at in positions.items() if tp not in log_ends.ends}
            if gone:
                self._history.on_deleted(topic, gone, start.topic_ids.get(topic))
                kept |= gone
            if self._target is not None:
                kept |= {tp: at for tp, at in positions.items() if tp not in self._target.offsets}
        topics = {tp.topic for tp in kept} & start.topic_ids.keys()
        return StreamOffset(kept, {topic: start.topic_ids[topic] for topic in topics})
