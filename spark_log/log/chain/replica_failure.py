"""Whose fault an error is: the one place that decides whether a replica has failed.

An error counts by its source. What the root or the files of one replica answer is this replica's
fault, whatever the kind of the error: not found, denied, full, read-only, damaged. The replica is
left out, and its caller goes on with the others. Errors of the metadata, of this process, and of
what the caller asked for are the caller's, and pass through.
"""

from __future__ import annotations

import errno
from typing import Final, TypeGuard

from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
)
from spark_log.log.append import DivergedReplicaError
from spark_log.storage import CallExpiredError, storage_errors

REPLICA_ERRORS: Final = (
    StorageError,
    CorruptRecordError,
    DivergedReplicaError,
    BrokerIdNotRegisteredError,
)
"""Errors of a root, or of the files in it."""

_OWN_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""This process, or its machine, has too many files open or too little memory."""


class StagingFailedError(StorageUnavailableError):
    """A segment was staged on a root that has failed since. Its records may be staged again now.

    The root was left out, or another replica leads already.
    """


_CALLERS: Final = (CallExpiredError, StagingFailedError)
"""Errors that a replica's code may raise, and that say nothing of its root."""


class ReplicaFailedError(Exception):
    """One replica of a partition has failed.

    Attributes:
        broker_id: of the replica.
        error: what its root, or its files, raised.
    """

    def __init__(self, broker_id: int, error: SparkLogError) -> None:
        super().__init__(str(error))
        self.broker_id = broker_id
        self.error = error


class LeaderFailedError(Exception):
    """The leader's replica could not be read while another one was brought up to it.

    Attributes:
        error: what was raised.
    """

    def __init__(self, error: SparkLogError) -> None:
        super().__init__(str(error))
        self.error = error


def is_replicas_fault(error: BaseException | None) -> TypeGuard[SparkLogError]:
    """Whether an error that the code of one replica raised is this replica's fault."""
    if not isinstance(error, REPLICA_ERRORS) or isinstance(error, _CALLERS):
        return False
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in _OWN_ERRNOS)


class blaming:  # noqa: N801 - used as a function; a generator would take four times as long
    """Raise `ReplicaFailedError` in place of an error in the block that is a replica's fault.

    The block accesses this replica only. Metadata are read outside of it.
    """

    __slots__ = ("_broker_id", "_leader")

    def __init__(self, broker_id: int, *, leader: int | None = None) -> None:
        """Begin a block.

        Args:
            broker_id: of the replica that the block accesses.
            leader: of the replica that `LeaderFailedError` is about, if the block raises it.
        """
        self._broker_id = broker_id
        self._leader = leader

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        broker_id = self._broker_id
        if isinstance(error, LeaderFailedError) and self._leader is not None:
            broker_id, error = self._leader, error.error
            if not is_replicas_fault(error):
                raise error from error.__cause__
        elif isinstance(error, OSError) and not isinstance(error, SparkLogError):
            error = _translated(error)
        if is_replicas_fault(error):
            raise ReplicaFailedError(broker_id, error) from error


def _translated(error: OSError) -> BaseException:
    """Return the error of this package for one of the operating system that no store translated."""
    try:
        with storage_errors(str(error.filename or "root")):
            raise error
    except StorageError as translated:
        return translated
