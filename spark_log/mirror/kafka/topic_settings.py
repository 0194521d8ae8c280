"""Settings of topics that mean the same in Kafka and in the log, translated both ways.

As in MirrorMaker 2, only settings that were made for the topic are translated, not defaults. Two
settings are never translated: ``min.insync.replicas`` belongs to the cluster that has the topic,
and ``message.timestamp.type`` could replace the timestamps of mirrored records by append times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_log.config import CODECS

_SAME: Final = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.ms",
    }
)
_MIN_SEGMENT_BYTES: Final = 1_048_576


def settings_for_log(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a topic of Kafka has in the log."""
    found = {name: value for name, value in settings.items() if name in _SAME}
    if compression := settings.get("compression.type"):
        stored = "none" if compression == "uncompressed" else compression
        found["compression.type"] = CODECS.substitute(
            "compression.type of a topic in Kafka", stored
        )
    if segment_bytes := settings.get("segment.bytes"):
        found["segment.bytes"] = str(max(int(segment_bytes), _MIN_SEGMENT_BYTES))
    return found


def settings_for_kafka(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a topic of the log has in Kafka."""
    found = {name: value for name, value in settings.items() if name in _SAME}
    if compression := settings.get("compression.type"):
        found["compression.type"] = "uncompressed" if compression == "none" else compression
    if segment_bytes := settings.get("segment.bytes"):
        found["segment.bytes"] = segment_bytes
    return found
