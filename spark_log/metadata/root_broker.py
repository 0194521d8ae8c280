"""The broker that every cluster has: the root with the metadata log."""

from __future__ import annotations

from typing import Final

ROOT_BROKER_ID: Final = 0
"""The id of the root that has the metadata log. It is a broker without a registration."""
