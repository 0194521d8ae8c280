"""`ConsumerInterceptor` (KIP-42), and the class that calls a user's interceptors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from spark_log.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

Records = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerInterceptor(Protocol):
    """Sees the records that a consumer returns, and the offsets that it committed (KIP-42)."""

    def on_consume(self, records: Records) -> Records:
        """Return the records that `Consumer.poll` returns instead of ``records``."""

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets were committed by the user or automatically; called on another thread.

        A commit is reported when it took effect, and before `Consumer.commit` returns.
        """


class ConsumerInterceptors:
    """Calls interceptors in order, and logs the errors that they raise."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        """Call these interceptors."""
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: Records) -> Records:
        """Return the records that the last interceptor returns."""
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                _log.warning("an interceptor raised an error in on_consume", exc_info=True)
        return records

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Pass committed offsets to each interceptor."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(dict(offsets))
            except Exception:
                _log.warning("an interceptor raised an error in on_commit", exc_info=True)

    def close(self) -> None:
        """Close the interceptors that have a ``close`` method."""
        for interceptor in self._interceptors:
            if callable(close := getattr(interceptor, "close", None)):
                close()
