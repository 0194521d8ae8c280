"""Reads a Delta log, and follows it version by version.

A missing file after the newest version is the end of the log only if no names after this version
were deleted: `delta_log` describes how a reader finds that out.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import ClassVar

import pyarrow as pa

from spark_log.delta.files import damaged_table_error
from spark_log.delta.parse import parse_checkpoint, parse_version
from spark_log.delta.state import LogListing, TableState, Version
from spark_log.errors import NotFoundError
from spark_log.storage import Store, is_listing_valid, listing_validity_ms
from spark_log.util import IN_PROCESS, Clock, parse_json

_MAX_CONCURRENT_REQUESTS = 16

_VERSION_NAME = re.compile(r"(\d{20})\.json")
_CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint\.parquet")

_log = logging.getLogger(__name__)


class DeltaLogReader:
    """Reads one table's log. Not thread-safe.

    Attributes:
        directory: the table's directory, relative to the store's root.
        log_directory: the directory of the table's log, relative to the store's root.
        state: the state at the last `refresh`; its version is -1 without a table.
        modified_us: the newest last-modified time of a version that the storage has returned; 0
            without one. It is a lower bound of the storage's present time that costs no request.
    """

    deletion_delay_ms: ClassVar[float] = 3_600_000.0
    """Minimum age at which an obsolete version, or a data file without a version, is deleted."""

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Return the log of a table; nothing is read yet.

        Args:
            store: the store of the table.
            directory: the table's directory, relative to the store's root.
            clock: dates versions for users, and measures the validity of listings.
        """
        self.directory = directory
        self.log_directory = f"{directory}/_delta_log"
        self.state = TableState()
        self.modified_us = 0
        self._store = store
        self._clock = clock
        self._observed_ms: float | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} directory={self.directory!r} version={self.state.version}>"

    def refresh(self) -> list[Version] | None:
        """Update `state` to the newest version.

        Without a new version this costs one lookup of a file name on a local store, and one short
        listing on a remote one.

        Returns:
            The new versions, in order; None if the whole state was read again, so that the single
            versions are not known.

        Raises:
            StorageError: the log cannot be read, or is damaged.
        """
        observed_ms = self._clock.monotonic_ms()
        if self.state.version >= 0 and self.has_valid_listing():
            self._observed_ms = None  # after a failure below, the whole state is read again
            versions = self._read_new_versions()
            if versions is not None:
                self._observed_ms = observed_ms
                return versions
            observed_ms = self._clock.monotonic_ms()
        self._observed_ms = None
        before, found = self.state.version, self._load_state()
        if found.version < before:
            raise damaged_table_error(
                self.directory,
                f"its last version is {found.version}, and this process has read {before}: "
                f"files were removed, and with them commits",
            )
        self.state = found
        self._observed_ms = observed_ms
        _log.debug("%s: read the whole state of version %d", self.directory, found.version)
        return None if before >= 0 or self.state.version >= 0 else []

    def list_log(self, first: int = 0) -> LogListing:
        """List the versions and checkpoints of the log, from a version on.

        Raises:
            StorageError: the storage does not answer.
        """
        listed = LogListing()
        start_after = f"{first:020}" if first > 0 else None
        for file in self._store.list(self.log_directory, start_after):
            if found := _VERSION_NAME.fullmatch(file.name):
                listed.versions[int(found[1])] = file.modified_us
                self._update_modified_us(file.modified_us)
            elif found := _CHECKPOINT_NAME.fullmatch(file.name):
                listed.checkpoints[int(found[1])] = file.modified_us
        return listed

    def checkpoint_before(self, listed: LogListing, last: int) -> int | None:
        """Return the newest readable checkpoint at or below a version; None without one.

        Raises:
            StorageError: the storage does not answer.
        """
        found = self._newest_checkpoint(listed, last)
        return None if found is None else found.version

    def state_at(self, version: int, listed: LogListing) -> TableState | None:
        """Return the state of the table after an older version; None if the version was deleted.

        Raises:
            StorageError: the log cannot be read, or is damaged.
        """
        before = self.state
        try:
            self.state = self._newest_checkpoint(listed, version) or TableState()
            self._read_up_to(version)
            return self.state if self.state.version == version else None
        finally:
            self.state = before

    def last_checkpoint(self) -> int:
        """Return the version in ``_last_checkpoint``; -1 without one."""
        try:
            path = f"{self.log_directory}/_last_checkpoint"
            found = parse_json(self._store.open_buffer(path))
            return int(found["version"]) if not found.get("parts") else -1
        except NotFoundError:
            return -1
        except (ValueError, KeyError, TypeError):
            return -1  # derived data: all versions are read, or a listing shows a checkpoint

    # --- new versions ----------------------------------------------------------------------------

    def has_valid_listing(self) -> bool:
        """Return whether the last listing is still valid.

        No name that it lacked can have been used and deleted since.
        """
        return self._observed_ms is not None and is_listing_valid(
            self._clock, self._observed_ms, listing_validity_ms(self.deletion_delay_ms)
        )

    def _read_new_versions(self) -> list[Version] | None:
        """Read the versions after `state`; None if names after it were deleted."""
        known = self.state.version
        if self._store.is_local:
            versions = self._read_up_to(None)
            return versions if self._nothing_deleted_since(known) else None
        listed = self.list_log(known)
        if known not in listed.versions:
            return None
        versions = self._read_up_to(listed.newest)
        # A listing may omit versions that appear during it; reading them one by one finds them.
        return versions if self.state.version >= listed.newest else None

    def _read_up_to(self, last: int | None) -> list[Version]:
        """Read the versions after `state`, in order, up to ``last`` or to the first missing one."""
        versions = []
        for body in self._bodies(last):
            if body is None:
                break
            version = parse_version(self.directory, self.state.version + 1, body)
            self.state.apply(version)
            versions.append(version)
        return versions

    def _bodies(self, last: int | None) -> Iterator[bytes | None]:
        """Yield the content of the files of the versions after `state`; None for a missing file.

        On a remote store several files are read at the same time, if ``last`` is given.
        """
        first = self.state.version + 1
        if last is None or last <= first or self._store.is_local:
            numbers: Iterable[int] = count(first) if last is None else range(first, last + 1)
            yield from map(self._body, numbers)
            return
        with self._store.executor_class(_MAX_CONCURRENT_REQUESTS, "spark-log-versions") as pool:
            for begin in range(first, last + 1, _MAX_CONCURRENT_REQUESTS):
                end = min(begin + _MAX_CONCURRENT_REQUESTS, last + 1)
                yield from pool.map(self._body, range(begin, end))

    def _body(self, number: int) -> bytes | None:
        try:
            return bytes(self._store.open_buffer(self._path(number)).to_pybytes())
        except NotFoundError:
            return None

    def _nothing_deleted_since(self, known: int) -> bool:
        """Return whether no name above a version was deleted; only for local stores.

        A process that deletes names first writes a checkpoint above them and sets
        ``_last_checkpoint``, and deletes the oldest name first.
        """
        if self.last_checkpoint() > self.state.version:
            return False
        try:
            if known >= 0:
                self._update_modified_us(self._store.head(self._path(known)).modified_us)
        except NotFoundError:
            return False
        return True

    # --- the whole state -------------------------------------------------------------------------

    def _load_state(self) -> TableState:
        """Return the newest state: the newest checkpoint and the versions after it."""
        before = self.state
        try:
            return self._load_state_from(self.last_checkpoint())
        finally:
            self.state = before

    def _load_state_from(self, first: int) -> TableState:
        gap: tuple[int, int] | None = None
        while True:
            # List first: a version below the newest checkpoint may be void.
            listed = self.list_log(max(first, 0))
            checkpoint = self._newest_checkpoint(listed)
            if checkpoint is None and first > 0:
                first = 0  # the checkpoint in `_last_checkpoint` is missing or cannot be read
                continue
            self.state = checkpoint or TableState()
            # A listing may omit versions that appear during it. On a local store, reading them one
            # by one finds them.
            self._read_up_to(None if self._store.is_local else listed.newest)
            end = self.state.version
            if end >= listed.newest:
                if end >= 0 and self.state.metadata is None:
                    raise damaged_table_error(self.directory, "no version has its metadata")
                return self.state
            # A version that was deleted meanwhile is not a gap: the next listing shows newer ones.
            if gap == (end, listed.newest):
                raise damaged_table_error(
                    self.directory,
                    f"version {end + 1} is missing, but version {listed.newest} exists",
                )
            gap = (end, listed.newest)

    def _newest_checkpoint(self, listed: LogListing, last: float = math.inf) -> TableState | None:
        """Return the state in the newest readable checkpoint at or below a version."""
        for version in sorted(listed.checkpoints, reverse=True):
            found = self._read_checkpoint(version) if version <= last else None
            if found is not None:
                return found
        return None

    def _read_checkpoint(self, version: int) -> TableState | None:
        """Return the state in a checkpoint; None if it cannot be read, since it is derived data."""
        path = f"{self.log_directory}/{version:020}.checkpoint.parquet"
        try:
            return parse_checkpoint(self.directory, version, self._store.open_buffer(path))
        except NotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            IN_PROCESS.add("checkpoint", self.directory, error)
            return None

    def _path(self, number: int) -> str:
        return f"{self.log_directory}/{number:020}.json"

    def _update_modified_us(self, modified_us: int) -> None:
        self.modified_us = max(self.modified_us, modified_us)
