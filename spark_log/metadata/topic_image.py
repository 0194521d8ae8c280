"""`TopicImage`: a topic in the metadata image, its directories and its configs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from spark_log.config import ConfigModel, TopicConfig
from spark_log.metadata.records import PartitionRecord

_MAX_NAME_BYTES = 255
"""Maximum length of a file name. A long topic name is cut; the topic id keeps it unique."""

_MAX_TOPIC_CHARACTERS = _MAX_NAME_BYTES - 23
_MAX_PARTITION_CHARACTERS = _MAX_NAME_BYTES - 7

_REPLICA = re.compile(r".+-(\d+)(?:\.(\d+))?")

_Config = TypeVar("_Config", bound=ConfigModel)


@dataclass(slots=True)
class TopicImage:
    """A topic: its partitions and config overrides.

    Attributes:
        partitions: partition number → present state.
        overrides: the configs that were set for this topic.
        inherited: the configs that were set for the cluster and that topics inherit.
        first_stripe: number of the first of its stripes; it is a multiple of their number.
        moving_to: the number of stripes that it is getting; None if it is not.
    """

    name: str
    topic_id: str
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    inherited: Mapping[str, str] = field(default_factory=dict)
    first_stripe: int = 0
    moving_to: int | None = None

    @property
    def num_partitions(self) -> int:
        """Number of partitions, which are numbered from 0."""
        return len(self.partitions)

    @property
    def directory(self) -> str:
        """The topic's directory, relative to a root. A re-created topic gets another directory."""
        return f"{self.name[:_MAX_TOPIC_CHARACTERS]}.{self.topic_id}"

    def partition_directory(self, partition: int) -> str:
        """Return the first directory of a partition's log, relative to a root."""
        return f"{self.directory}/{self.name[:_MAX_PARTITION_CHARACTERS]}-{partition}"

    def replica_directory(self, partition: int, broker_id: int) -> str:
        """Return the present directory of a broker's replica, relative to the broker's root.

        It is `partition_directory`, or ``<topic>-<partition>.<k>`` after the replica diverged and
        was copied anew for the ``k``-th time.

        Raises:
            KeyError: the partition does not exist.
            ValueError: the broker has no replica of it.
        """
        number = self.partitions[partition].directory_of(broker_id)
        return self.numbered_directory(partition, number)

    def numbered_directory(self, partition: int, number: int) -> str:
        """Return the directory with this number of a partition's replica, relative to a root."""
        if not number:
            return self.partition_directory(partition)
        suffix = f"-{partition}.{number}"
        return f"{self.directory}/{self.name[: _MAX_NAME_BYTES - len(suffix)]}{suffix}"

    def config(self) -> TopicConfig:
        """Return the topic's configs: its overrides, else the cluster's, else the defaults.

        Keys of a newer version are ignored.
        """
        return parse_overrides(TopicConfig, {**self.inherited, **self.overrides})

    @property
    def stripes(self) -> range:
        """The numbers of the topic's stripes; empty without stripes."""
        count = self.config().stripes
        return range(self.first_stripe, self.first_stripe + count)

    def has_same_logs(self, before: TopicImage) -> bool:
        """Return whether logs of this topic that were opened by an earlier image can be used on.

        The settings do not tell: a number of stripes that has changed and changed back is the same
        number, of other stripes.

        Args:
            before: the topic as it was when they were opened.
        """
        return self.overrides == before.overrides and self.stripes == before.stripes

    def stripe_of(self, partition: int) -> int | None:
        """Return the number of the stripe that a partition is in; None without stripes."""
        stripes = self.stripes
        return stripes[partition % len(stripes)] if stripes else None

    def min_insync_replicas(self, partition: int) -> int:
        """Return the number of in-sync replicas that an append with ``acks=all`` needs.

        It is ``min.insync.replicas``, or the number of replicas if that is lower, as in Kafka.
        Replicas that a reassignment adds do not count until it is complete: writers must not wait
        for them.

        Raises:
            KeyError: the partition does not exist.
        """
        return effective_min_insync(self.config(), self.partitions[partition])


def parse_replica_directory(name: str) -> tuple[int, int] | None:
    """Return the partition and the number of a replica's directory; None for another name."""
    found = _REPLICA.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def effective_min_insync(config: TopicConfig, partition: PartitionRecord) -> int:
    """Return `TopicImage.min_insync_replicas` for these configs and this partition state."""
    count = len(partition.replicas) - len(partition.adding_replicas)
    return min(config.min_insync_replicas, count)


def parse_overrides(model: type[_Config], overrides: Mapping[str, str]) -> _Config:
    """Return configs with these overrides. Keys of a newer version are ignored."""
    parsed: _Config = _parse_pairs(model, frozenset(overrides.items()))
    return parsed


@lru_cache(maxsize=1024)
def _parse_pairs(model: type[_Config], pairs: frozenset[tuple[str, str]]) -> _Config:
    """Parse overrides once for all topics and partitions with the same overrides."""
    known = model.keys()
    return model.parse({key: value for key, value in pairs if key in known})
