"""`ConsoleSettings`: what the console may do, whom it answers, and the limits of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Decode = Callable[[bytes], object]
"""Bytes → a document that JSON can express; ValueError if the bytes are something else."""

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine in a ``Host`` header that are always accepted."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings of one console.

    Attributes:
        token: what a user has to know to make changes; None for a console that only reads.
        hosts: accepted values of the header ``Host``, without port, besides `LOCAL_HOSTS`.
        avro: topic → decoder of its values.
        request_timeout_ms: time limit of a page.
        search_timeout_ms: time limit of a search or an export that is streamed.
        max_requests: pages that are read at the same time; further ones are refused.
        max_searches: searches and exports that run at the same time; further ones are refused.
        max_value_bytes: most bytes of a key, value or header that one answer shows.
        max_answer_bytes: most bytes of keys, values and headers that one answer shows.
        search_memory_bytes: memory limit of the engine that evaluates the expression of a search.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    avro: Mapping[str, Decode] = field(default_factory=dict)
    request_timeout_ms: float = 15_000
    search_timeout_ms: float = 600_000
    max_requests: int = 16
    max_searches: int = 4
    max_value_bytes: int = 1_048_576
    max_answer_bytes: int = 4_194_304
    search_memory_bytes: int = 536_870_912

    @property
    def allows_changes(self) -> bool:
        """Whether the console can change something."""
        return self.token is not None
