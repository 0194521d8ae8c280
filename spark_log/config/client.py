"""Keys that several clients have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spark_log.config.model import INT_MAX

RequestTimeoutMs = Annotated[
    int,
    Field(
        ge=1,
        le=INT_MAX,
        description="Maximum time that a request to an object store waits for its answer. A put "
        "carries data and waits up to twice as long. After a put without an answer the client "
        "checks whether the put took effect.",
    ),
]
"""``request.timeout.ms`` of producers, consumers and admins."""

DefaultApiTimeoutMs = Annotated[
    int,
    Field(
        ge=0,
        le=INT_MAX,
        description="Maximum time that opening a client, or a call without a timeout of its own, "
        "waits for a storage that does not answer, such as a server that restarts. After it the "
        "call raises a retriable error.",
    ),
]
"""``default.api.timeout.ms`` of consumers and admins."""
