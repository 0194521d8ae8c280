"""The offsets table of one root in one process: its log, and a cache of committed offsets.

The cache holds a bounded number of offsets. It is updated from the files of new versions that
change a cached group, so that reading an unchanged group again costs one lookup of a file name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Set
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.coordinator.offsets.creation import check_not_lost, create_table, mark, mark_new
from spark_log.coordinator.offsets.rows import EMPTY, OFFSETS_SCHEMA, CommittedOffsets, StampedRow
from spark_log.delta import DataFile, DataFiles, DeltaLog, SetTransaction, TableState, Version
from spark_log.errors import StorageError
from spark_log.record import text_scalar
from spark_log.storage import OFFSETS_TABLE, Store, map_requests
from spark_log.threads import call_beside
from spark_log.util import IN_PROCESS, Clock

APP_PREFIX = "group:"
_MAX_CACHED_OFFSETS = 50_000


class ChangedGroups:
    """The groups that new versions have changed since this object was created.

    Attributes:
        groups: the ids of the groups.
        is_all: whether any group may have changed, because the changed groups are not known.
    """

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.is_all = False

    def __contains__(self, group: str) -> bool:
        return self.is_all or group in self.groups


class OffsetsStore:
    """The table in one process. Callers of its methods have to hold `lock`.

    Attributes:
        store: the store of the root.
        clock: the clock that gives commits their timestamps.
        url: the URL of the table for other Delta readers.
        log: the table's log.
        files: the table's data files.
        lock: the lock, held by the thread that reads the log or commits to it.
        maintain: the function that is called after some commits, without the lock.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        """Return the table of a root; nothing is read yet.

        Args:
            store: the store of the root.
            clock: the clock that gives commits their timestamps.

        Raises:
            UnsupportedStoreError: Delta tables are not possible on this storage (``memory://``).
        """
        self.store = store
        self.clock = clock
        self.url = store.directory_url(OFFSETS_TABLE)
        self.log = DeltaLog(store, OFFSETS_TABLE, clock)
        self.files = DataFiles(store, OFFSETS_TABLE, OFFSETS_SCHEMA)
        self.lock = threading.RLock()
        self.maintain: Callable[[], None] | None = None
        self._cache: OrderedDict[str, CommittedOffsets] = OrderedDict()
        self._cached_offsets = 0
        self._is_marked = False
        self._absent_ms: float | None = None
        self._watchers: WeakSet[ChangedGroups] = WeakSet()

    @property
    def state(self) -> TableState:
        """The table after the newest version that was read."""
        return self.log.state

    def refresh(self, *, create: bool = False) -> None:
        """Read new versions.

        Args:
            create: whether to create the table if it does not exist.

        Raises:
            StorageError: the table cannot be read, is damaged, or was lost.
        """
        is_new = create and self._was_absent()
        if not is_new:
            self._read_versions()
            is_new = self.state.version < 0
        if not create:
            return
        if is_new:
            create_table(self.log, self.clock)
            self._forget()  # others may have created it meanwhile, and committed
        if not self._is_marked:
            if self.store.is_local:
                self._mark(is_new=is_new)
            else:  # a crash leaves the marker to the next process in any case
                call_beside(lambda: self._mark_or_count(is_new=is_new))

    def _read_versions(self) -> None:
        began_ms, self._absent_ms = self.clock.monotonic_ms(), None
        versions = self.log.refresh()
        if versions is None:
            self._forget()
        try:
            for version in versions or ():
                self._apply(version)
        except BaseException:
            self._forget()  # the cache lacks some of the new rows, which are not read again
            raise
        if self.state.version < 0:
            check_not_lost(self.store, OFFSETS_TABLE)
            self._absent_ms = began_ms

    def _was_absent(self) -> bool:
        """Return whether the table was missing a moment ago: it is then created without a check."""
        absent_ms, self._absent_ms = self._absent_ms, None
        if absent_ms is None or self.state.version >= 0 or not self.log.has_valid_listing():
            return False
        return self.clock.monotonic_ms() - absent_ms < self.log.listing_valid_ms

    def _mark(self, *, is_new: bool) -> None:
        if is_new:
            mark_new(self.store)
        else:
            mark(self.store)
        self._is_marked = True

    def _mark_or_count(self, *, is_new: bool) -> None:
        """Create the marker in the background; after a failure the next refresh retries."""
        with IN_PROCESS.suppress("marker of the offsets table", OFFSETS_TABLE, StorageError):
            self._mark(is_new=is_new)

    def is_fresh(self) -> bool:
        """Return whether the state is so recent that a commit needs no `refresh`."""
        return self._is_marked and self.log.is_fresh()

    def watch_changes(self) -> ChangedGroups:
        """Return an object that collects the groups that new versions change, while referenced.

        It may contain groups that did not change.
        """
        changed = ChangedGroups()
        self._watchers.add(changed)
        return changed

    def transaction(self, group: str) -> SetTransaction:
        """Return the group's fence, with the time of its last commit."""
        app_id = f"{APP_PREFIX}{group}"
        return self.state.transaction(app_id) or SetTransaction(app_id, -1)

    def transactions(self) -> dict[str, SetTransaction]:
        """Return the fences of all groups that ever committed, by group id."""
        found = self.state.transactions()
        return {
            app_id.removeprefix(APP_PREFIX): each
            for app_id, each in found.items()
            if app_id.startswith(APP_PREFIX)
        }

    def committed_offsets(self, group: str) -> CommittedOffsets:
        """Return a group's offsets in `state`; the caller must not change them.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        found = self._cache.pop(group, None)
        if found is None:
            found = CommittedOffsets()
            found.apply(self.rows_of(group))
            self._cached_offsets += len(found.latest)
        self._keep(group, found)
        return found

    def all_committed_offsets(self) -> dict[str, CommittedOffsets]:
        """Return the offsets of all groups in `state`; the caller must not change them.

        Groups that are not cached are read together: each file once.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        groups = self.transactions().keys()
        found = {group: self._cache[group] for group in groups & self._cache.keys()}
        missing = {group: CommittedOffsets() for group in groups - found.keys()}
        for file in self.state.files.values():
            if any(map(file.may_hold, missing)):
                self._read_into(missing, file)
        for group, positions in missing.items():
            self._cached_offsets += len(positions.latest)
            self._keep(group, positions)
        return found | missing

    def rows_of(self, group: str) -> pa.Table:
        """Return all rows of a group in `state`: every commit that was not compacted away.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        files = [file for file in self.state.files.values() if file.may_hold(group)]

        def read(file: DataFile) -> pa.Table:
            return self.files.rows_of(file, group)

        return pa.concat_tables([EMPTY, *map_requests(self.store, read, files)])

    def on_appended(self, groups: Set[str], rows: Iterable[StampedRow]) -> None:
        """Update the cache from a version of this process.

        Args:
            groups: the ids of the groups that the version changes.
            rows: the rows of the version.
        """
        for changed in self._watchers:
            changed.groups.update(groups)
        for row in rows:
            cached = self._cache.get(row.group)
            if cached is not None:
                before = len(cached.latest)
                cached.add(row)
                self._cached_offsets += len(cached.latest) - before

    def _read_into(self, found: Mapping[str, CommittedOffsets], file: DataFile) -> None:
        for part in self.files.parts(file, min(found), max(found)):
            groups = part.column("group")
            for group in found.keys() & set(pc.unique(groups).to_pylist()):
                found[group].apply(part.filter(pc.equal(groups, text_scalar(group))))

    def _keep(self, group: str, found: CommittedOffsets) -> None:
        """Put a group into the cache; its offsets are already in the cache's count."""
        self._cache[group] = found
        while self._cached_offsets > _MAX_CACHED_OFFSETS and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._cached_offsets -= len(dropped.latest)

    def _apply(self, version: Version) -> None:
        if version.is_rewrite:
            return
        changed_groups = {each.app_id.removeprefix(APP_PREFIX) for each in version.transactions}
        for changed in self._watchers:
            changed.groups.update(changed_groups)
            changed.is_all |= not changed_groups
        cached = sorted(changed_groups & self._cache.keys()) if changed_groups else [*self._cache]
        for group in cached:
            for file in version.added:
                if file.may_hold(group):
                    self._add_to_cache(group, self.files.rows_of(file, group))

    def _add_to_cache(self, group: str, rows: pa.Table) -> None:
        cached = self._cache.get(group)
        if cached is not None:
            before = len(cached.latest)
            cached.apply(rows.filter(pc.equal(rows.column("group"), text_scalar(group))))
            self._cached_offsets += len(cached.latest) - before

    def _forget(self) -> None:
        for changed in self._watchers:
            changed.is_all = True
        self._cache.clear()
        self._cached_offsets = 0
