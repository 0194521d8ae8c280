"""`AdminConfig`: the settings of an admin client."""

from __future__ import annotations

from typing import ClassVar

from spark_log.config.client import DefaultApiTimeoutMs, RequestTimeoutMs
from spark_log.config.defaults import DEFAULT_API_TIMEOUT_MS, DEFAULT_REQUEST_TIMEOUT_MS
from spark_log.config.foreign_keys import CLIENT_KEYS, ForeignKeys
from spark_log.config.model import ConfigModel


class AdminConfig(ConfigModel):
    """Settings of an `Admin`."""

    title: ClassVar[str] = "Admin"
    foreign: ClassVar[ForeignKeys] = CLIENT_KEYS

    request_timeout_ms: RequestTimeoutMs = DEFAULT_REQUEST_TIMEOUT_MS
    default_api_timeout_ms: DefaultApiTimeoutMs = DEFAULT_API_TIMEOUT_MS
