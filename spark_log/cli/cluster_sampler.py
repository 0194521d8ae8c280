"""Samples of a cluster for ``spark-log top``: how far topics and groups are, and how fast.

A sample costs one request for new metadata, one for new commits, and one for each partition: for
the name that its next segment must have. A partition with new records costs a listing and a read of
the last batch header more. Each partition is listed again at least every half
``file.delete.delay.ms``, so that deleted and merged files are noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_log.admin import map_requests
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.log import LogView, PartitionLog, TailView
from spark_log.metadata import Cluster, TopicImage


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic at one moment.

    Attributes:
        topic: its name.
        log_end_offsets: log end offset of each partition, in order of their numbers.
        records: sum of the offsets that the partitions hold, from start to end.
        size_bytes: size of the segments.
        records_per_second: offsets appended since the sample before; None in the first sample.
        bytes_per_second: their size; None in the first sample.
    """

    topic: str
    log_end_offsets: tuple[int, ...]
    records: int
    size_bytes: int
    records_per_second: float | None
    bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group's committed offsets in one topic at one moment.

    Attributes:
        group_id: id of the group.
        topic: name of the topic.
        partitions: number of partitions with a committed offset.
        lag: offsets from the committed ones to the log ends.
        records_per_second: by how much the committed offsets grew since the sample before, negative
            after a reset; None if none of the partitions was committed then.
    """

    group_id: str
    topic: str
    partitions: int
    lag: int
    records_per_second: float | None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """Topics and groups at one moment.

    Attributes:
        sampled_us: wall-clock time of this process in microseconds since the epoch, to be shown.
        interval_ms: time since the sample before; None for the first.
        topics: sorted by name.
        groups: sorted by id and topic.
    """

    sampled_us: int
    interval_ms: float | None
    topics: tuple[TopicSample, ...]
    groups: tuple[GroupSample, ...]


class ClusterSampler:
    """Reads sample after sample. Between two it keeps a few numbers for each partition."""

    def __init__(
        self, cluster: Cluster, topics: Sequence[str] | None, groups: Collection[str]
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            cluster: the opened root.
            topics: names of the topics; None for all.
            groups: ids of the groups; empty for all.
        """
        self._cluster = cluster
        self._names = topics
        self._groups = groups
        self._table = OffsetsTable(cluster)
        self._partitions: dict[PartitionKey, _PartitionSampler] = {}
        self._committed: dict[tuple[str, PartitionKey], int] = {}
        self._sampled_ms: float | None = None

    def sample(self) -> ClusterSample:
        """Read topics and groups as they are now. A topic that was deleted is left out.

        Raises:
            UnknownTopicOrPartitionError: a topic did not exist when the first sample was read.
            SparkLogError: the storage cannot be read, or is damaged.
        """
        began_ms = self._cluster.clock.monotonic_ms()
        interval_ms = None if self._sampled_ms is None else began_ms - self._sampled_ms
        topics = self._topics(is_first=interval_ms is None)
        # Committed offsets first: those that are read later may be ahead of the log ends.
        committed = self._read_committed()
        readings = self._read_partitions(topics, is_first=interval_ms is None)
        topics = [topic for topic in topics if _keys(topic) <= readings.keys()]
        sample = ClusterSample(
            self._cluster.clock.time_us(),  # wall clock: only shown to users
            interval_ms,
            tuple(_topic_sample(topic, readings, interval_ms) for topic in topics),
            tuple(self._group_samples(committed, readings, interval_ms)),
        )
        self._committed, self._sampled_ms = committed, began_ms
        return sample

    def _topics(self, *, is_first: bool) -> list[TopicImage]:
        image = self._cluster.image()
        if self._names is None:
            return list(image.topics())
        if is_first:
            return [image.topic(name) for name in sorted(self._names)]
        return [topic for name in sorted(self._names) if (topic := image.find(name))]

    def _read_partitions(
        self, topics: Iterable[TopicImage], *, is_first: bool
    ) -> dict[PartitionKey, _Reading]:
        """Return what was read of each partition, without those of a topic that was deleted."""
        by_key = {key: topic for topic in topics for key in _keys(topic)}
        for key in self._partitions.keys() - by_key.keys():
            del self._partitions[key]
        for key in by_key.keys() - self._partitions.keys():
            log = self._cluster.partition_log(by_key[key], key.partition)
            self._partitions[key] = _PartitionSampler(log, is_new=not is_first)

        def read(key: PartitionKey) -> _Reading | None:
            try:
                with self._cluster.detecting_deletion(by_key[key]):
                    return self._partitions[key].read()
            except UnknownTopicOrPartitionError:
                return None  # deleted since the metadata were read

        found = map_requests(self._cluster.store, read, by_key)
        return {
            key: reading for key, reading in zip(by_key, found, strict=True) if reading is not None
        }

    def _read_committed(self) -> dict[tuple[str, PartitionKey], int]:
        return {
            (group_id, key): committed.offset
            for group_id, positions in self._table.all_positions().items()
            if not self._groups or group_id in self._groups
            for key, committed in positions.items()
        }

    def _group_samples(
        self,
        committed: Mapping[tuple[str, PartitionKey], int],
        readings: Mapping[PartitionKey, _Reading],
        interval_ms: float | None,
    ) -> Iterable[GroupSample]:
        by_topic: dict[tuple[str, str], list[PartitionKey]] = {}
        for group_id, key in committed:
            if key in readings:
                by_topic.setdefault((group_id, key.topic), []).append(key)
        for (group_id, topic), keys in sorted(by_topic.items()):
            moved = [
                committed[group_id, key] - before
                for key in keys
                if (before := self._committed.get((group_id, key))) is not None
            ]
            yield GroupSample(
                group_id,
                topic,
                len(keys),
                sum(max(0, readings[key].end - committed[group_id, key]) for key in keys),
                _per_second(sum(moved), interval_ms) if moved else None,
            )


@dataclass(frozen=True, slots=True)
class _Reading:
    """A partition: its first offset, its end, its size, and what was appended since the last."""

    start: int
    end: int
    size_bytes: int
    appended: int = 0
    appended_bytes: float = 0


class _PartitionSampler:
    """Reads one partition again and again; of its segments it keeps the last one alone."""

    def __init__(self, log: PartitionLog, *, is_new: bool) -> None:
        """Begin with a log.

        Args:
            log: of the partition; used by nobody else.
            is_new: whether the partition was created since the last sample, so that all of its
                records were appended since.
        """
        self._log = log
        self._end: int | None = 0 if is_new else None
        self._last: _Reading | None = None
        self._tail: TailView | None = None

    def read(self) -> _Reading:
        tail = self._tail
        if (
            self._last is not None
            and tail is not None
            and tail.is_valid
            and tail.open_at(tail.log_end_offset) is None
            and tail.is_valid  # otherwise a name that was freed may look like one never used
        ):
            self._last = replace(self._last, appended=0, appended_bytes=0)
            return self._last
        view = self._log.observe()
        end = view.log_end_offset
        before = end if self._end is None else min(self._end, end)
        self._last = _Reading(
            view.log_start_offset,
            end,
            sum(segment.file.size_bytes for segment in view.live.segments),
            end - before,
            _bytes_since(view, before),
        )
        self._end = end
        last = replace(view.live, segments=view.live.segments[-1:])
        self._tail = TailView(self._log.files, replace(view, live=last))
        return self._last


def _bytes_since(view: LogView, offset: int) -> float:
    """Return the size of the records from ``offset`` on; of a segment before it, by its share."""
    size_bytes = 0.0
    for segment in reversed(view.live.segments):
        end = view.log_end_offset if segment.end_offset is None else segment.end_offset
        if end <= offset:
            break
        share = (end - max(offset, segment.start_offset)) / (end - segment.start_offset)
        size_bytes += share * segment.file.size_bytes
    return size_bytes


def _keys(topic: TopicImage) -> set[PartitionKey]:
    return {PartitionKey(topic.name, topic.topic_id, number) for number in topic.partitions}


def _topic_sample(
    topic: TopicImage, readings: Mapping[PartitionKey, _Reading], interval_ms: float | None
) -> TopicSample:
    found = [readings[key] for key in sorted(_keys(topic))]
    return TopicSample(
        topic.name,
        tuple(each.end for each in found),
        sum(each.end - each.start for each in found),
        sum(each.size_bytes for each in found),
        _per_second(sum(each.appended for each in found), interval_ms),
        _per_second(sum(each.appended_bytes for each in found), interval_ms),
    )


def _per_second(amount: float, interval_ms: float | None) -> float | None:
    return None if interval_ms is None else amount / max(interval_ms, 1) * 1000
