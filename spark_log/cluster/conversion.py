"""`ConversionProgress`: how many of the records of topics are in Parquet files already."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log.cluster.cluster import Cluster
from spark_log.errors import SparkLogError
from spark_log.log import LogView
from spark_log.metadata import TopicImage
from spark_log.storage import map_requests

_MAX_AGE_MS = 10_000.0
"""Maximum age of the listings behind a text."""


class ConversionProgress:
    """Counts offsets in Parquet files and in others, in the partitions of topics that are tables.

    One thread at a time uses it.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[TopicImage]) -> None:
        """Return the progress; nothing is read yet.

        Args:
            cluster: the opened root.
            topics: the topics; those that are no tables do not count.
        """
        self._cluster = cluster
        self._logs = [
            (topic, number)
            for topic in topics
            if topic.config().table_format != "none"
            for number in sorted(topic.partitions)
        ]
        self._text = ""
        self._read_ms = float("-inf")

    def read(self) -> tuple[int, int]:
        """List the partitions; return the number of offsets in Parquet files, and of all.

        A partition that cannot be read does not count.
        """
        views = list(map_requests(self._cluster.store, self._observe, self._logs))
        known = [view for view in views if view is not None]
        return (
            sum(view.parquet_offsets for view in known),
            sum(view.log_end_offset - view.log_start_offset for view in known),
        )

    def document(self) -> dict[str, int]:
        """Return the progress for JSON; empty if no topic is a table."""
        if not self._logs:
            return {}
        converted, offsets = self.read()
        return {"table_offsets": offsets, "parquet_offsets": converted}

    def text(self) -> str:
        """Return the progress in words, some seconds old; empty if no topic is a table."""
        now_ms = self._cluster.clock.monotonic_ms()
        if self._logs and now_ms - self._read_ms >= _MAX_AGE_MS:
            converted, offsets = self.read()
            share = converted / offsets if offsets else 1.0
            self._text = f"{converted:,} of {offsets:,} offsets ({share:.1%}) converted"
            self._read_ms = self._cluster.clock.monotonic_ms()
        return self._text

    def _observe(self, partition: tuple[TopicImage, int]) -> LogView | None:
        topic, number = partition
        with self._cluster.suppressed.suppress(
            "conversion progress", f"{topic.name}-{number}", SparkLogError
        ):
            return self._cluster.partition_log(topic, number).observe()
        return None
