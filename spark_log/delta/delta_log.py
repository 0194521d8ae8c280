"""Commits to a Delta log by conditional appends, as to every log of this package.

On storage, by the Delta protocol (reader version 1, writer version 2)::

    _delta_log/00000000000000000007.json            a version: one JSON action per line
    _delta_log/00000000000000000100.checkpoint.parquet   the state after version 100 (derived)
    _delta_log/_last_checkpoint                     the newest checkpoint (derived)

A commit puts the file of version N + 1 if it is absent, and was decided on exactly the state after
version N. delta-rs commits by put-if-absent too, but it rebases a commit by itself when another one
was first, and a fence has to be checked again then (docs/adr/0011). delta-rs writes the
checkpoints; `DeltaCleanup` deletes obsolete versions.

Obsolete versions are deleted in order, oldest first, and only below a checkpoint. The name of a
deleted version looks like the end of the log. Two things show that names after a version were
deleted: the version's own file is gone, or there is a checkpoint above the apparent end. A version
that is put into a deleted name is *void*: nobody reads it, its writer gets an error, and cleanup
deletes the file later. This package deletes no name within an hour
(`storage.listing_validity`). Another program with a wrong clock may delete names at once; the same
two things show that.

A crash during `append` leaves the version complete or absent.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from spark_log.delta.parse import parse_version
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


@dataclass(slots=True)
class StagedVersion:
    """A version that is written and has no number yet; ends as a context manager.

    Attributes:
        body: its bytes.
        file: holds them. It lives until the version was put and checked: on a local file system its
            deletion is a change of the version's file, which then looks as if it had appeared only
            then.
        is_put: a put has succeeded, also one that turned out to be void.
    """

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
    """Reads and changes one table's log. For one thread at a time."""

    listing_valid_ms: ClassVar[float] = 500.0
    """Maximum time from a listing before a put to the put's answer without another listing. Within
    that time no process writes versions and a checkpoint above them, and deletes those versions,
    however wrong its clock is."""

    def append(
        self,
        actions: Sequence[Mapping[str, object]],
        operation: str,
        details: Mapping[str, object] | None = None,
    ) -> Version:
        """Commit the version after `state`, which has to be the newest.

        Args:
            actions: actions of the version.
            operation: its operation in Delta's history.
            details: its operation parameters in Delta's history.

        Raises:
            LogEndOffsetMismatchError: another version was first; nothing was changed. `refresh`.
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
            actions: as `append` takes them.
            operation: as `append` takes it.
            details: as `append` takes them.

        Raises:
            StorageError: it was not written.
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
        staged = StagedVersion(body, self._store.stage(self.log_directory))
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
            staged: none that was put.

        Raises:
            LogEndOffsetMismatchError: another version was first; nothing was changed. `refresh`,
                and append the same one again, unless it was put.
            UnknownOutcomeError: the version may have been made, or may yet be made.
            StorageError: nothing was changed.
        """
        number, began_ms = self.state.version + 1, self._clock.monotonic_ms()
        assert self._observed_ms is not None
        assert not staged.is_put
        self._put(self._path(number), staged.file, staged.body, number)
        staged.is_put = True
        if self._was_certainly_unused(number):
            self._observed_ms = (
                began_ms  # before this put nobody had a state to put the next one on
            )
        else:
            self._observed_ms = None  # whatever follows, what was read before is not valid
            self._check_not_void(number)
        version = parse_version(self.directory, number, staged.body)
        self.state.apply(version)
        return version

    def _put(self, path: str, staged: StagedFile, body: bytes, number: int) -> None:
        unknown: UnknownOutcomeError | None = None
        for _ in range(_MAX_TRIES):
            try:
                self._store.put_if_absent(path, staged)
            except AlreadyExistsError:
                if unknown is not None and self._has_body(path, body, unknown):
                    return  # ours: the answer to an earlier put was lost
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
                return
        assert unknown is not None
        raise unknown

    def _has_body(self, path: str, body: bytes, unknown: UnknownOutcomeError) -> bool:
        """Return whether a version holds these bytes; if so it is durable on return."""
        try:
            if self._store.open_buffer(path).to_pybytes() != body:
                return False
            self._store.sync(path)
        except StorageError:
            raise unknown from None
        return True

    def is_fresh(self) -> bool:
        """Return whether `state` was the newest a moment ago, by a look or an append.

        Then an append without a `refresh` before it needs no listing after it.
        """
        return (
            self._observed_ms is not None
            and self._clock.monotonic_ms() - self._observed_ms < self.listing_valid_ms / 2
        )

    # --- void versions ---------------------------------------------------------------------------

    def _was_certainly_unused(self, number: int) -> bool:
        """Return whether the name of a version that was just put certainly had never been used."""
        if not self.is_known():
            return False
        assert self._observed_ms is not None
        if not self._store.is_mapped:
            return self._clock.monotonic_ms() - self._observed_ms < self.listing_valid_ms
        try:
            if number > 0:
                self._store.head(self._path(number - 1))
            return self.last_checkpoint() <= number
        except StorageError:
            return False

    def _check_not_void(self, number: int) -> None:
        """Find out by a listing whether a version that was just put is one that others read.

        Raises:
            LogEndOffsetMismatchError: it is void: the name had been used and deleted.
            UnknownOutcomeError: it is too late to find out.
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
