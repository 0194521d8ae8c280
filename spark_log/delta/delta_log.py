"""Commits to a Delta log by conditional appends, like those to every log of this package.

On storage, by the Delta protocol (reader version 1, writer version 2)::

    _delta_log/00000000000000000007.json            a version: one JSON action per line
    _delta_log/00000000000000000100.checkpoint.parquet   the state after version 100 (derived)
    _delta_log/_last_checkpoint                     the newest checkpoint (derived)

A commit puts the file of version N + 1 if it is absent, and was decided on exactly the state after
version N. delta-rs commits by put-if-absent, too, but it rebases a commit by itself when another
one was first, and then a fence has to be checked again (docs/adr/0011). `checkpoint`
writes checkpoints; `DeltaCleanup` deletes obsolete versions.

Obsolete versions are deleted in order, oldest first, and only below a checkpoint. The name of a
deleted version looks like the end of the log. Two facts show that names after a version were
deleted: the version's own file does not exist, or a checkpoint exists above the apparent end. A
version that is put under a deleted name is *void*: no process reads it, its writer gets an error,
and cleanup deletes the file later. This package deletes no name within an hour
(`storage.listing_validity`). Another program with a wrong clock may delete names at once; the same
two facts show that.

A crash during `append` leaves the version complete or absent.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from spark_log.delta.parse import version_of_lines
from spark_log.delta.reader import DeltaLogReader
from spark_log.delta.state import Version
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.storage import StagedFile, storage_errors

_MAX_TRIES = 5
"""Maximum number of puts of one version, if the storage does not tell whether a put took effect."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StagedVersion:
    """A version that is written and has no number yet. As a context manager it deletes its file.

    Attributes:
        lines: the actions of the version, each in a mapping with its kind.
        body: the bytes of the version: the lines as JSON.
        file: the staged file with these bytes. It is deleted only after the version was put and
            checked: on a local file system the deletion changes the version's file, which then
            looks as if it had appeared at that time.
        is_put: whether a put has succeeded, even if the version is void.
    """

    lines: Sequence[Mapping[str, Any]]
    body: bytes
    file: StagedFile
    is_put: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Delete the file. A version that was put stays."""
        self.file.discard()


class DeltaLog(DeltaLogReader):
    """Reads and changes one table's log. Not thread-safe."""

    listing_valid_ms: ClassVar[float] = 500.0
    """Maximum time from a listing to the answer of a put, for which no second listing is needed. No
    process can write versions and a checkpoint above them, and delete these versions, within this
    time, however wrong its clock is."""

    def append(
        self,
        actions: Sequence[Mapping[str, object]],
        operation: str,
        details: Mapping[str, object] | None = None,
    ) -> Version:
        """Commit the version after `state`, which has to be the newest.

        Args:
            actions: the actions of the version.
            operation: the version's operation in Delta's history.
            details: the version's operation parameters in Delta's history.

        Raises:
            LogEndOffsetMismatchError: another version was first; nothing was changed. Call
                `refresh`.
            UnknownOutcomeError: the version may have been made, or may yet be made.
            StorageError: nothing was changed.
        """
        with self.stage(actions, operation, details) as staged:
            return self.append_staged(staged)

    def stage(
        self,
        actions: Sequence[Mapping[str, object]],
        operation: str,
        details: Mapping[str, object] | None = None,
    ) -> StagedVersion:
        """Write a version for `append_staged`, which then only gives it a name.

        Args:
            actions: the actions of the version.
            operation: the version's operation in Delta's history.
            details: the version's operation parameters in Delta's history.

        Raises:
            StorageError: the version was not written.
        """
        info = {
            "timestamp": self._clock.time_us() // 1000,  # wall clock: Delta's history, for users
            "operation": operation,
            "operationParameters": dict(details or {}),
            "engineInfo": "spark-log",
            "txnId": str(uuid.uuid4()),
        }
        lines = [{"commitInfo": info}, *actions]
        body = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()
        staged = StagedVersion(lines, body, self._store.stage(self.log_directory))
        try:
            with storage_errors(self.log_directory, "writing"):
                staged.file.sink.write(body)
                staged.file.sync()
        except BaseException:
            staged.discard()
            raise
        return staged

    def append_staged(self, staged: StagedVersion) -> Version:
        """Commit a staged version after `state`, as `append` does.

        Args:
            staged: the staged version, which was not put before.

        Raises:
            LogEndOffsetMismatchError: another version was first; nothing was changed. Call
                `refresh`, and append the same version again, unless it was put.
            UnknownOutcomeError: the version may have been made, or may yet be made.
            StorageError: nothing was changed.
        """
        number, began_ms = self.state.version + 1, self._clock.monotonic_ms()
        assert self._observed_ms is not None
        assert not staged.is_put
        tries = self._put(self._path(number), staged.file, staged.body, number)
        staged.is_put = True
        if self._was_certainly_unused(number):
            # Before this put no process had the state for the next version.
            self._observed_ms = began_ms
        else:
            self._observed_ms = None  # in any case, earlier listings are not valid
            self._check_not_void(number)
        version = version_of_lines(self.directory, number, staged.lines, self.protocol)
        self.state.apply(version)
        _log.debug(
            "%s: committed version %d, %d bytes, %d puts",
            self.directory,
            number,
            len(staged.body),
            tries,
        )
        return version

    def _put(self, path: str, staged: StagedFile, body: bytes, number: int) -> int:
        """Put a version; return the number of puts, more than one if answers were lost."""
        unknown: UnknownOutcomeError | None = None
        for tries in range(1, _MAX_TRIES + 1):
            try:
                self._store.put_if_absent(path, staged)
            except AlreadyExistsError:
                if unknown is not None and self._has_body(path, body, unknown):
                    return tries  # this process's version: the answer to an earlier put was lost
                _log.debug("%s: another process was first with version %d", self.directory, number)
                raise LogEndOffsetMismatchError(
                    f"{self.directory}: version {number} was made by another process first",
                    expected=number,
                    actual=number + 1,
                ) from None
            except UnknownOutcomeError as error:
                if error.is_visible:
                    raise
                unknown = error  # put the same bytes again: at most one put takes effect
            except StorageError:
                if unknown is None:
                    raise
                raise unknown from None
            else:
                return tries
        assert unknown is not None
        raise unknown

    def _has_body(self, path: str, body: bytes, unknown: UnknownOutcomeError) -> bool:
        """Return whether a version holds these bytes; if so, it is durable on return."""
        try:
            if self._store.open_buffer(path).to_pybytes() != body:
                return False
            self._store.sync(path)
        except StorageError:
            raise unknown from None
        return True

    def is_fresh(self) -> bool:
        """Return whether a read or an append has just shown that `state` was the newest.

        Then an append without a `refresh` before it needs no listing after it.
        """
        return (
            self._observed_ms is not None
            and self._clock.monotonic_ms() - self._observed_ms < self.listing_valid_ms / 2
        )

    # --- void versions ---------------------------------------------------------------------------

    def _was_certainly_unused(self, number: int) -> bool:
        """Return whether the name of the version just put was certainly never used before."""
        if not self.has_valid_listing():
            return False
        assert self._observed_ms is not None
        if not self._store.is_local:
            return self._clock.monotonic_ms() - self._observed_ms < self.listing_valid_ms
        try:
            if number > 0:
                self._store.head(self._path(number - 1))
            return self.last_checkpoint() <= number
        except StorageError:
            return False

    def _check_not_void(self, number: int) -> None:
        """Check by a listing that the version that was just put is not void.

        Raises:
            LogEndOffsetMismatchError: the version is void: its name had been used and deleted.
            UnknownOutcomeError: the listing does not show whether the version is void.
        """
        try:
            listed = self.list_log(max(number - 1, 0))
        except StorageError as error:
            raise self._unknown(number, f"and the log cannot be listed: {error}") from error
        own_us = listed.versions.get(number)
        above = [time_us for version, time_us in listed.checkpoints.items() if version >= number]
        is_adjacent = number == 0 or number - 1 in listed.versions.keys() | listed.checkpoints
        if own_us is not None and is_adjacent and not above:
            return
        if own_us is not None and any(time_us < own_us for time_us in above):
            raise LogEndOffsetMismatchError(
                f"{self.directory}: other processes have made and deleted versions from {number} "
                f"on since the log was read; nothing was changed",
                expected=number,
                actual=max(listed.checkpoints),
            )
        raise self._unknown(number, "and cleanup has deleted what would show it")

    def _unknown(self, number: int, reason: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self.directory}: version {number} was put so long after the log was read that its "
            f"name may have been used and deleted before, {reason}; read the log again",
            path=self._path(number),
        )
