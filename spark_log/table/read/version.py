"""A version of a topic's table, as reads need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from spark_log.cluster import Cluster
from spark_log.log.files import SegmentName
from spark_log.metadata import TopicImage
from spark_log.table.topic_table import PartitionTable


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet segment in a version.

    Attributes:
        size_bytes: the file's size; None if it is not known.
        times_us: the smallest timestamp of its rows and the largest, or values beyond them,
            microseconds since the epoch; None if they are not known.
    """

    size_bytes: int | None = None
    times_us: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PartitionVersion:
    """A partition in a version.

    Attributes:
        table: its start, its end, and the names of its files.
        files: the files by name. One that is missing here is read without its facts.
    """

    table: PartitionTable
    files: Mapping[SegmentName, TableFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicVersion:
    """A version of a topic's table.

    Attributes:
        number: the version's number.
        partitions: the partitions by number.
        typed_columns: columns that files may have behind those of the log.
    """

    number: int
    partitions: Mapping[int, PartitionVersion]
    typed_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))


def read_version(
    cluster: Cluster, topic: TopicImage, number: int | None = None
) -> TopicVersion | None:
    """Return a version of a topic's table; None if it has no table.

    Args:
        cluster: the cluster.
        topic: the topic.
        number: the version; None for the newest one.
    """
    return None  # until versions are committed
