"""What comes between `Producer.send` and the log (Kafka's ``ProducerInterceptor``, KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from spark_log.types import RecordMetadata

_logger = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as it was given to `Producer.send`, before it is serialized."""

    topic: str
    value: object = None
    key: object = None
    headers: Iterable[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Sees, and may change, what is sent; sees what became of it. Any method may be left out."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record that is sent instead; called in the thread that sends."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, exception: Exception | None
    ) -> None:
        """See where a record is, or why it failed; called in the producer's threads: be quick."""
        ...

    def close(self) -> None:
        """End: the producer is closed."""
        ...


class Interceptors:
    """Several, one behind the other. What they raise is logged, and concerns no record."""

    def __init__(self, interceptors: Sequence[object]) -> None:
        self._on_send = _methods(interceptors, "on_send")
        self._on_acknowledgement = _methods(interceptors, "on_acknowledgement")
        self._close = _methods(interceptors, "close")

    @property
    def has_on_send(self) -> bool:
        """Whether any of them looks at what is sent."""
        return bool(self._on_send)

    @property
    def has_on_acknowledgement(self) -> bool:
        """Whether any of them looks at what became of records."""
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return what the last of them makes of a record."""
        for method in self._on_send:
            try:
                record = method(record)
            except Exception:
                _logger.exception("an interceptor's on_send failed")
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, exception: Exception | None
    ) -> None:
        """Tell all of them."""
        for method in self._on_acknowledgement:
            try:
                method(metadata, exception)
            except Exception:
                _logger.exception("an interceptor's on_acknowledgement failed")

    def close(self) -> None:
        """Close all of them."""
        for method in self._close:
            try:
                method()
            except Exception:
                _logger.exception("an interceptor's close failed")


def _methods(interceptors: Sequence[object], name: str) -> list:  # type: ignore[type-arg]
    return [method for each in interceptors if (method := getattr(each, name, None)) is not None]
