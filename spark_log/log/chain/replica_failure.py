"""The fault of an error: the one place that decides whether a replica has failed (protocol R11).

An error counts by its source. An error from the root or the files of one replica is this replica's
fault, whatever the kind of the error: not found, denied, full, read-only, damaged. The replica is
left out, and its caller continues with the others. Errors of the metadata, of this process, and of
the caller's request are not a replica's fault, and pass through.
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
from spark_log.storage import storage_errors
from spark_log.threads import CallExpiredError

REPLICA_ERRORS: Final = (
    StorageError,
    CorruptRecordError,
    DivergedReplicaError,
    BrokerIdNotRegisteredError,
)
"""Errors of a root, or of the files in it."""

_OWN_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers of a process, or machine, with too many open files or too little memory."""


class StagingFailedError(StorageUnavailableError):
    """A segment was staged on a root that has failed since. Its records may be staged again now.

    The replica on this root was left out, or another replica leads already.
    """


_CALLERS: Final = (CallExpiredError, StagingFailedError)
"""Errors that a replica's code may raise although its root is well."""


class ReplicaFailedError(Exception):
    """One replica of a partition has failed.

    Attributes:
        broker_id: the id of the replica's broker.
        error: the error of its root, or of its files.
    """

    def __init__(self, broker_id: int, error: SparkLogError) -> None:
        super().__init__(str(error))
        self.broker_id = broker_id
        self.error = error


class LeaderFailedError(Exception):
    """The leader's replica could not be read while another one was brought up to it.

    Attributes:
        error: the error of the leader's replica.
    """

    def __init__(self, error: SparkLogError) -> None:
        super().__init__(str(error))
        self.error = error


def is_replicas_fault(error: BaseException | None) -> TypeGuard[SparkLogError]:
    """Return whether an error that the code of one replica raised is this replica's fault."""
    if not isinstance(error, REPLICA_ERRORS) or isinstance(error, _CALLERS):
        return False
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in _OWN_ERRNOS)


class blaming:  # noqa: N801 - used as a function; a generator would take four times as long
    """Replace an error in a ``with`` block that is a replica's fault by `ReplicaFailedError`.

    The block accesses this replica only. Metadata are read outside of the block.
    """

    __slots__ = ("_broker_id", "_leader")

    def __init__(self, broker_id: int, *, leader: int | None = None) -> None:
        """Begin a block.

        Args:
            broker_id: the broker id of the replica that the block accesses.
            leader: the broker id that a `LeaderFailedError` of the block is about; None if the
                block raises none.
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
    """Return this package's error for an operating system error that no store translated."""
    try:
        with storage_errors(str(error.filename or "root")):
            raise error
    except StorageError as translated:
        return translated
