"""Default values that code without a table of settings needs.

The tables check values with pydantic, whose import would take half of the start of a process that
only reads. So a Spark task takes a default from here, and the tables do the same.
"""

from __future__ import annotations

from typing import Final

DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
"""``request.timeout.ms`` of producers, consumers and admins."""

DEFAULT_API_TIMEOUT_MS: Final = 60_000
"""``default.api.timeout.ms`` of consumers and admins."""

DEFAULT_FILE_DELETE_DELAY_MS: Final = 60_000
"""``file.delete.delay.ms`` of topics."""

DEFAULT_FETCH_IDLE_INTERVAL_MS: Final = 1_000
"""``fetch.idle.interval.ms`` of consumers."""

DEFAULT_CHECK_CRCS: Final = True
"""``check.crcs`` of consumers."""
