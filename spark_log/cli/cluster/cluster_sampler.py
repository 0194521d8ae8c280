"""Samples of a cluster for ``spark-log top``: positions and rates of topics and groups.

The docstring of `OffsetsSampler`'s module has the costs of a sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_log.admin import OffsetsSample, OffsetsSampler, PartitionSample, partition_keys
from spark_log.cluster import Cluster
from spark_log.coordinator import PartitionKey
from spark_log.metadata import TopicImage


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic at one moment.

    Attributes:
        topic: the topic's name.
        log_end_offsets: the log end offset of each partition, in order of their numbers.
        records: the number of offsets in all partitions, from log start to log end.
        size_bytes: the size of the segments.
        records_per_second: the rate of appended offsets since the last sample; None in the first.
        bytes_per_second: the rate of appended bytes; None in the first sample.
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
        group_id: the group's id.
        topic: the topic's name.
        partitions: the number of partitions with a committed offset.
        lag: the number of offsets that can be read, from the committed ones to the log ends.
        records_per_second: the rate of committed offsets since the last sample, negative after a
            reset; None if none of the partitions had a committed offset at that time.
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
        sampled_us: the wall-clock time of this process in microseconds since the epoch, for people.
        interval_ms: the time since the last sample; None for the first.
        topics: the topics, sorted by name.
        groups: the groups, sorted by id and topic.
    """

    sampled_us: int
    interval_ms: float | None
    topics: tuple[TopicSample, ...]
    groups: tuple[GroupSample, ...]


class ClusterSampler:
    """Reads samples. Between two samples it keeps a few numbers for each partition."""

    def __init__(
        self, cluster: Cluster, topics: Sequence[str] | None, groups: Collection[str]
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            cluster: the opened root.
            topics: the names of the topics; None for all.
            groups: the ids of the groups; empty for all.
        """
        self._clock = cluster.clock
        self._offsets = OffsetsSampler(cluster, topics, groups)
        self._committed: dict[tuple[str, PartitionKey], int] = {}
        self._sampled_ms: float | None = None

    def sample(self) -> ClusterSample:
        """Read the present state of topics and groups. A deleted topic is left out.

        Raises:
            UnknownTopicOrPartitionError: a topic did not exist when the first sample was read.
            SparkLogError: the storage cannot be read, or is damaged.
        """
        began_ms = self._clock.monotonic_ms()
        interval_ms = None if self._sampled_ms is None else began_ms - self._sampled_ms
        offsets = self._offsets.sample()
        sample = ClusterSample(
            self._clock.time_us(),  # wall clock: only shown to users
            interval_ms,
            tuple(
                _topic_sample(topic, offsets.partitions, interval_ms) for topic in offsets.topics
            ),
            tuple(self._group_samples(offsets, interval_ms)),
        )
        self._committed = {
            (group_id, key): found.offset
            for group_id, positions in offsets.groups.items()
            for key, found in positions.items()
        }
        self._sampled_ms = began_ms
        return sample

    def _group_samples(
        self, offsets: OffsetsSample, interval_ms: float | None
    ) -> Iterable[GroupSample]:
        for group_id, positions in offsets.groups.items():
            by_topic: dict[str, list[PartitionKey]] = {}
            for key in positions:
                by_topic.setdefault(key.topic, []).append(key)
            for topic, keys in by_topic.items():
                moved = [
                    positions[key].offset - before
                    for key in keys
                    if (before := self._committed.get((group_id, key))) is not None
                ]
                yield GroupSample(
                    group_id,
                    topic,
                    len(keys),
                    sum(positions[key].lag for key in keys),
                    _per_second(sum(moved), interval_ms) if moved else None,
                )


def _topic_sample(
    topic: TopicImage,
    partitions: Mapping[PartitionKey, PartitionSample],
    interval_ms: float | None,
) -> TopicSample:
    found = [partitions[key] for key in partition_keys(topic)]
    return TopicSample(
        topic.name,
        tuple(each.log_end_offset for each in found),
        sum(each.log_end_offset - each.log_start_offset for each in found),
        sum(each.size_bytes for each in found),
        _per_second(sum(each.appended for each in found), interval_ms),
        _per_second(sum(each.appended_bytes for each in found), interval_ms),
    )


def _per_second(amount: float, interval_ms: float | None) -> float | None:
    return None if interval_ms is None else amount / max(interval_ms, 1) * 1000
