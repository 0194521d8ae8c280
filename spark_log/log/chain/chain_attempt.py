"""`ChainAttempt`: what one call has met on its way through the states of a partition."""

from __future__ import annotations

from spark_log.errors import (
    NotEnoughReplicasAfterAppendError,
    SparkLogError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)

_CERTAIN = (UnknownOutcomeError, NotEnoughReplicasAfterAppendError, UnknownTopicOrPartitionError)
"""Errors that tell the outcome; nobody reads the log of a deleted topic."""


class ChainAttempt:
    """One append, or another change or read, which goes on when replicas fail.

    Once something was put that may be in the log, now or later, no error says that it is not: in
    the block every error but those that tell the outcome becomes `UnknownOutcomeError`.

    Attributes:
        failed: ids of the brokers whose replicas have failed in this call.
        has_put: whether something was put, or may have been.
    """

    def __init__(self, name: str, certain: tuple[type[SparkLogError], ...] = ()) -> None:
        """Begin; nothing was put yet.

        Args:
            name: of the partition, for messages.
            certain: more errors that tell the outcome.
        """
        self.failed: set[int] = set()
        self.has_put = False
        self._name = name
        self._certain = (*_CERTAIN, *certain)

    def __enter__(self) -> ChainAttempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        is_known = not self.has_put or isinstance(error, self._certain)
        if not is_known and isinstance(error, SparkLogError | OSError):
            raise unknown_outcome(self._name, str(error)) from error


def unknown_outcome(name: str, why: str) -> UnknownOutcomeError:
    """Return the error for an append, or a change, that may be in the log or not.

    Args:
        name: of the partition.
        why: it is not known.
    """
    return UnknownOutcomeError(
        f"{name}: it is not known whether an append is in the log: {why}", path=name
    )
