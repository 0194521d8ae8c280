"""Codecs of Kafka that Arrow's file format does not have."""

from __future__ import annotations

from typing import Final

from spark_log.config.model import Substitutes

CODECS: Final = Substitutes(
    {"gzip": "zstd", "snappy": "lz4"},
    reason="which Arrow files do not support (they support none, lz4 and zstd)",
)
"""Kafka's codec → the nearest codec here. Only the writer chooses a codec; readers accept all."""
