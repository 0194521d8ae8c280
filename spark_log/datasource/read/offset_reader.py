"""Offsets as the log has them: partitions found, ends looked at, options resolved.

Driver side; needs no Spark session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.offsets import EARLIEST, LATEST, AtOffsets, AtTime, OffsetLimit
from spark_log.errors import InvalidOptionError, UnknownTopicOrPartitionError
from spark_log.log import LogView, PartitionLog
from spark_log.log.tail_view import TailView
from spark_log.metadata import Cluster, MetadataImage, TopicImage
from spark_log.types import TopicPartition

_THREADS: Final = 32
"""Partitions looked at at once where each function is a request over the network."""

_Answer = TypeVar("_Answer")


class OffsetReader:
    """Answers every question about offsets that planning a batch or a micro-batch asks.

    Nothing is remembered that could change an answer: `partitions`, `earliest` and `latest` function
    anew each time. `latest` costs one function for the next segment's name per partition once the
    reader has seen it; a caller that asks often sets its own pace (`LogPoller`). One thread at a
    time.
    """

    def __init__(self, options: ReadOptions) -> None:
        """Args: options: checked ones.

        Raises:
            RootNotFoundError: there is no root at ``path``.
        """
        self.options = options
        self._cluster = Cluster(options.root, options.storage_options)
        self._image: MetadataImage | None = None
        self._logs: dict[TopicPartition, tuple[str, PartitionLog]] = {}
        self._views: dict[TopicPartition, LogView] = {}
        self._tails: dict[TopicPartition, TailView] = {}

    @property
    def is_local(self) -> bool:
        """Whether a function is a call of the operating system, and no request over the network."""
        return self._cluster.store.is_mapped

    # --- which partitions ------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions to be read now, in order, from metadata as it is now.

        Raises:
            UnknownTopicOrPartitionError: a topic of ``subscribe``, or a partition of ``assign``,
                does not exist. A pattern that nothing matches gives an empty list.
        """
        image = self._image = self._cluster.image()
        options = self.options
        if options.assigned is not None:
            for topic, number in sorted(options.assigned):
                _check_partition(image.topic(topic), number)
            return sorted(options.assigned)
        return [
            TopicPartition(topic.name, number)
            for topic in sorted(self._topics(image), key=lambda topic: topic.name)
            for number in sorted(topic.partitions)
        ]

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that the last `partitions` found, by name."""
        image = self._current_image()
        found = {name: image.find(name) for name in self.options.topics}
        if self.options.pattern is not None:
            found = {topic.name: topic for topic in self._topics(image)}
        return {name: topic.topic_id for name, topic in found.items() if topic is not None}

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log: the same handle each time, until its topic is created anew.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        topic = self._current_image().topic(tp.topic)
        topic_id, log = self._logs.get(tp, ("", None))
        if log is None or topic_id != topic.topic_id:
            log = self._cluster.partition_log(topic, tp.partition)
            self._logs[tp] = topic.topic_id, log
            self._views.pop(tp, None)
            self._tails.pop(tp, None)
        return log

    # --- offsets now -----------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return log start offsets as they are now: one listing each.

        Partitions that do not exist (any more) are left out.
        """
        views = self._map(self._observe, self._existing(partitions))
        return {tp: view.log_start_offset for tp, view in views.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return log end offsets as they are now: one function for a name each.

        Partitions that do not exist (any more) are left out.
        """
        return self._map(self._log_end, self._existing(partitions))

    def starting_offsets(self, *, is_batch: bool) -> dict[TopicPartition, int]:
        """Return where each partition's read begins, as options say; none is -1 or -2.

        ``startingTimestamp``, else ``startingOffsetsByTimestamp``, else ``startingOffsets``, else
        the earliest for a batch and the latest for a stream.

        Raises:
            InvalidOptionError: offsets or times do not name exactly the partitions that are read,
                or no record is at or after a time (unless
                ``startingOffsetsByTimestampStrategy=latest``).
            UnknownTopicOrPartitionError: see `partitions`.
        """
        limit = self.options.starting
        if limit is None:
            limit = AtOffsets("startingOffsets", EARLIEST if is_batch else LATEST)
        return self._resolve(limit, latest_if_no_match=self.options.latest_if_no_match)

    def ending_offsets(self) -> dict[TopicPartition, int]:
        """Return where each partition's read ends, as options say; for batches.

        Partitions are looked at once: `starting_offsets` before it saw the same log.

        Raises:
            InvalidOptionError: offsets or times do not name exactly the partitions that are read.
        """
        return self._resolve(self.options.ending, latest_if_no_match=True)

    def view(self, tp: TopicPartition, end_offset: int | None = None) -> LogView:
        """Return a view of a partition that reaches to ``end_offset``: the last one where it does.

        Args:
            tp: the partition.
            end_offset: up to where the caller wants to read; None takes any.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        self.log(tp)  # a topic created anew has no view
        view = self._views.get(tp)
        if view is None or (end_offset is not None and view.log_end_offset < end_offset):
            view = self._observe(tp)
        return view

    def views(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogView]:
        """Return `view` of many partitions, each up to an offset."""
        return self._map(lambda tp: self.view(tp, partitions[tp]), partitions)

    # --- how -------------------------------------------------------------------------------------

    def _topics(self, image: MetadataImage) -> Iterable[TopicImage]:
        if self.options.pattern is None:
            return map(image.topic, self.options.topics)
        pattern = re.compile(self.options.pattern)
        return (topic for topic in image.topics() if pattern.search(topic.name))

    def _current_image(self) -> MetadataImage:
        if self._image is None:
            self._image = self._cluster.image()
        return self._image

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        image = self._current_image()
        found = ((tp, image.find(tp.topic)) for tp in partitions)
        return [tp for tp, topic in found if topic and tp.partition in topic.partitions]

    def _observe(self, tp: TopicPartition) -> LogView:
        view = self._views[tp] = self.log(tp).observe()
        return view

    def _log_end(self, tp: TopicPartition) -> int:
        """Return a log's end by trying the next segment's name, or by a listing now and then."""
        log = self.log(tp)
        tail = self._tails.get(tp)
        if tail is not None:
            while tail.is_valid and tail.open_at(tail.log_end_offset) is not None:
                pass
            if tail.is_valid:
                return tail.log_end_offset
        view = self._observe(tp)
        self._tails[tp] = TailView(log.files, view)
        return view.log_end_offset

    def _resolve(
        self, limit: OffsetLimit, *, latest_if_no_match: bool
    ) -> dict[TopicPartition, int]:
        partitions = self.partitions()
        asked = limit.offsets if isinstance(limit, AtOffsets) else limit.timestamp_ms
        by_partition = dict.fromkeys(partitions, asked) if isinstance(asked, int) else asked
        _check_names_all(by_partition, partitions, limit.option)
        if isinstance(limit, AtTime):
            return self._map(
                lambda tp: self._offset_for_time(
                    tp, by_partition[tp], limit.option, latest_if_no_match=latest_if_no_match
                ),
                partitions,
            )
        open_ends = [tp for tp in partitions if by_partition[tp] < 0]
        views = self._map(self.view, open_ends)
        ends = {EARLIEST: "log_start_offset", LATEST: "log_end_offset"}
        return {
            tp: by_partition[tp] if tp not in views else getattr(views[tp], ends[by_partition[tp]])
            for tp in partitions
        }

    def _offset_for_time(
        self, tp: TopicPartition, timestamp_ms: int, option: str, *, latest_if_no_match: bool
    ) -> int:
        view = self.view(tp)
        found = self.log(tp).offset_for_time(timestamp_ms * 1000, view)
        if found is not None:
            return min(found[0], view.log_end_offset)
        if latest_if_no_match:
            return view.log_end_offset
        raise InvalidOptionError(
            f"option {option!r}: {tp} has no record at or after {timestamp_ms} (milliseconds "
            f"since the epoch); give an earlier time, or startingOffsetsByTimestampStrategy=latest "
            f"to begin at the end of such partitions",
            key=option,
        )

    def _map(
        self, function: Callable[[TopicPartition], _Answer], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, _Answer]:
        """Look at many partitions; at some at once where each function waits for an answer.

        A local root is looked at in one thread: what it costs is Python's own time.
        """
        partitions = list(partitions)
        for tp in partitions:
            self.log(tp)  # the tables of handles are changed by one thread alone
        if self.is_local or len(partitions) < 2:
            return {tp: function(tp) for tp in partitions}
        with ThreadPoolExecutor(min(_THREADS, len(partitions)), "spark-log-function") as threads:
            return dict(zip(partitions, threads.map(function, partitions), strict=True))


def _check_partition(topic: TopicImage, number: int) -> None:
    if number not in topic.partitions:
        raise UnknownTopicOrPartitionError(
            f"option 'assign' names partition {number} of topic {topic.name!r}, which has "
            f"{topic.num_partitions}, numbered from 0",
            topic=topic.name,
        )


def _check_names_all(
    asked: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    what = "time" if "Timestamp" in option else "offset"
    if missing := sorted(set(partitions) - asked.keys()):
        hint = " (-2 earliest, -1 latest)" if what == "offset" else ""
        raise InvalidOptionError(
            f"option {option!r} has no {what} for {', '.join(map(str, missing))}; name every "
            f"partition{hint}",
            key=option,
        )
    if unknown := sorted(asked.keys() - set(partitions)):
        raise InvalidOptionError(
            f"option {option!r} names {', '.join(map(str, unknown))}, which is not read here",
            key=option,
        )
