"""Codecs of Kafka that Arrow's file format does not have."""

from __future__ import annotations

from typing import Final

from spark_log.config.model import Substitutes

CODECS: Final = Substitutes(
    {"gzip": "zstd", "snappy": "lz4"},
    reason="which Arrow files do not support (they support none, lz4 and zstd)",
)
"""The nearest codec for each of these. The codec is the writer's choice, and no reader sees it."""
