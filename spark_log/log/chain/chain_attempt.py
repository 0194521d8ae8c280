"""`ChainAttempt`: the failures and puts of one call, across changes of a partition's state."""

from __future__ import annotations

from spark_log.errors import (
    NotEnoughReplicasAfterAppendError,
    SparkLogError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)

_CERTAIN = (UnknownOutcomeError, NotEnoughReplicasAfterAppendError, UnknownTopicOrPartitionError)
"""Errors that leave no doubt about the outcome; nobody reads the log of a deleted topic."""


class ChainAttempt:
    """One append, or another change or read, which continues when replicas fail.

    Once something was put that may be in the log, now or later, no error may say that it is not. In
    the ``with`` block each error that leaves the outcome open becomes `UnknownOutcomeError`.

    Attributes:
        failed: ids of the brokers whose replicas have failed in this call.
        has_put: whether something was put, or may have been.
    """

    def __init__(self, name: str, certain: tuple[type[SparkLogError], ...] = ()) -> None:
        """Begin; nothing was put yet.

        Args:
            name: the partition's name, for messages.
            certain: more errors that leave no doubt about the outcome.
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
        name: the partition's name.
        why: the reason why the outcome is not known.
    """
    return UnknownOutcomeError(
        f"{name}: it is not known whether an append is in the log: {why}", path=name
    )
