"""Hooks between `Producer.send` and the log (Kafka's ``ProducerInterceptor``, KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from spark_log.producer.batch import ProducerBatch
from spark_log.types import RecordMetadata

_log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as it was passed to `Producer.send`, before it is serialized."""

    topic: str
    value: object = None
    key: object = None
    headers: Iterable[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Sees each record before it is sent, and its outcome. Every method is optional."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, changed or not; called in the thread that calls `send`."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, exception: Exception | None
    ) -> None:
        """Receive the metadata of an acknowledged record, or the error of a failed one.

        Called in the producer's threads: a slow method delays the next appends.
        """
        ...

    def close(self) -> None:
        """Release resources; called when the producer is closed."""
        ...


class Interceptors:
    """A chain of interceptors. Their exceptions are logged, and change nothing for the record."""

    def __init__(self, interceptors: Sequence[object]) -> None:
        """Create a chain of interceptors, which are called in this order."""
        self._on_send = _methods(interceptors, "on_send")
        self._on_acknowledgement = _methods(interceptors, "on_acknowledgement")
        self._close = _methods(interceptors, "close")

    @property
    def has_on_send(self) -> bool:
        """Whether any interceptor has ``on_send``."""
        return bool(self._on_send)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all interceptors, and return the last one's result."""
        for method in self._on_send:
            try:
                record = method(record)
            except Exception:
                _log.exception("an interceptor's on_send failed")
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, exception: Exception | None
    ) -> None:
        """Call ``on_acknowledgement`` of all interceptors."""
        for method in self._on_acknowledgement:
            try:
                method(metadata, exception)
            except Exception:
                _log.exception("an interceptor's on_acknowledgement failed")

    def on_batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        """Call ``on_acknowledgement`` for each record of batches that are done."""
        if not self._on_acknowledgement:
            return
        for batch in batches:
            for row in range(batch.record_count):
                error = batch.error_of(row)
                metadata = None if error is not None else batch.metadata_of(row)
                self.on_acknowledgement(metadata, error)

    def close(self) -> None:
        """Call ``close`` of all interceptors."""
        for method in self._close:
            try:
                method()
            except Exception:
                _log.exception("an interceptor's close failed")


def _methods(interceptors: Sequence[object], name: str) -> list:  # type: ignore[type-arg]
    return [method for each in interceptors if (method := getattr(each, name, None)) is not None]
