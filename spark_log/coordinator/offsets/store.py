"""The offsets table of one root as one process holds it: its log, and positions read before.

What is read once is kept, for a bounded number of positions, and brought up to date from the files
of newer versions that a kept group is in. So to look again costs one look for a file's name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.clock import Clock
from spark_log.coordinator.offsets.creation import check_not_lost, create_table, mark
from spark_log.coordinator.offsets.rows import EMPTY, OFFSETS_SCHEMA, GroupPositions
from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.files import DataFile, DataFiles
from spark_log.delta.state import TableState, Transaction, Version
from spark_log.record.arrays import text_scalar
from spark_log.storage import Store

DIRECTORY = "__consumer_offsets"

APP_PREFIX = "group:"
_MAX_KEPT_POSITIONS = 50_000
_REQUESTS_AT_ONCE = 16


class ChangedGroups:
    """Groups that versions changed since somebody began to watch.

    Attributes:
        groups: their ids.
        is_all: nobody can tell which: it may be all of them.
    """

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.is_all = False

    def __contains__(self, group: str) -> bool:
        return self.is_all or group in self.groups


class OffsetsStore:
    """One process's hold on the table. What is not said to be otherwise needs `lock` held.

    Attributes:
        lock: one thread at a time reads the log, or adds to it.
        maintain: called now and then after a commit, with the lock free.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        """Touches nothing. Args: store: of the cluster root; clock: dates commits.

        Raises:
            UnsupportedStoreError: the root lies where Delta cannot (``memory://``).
        """
        self.store = store
        self.clock = clock
        self.url = store.directory_url(DIRECTORY)
        self.log = DeltaLog(store, DIRECTORY, clock)
        self.files = DataFiles(store, DIRECTORY, OFFSETS_SCHEMA)
        self.lock = threading.RLock()
        self.maintain: Callable[[], None] | None = None
        self._kept: OrderedDict[str, GroupPositions] = OrderedDict()
        self._kept_positions = 0
        self._is_marked = False
        self._watchers: WeakSet[ChangedGroups] = WeakSet()

    @property
    def state(self) -> TableState:
        """The table after the newest version that was seen."""
        return self.log.state

    def refresh(self, *, create: bool = False) -> None:
        """See what is new.

        Args:
            create: make the table, if there is none.

        Raises:
            StorageError: the table cannot be read, is damaged, or is gone.
        """
        versions = self.log.refresh()
        if versions is None:
            self._forget()
        try:
            for version in versions or ():
                self._apply(version)
        except BaseException:
            self._forget()  # what is kept lacks a part of what is new, and nobody tells it again
            raise
        if self.state.version < 0:
            check_not_lost(self.store, DIRECTORY)
            if not create:
                return
            create_table(self.log, self.clock)
            self._forget()  # others may have made it, and committed, since it was not there
        if create and not self._is_marked:
            mark(self.store)
            self._is_marked = True

    def watch_changes(self) -> ChangedGroups:
        """Return what from now on knows the groups that versions change, for as long as it lives.

        It may know some that do not change.
        """
        changed = ChangedGroups()
        self._watchers.add(changed)
        return changed

    def transaction(self, group: str) -> Transaction:
        """Return the group's fence, and when it committed last."""
        app_id = f"{APP_PREFIX}{group}"
        return self.state.transaction(app_id) or Transaction(app_id, -1)

    def transactions(self) -> dict[str, Transaction]:
        """Return those of all groups that ever were."""
        found = self.state.transactions()
        return {
            app_id.removeprefix(APP_PREFIX): each
            for app_id, each in found.items()
            if app_id.startswith(APP_PREFIX)
        }

    def positions(self, group: str) -> GroupPositions:
        """Return a group's positions as of `state`; not to be changed.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        found = self._kept.pop(group, None)
        if found is None:
            found = GroupPositions()
            found.apply(self.rows_of(group))
            self._kept_positions += len(found.latest)
        self._kept[group] = found
        while self._kept_positions > _MAX_KEPT_POSITIONS and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._kept_positions -= len(dropped.latest)
        return found

    def rows_of(self, group: str) -> pa.Table:
        """Return all rows of a group as of `state`: every commit that is kept.

        Raises:
            StorageError: see `positions`.
        """
        files = [file for file in self.state.files.values() if file.may_hold(group)]

        def read(file: DataFile) -> pa.Table:
            return self.files.rows_of(file, group)

        if self.store.is_mapped or len(files) < 2:
            return pa.concat_tables([EMPTY, *map(read, files)])
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "spark-log-offsets") as pool:
            return pa.concat_tables(pool.map(read, files))

    def on_appended(self, rows: Mapping[str, pa.Table]) -> None:
        """Take in a version that this process made. Args: rows: of it, by group, and of others."""
        for changed in self._watchers:
            changed.groups.update(rows)
        for group, found in rows.items():
            self._keep(group, found)

    def _apply(self, version: Version) -> None:
        if version.is_rewrite:
            return
        changed_groups = {each.app_id.removeprefix(APP_PREFIX) for each in version.transactions}
        for changed in self._watchers:
            changed.groups.update(changed_groups)
            changed.is_all |= not changed_groups
        for group in [each for each in self._kept if each in changed_groups or not changed_groups]:
            for file in version.added:
                if file.may_hold(group):
                    self._keep(group, self.files.rows_of(file, group))

    def _keep(self, group: str, rows: pa.Table) -> None:
        kept = self._kept.get(group)
        if kept is not None:
            before = len(kept.latest)
            kept.apply(rows.filter(pc.equal(rows.column("group"), text_scalar(group))))
            self._kept_positions += len(kept.latest) - before

    def _forget(self) -> None:
        for changed in self._watchers:
            changed.is_all = True
        self._kept.clear()
        self._kept_positions = 0
