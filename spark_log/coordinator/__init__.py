"""Consumer groups: committed offsets (`OffsetsTable`)."""

from spark_log.coordinator.offsets_table import CommittedOffset, OffsetsTable

__all__ = ["CommittedOffset", "OffsetsTable"]
