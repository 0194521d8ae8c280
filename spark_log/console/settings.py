"""`ConsoleSettings`: the permissions and accepted hosts of a console, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

AvroDecoder = Callable[[bytes], object]
"""A function from bytes to a document that JSON can express; it raises ValueError for other
bytes."""

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine in a ``Host`` header that are always accepted."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings of one console.

    Attributes:
        token: the secret that permits changes; None for a console that only reads.
        hosts: the accepted values of the header ``Host``, without port, besides `LOCAL_HOSTS`.
        avro: topic → decoder of its values.
        request_timeout_ms: the time limit of a page.
        search_timeout_ms: the time limit of a search or an export that is streamed.
        max_requests: the maximum number of pages that are read at the same time; further requests
            are refused.
        max_searches: the maximum number of searches and exports that run at the same time; further
            requests are refused.
        max_value_bytes: the maximum bytes of a key, value or header that one answer shows.
        max_answer_bytes: the maximum bytes of all keys, values and headers that one answer shows.
        search_memory_bytes: the memory limit of the engine that evaluates a search's expression.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    avro: Mapping[str, AvroDecoder] = field(default_factory=dict)
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
