"""Variants of replication without one of the safety rules of docs/protocol.md."""

from __future__ import annotations

from spark_log.testing.simulation.patches import PatchVariant

REPLICATION_SOUND = PatchVariant()
"""The shipped code."""

REPLICATION_RULES: dict[str, PatchVariant] = {}
"""The name of each safety rule, and the variant without it."""
