"""Maintenance of the offsets table, in the background of commits, keeps it small and fast to open.

After every `CommitQueue.maintenance_every` versions, the process that committed the last one
compacts small files. If they are due, it also writes a checkpoint, and deletes versions that are
past the table's retention. Every ten minutes one process deletes expired offsets and unneeded data
files. Each step may fail, or be done twice, without harm.

Ages are measured by the storage's time, never by this process's clock. A process whose clock
differs from it by more than ``max.clock.skew.ms`` deletes nothing: one of the two clocks is wrong.

On storage: ``__consumer_offsets/_tidied.json`` holds the storage's time of the last full round
(derived).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

from spark_log.coordinator.group import GroupLog
from spark_log.coordinator.offsets.commit_queue import CommitQueue, CommitRequest
from spark_log.coordinator.offsets.commit_times import CommitTimes, commit_times
from spark_log.coordinator.offsets.compaction import Plan, compact, plan
from spark_log.coordinator.offsets.creation import RETENTION_MINUTES, TABLE_PROPERTIES
from spark_log.coordinator.offsets.expiry import candidate_groups, expired_offsets
from spark_log.coordinator.offsets.rows import TOMBSTONE, CommittedOffsets, Row
from spark_log.coordinator.offsets.store import ChangedGroups, OffsetsStore
from spark_log.delta import (
    DataFile,
    DataFiles,
    DeltaCleanup,
    interval_us,
    point_to_checkpoint,
    write_checkpoint,
)
from spark_log.errors import (
    ClockSkewError,
    IllegalGenerationError,
    LogEndOffsetMismatchError,
    NotFoundError,
    SparkLogError,
)
from spark_log.metadata import MetadataImage
from spark_log.storage import (
    OFFSETS_TABLE,
    check_clock_skew,
    is_listing_valid,
    listing_validity_ms,
    storage_time_us,
)
from spark_log.types import TopicPartition
from spark_log.util import SYSTEM_CLOCK, parse_json, shown

_TIDIED = f"{OFFSETS_TABLE}/_tidied.json"
_REQUESTS_TOGETHER = 500
_TIMEOUT_MS = 60_000
_MAX_TRIES = 20

_LOG_RETENTION = "delta.logRetentionDuration"
_FILE_RETENTION = "delta.deletedFileRetentionDuration"

_log = logging.getLogger(__name__)


class OffsetsMaintenance:
    """Maintains one table. `start` and `run` are safe to use from any thread.

    Attributes:
        tidy_every_us: the time between two expiries of offsets and removals of files (Kafka's
            ``offsets.retention.check.interval.ms``).
        compact_all_every_us: the time between two compactions of all files.
        checkpoint_pause_ms: the minimum time between two checkpoints, also at hundreds of versions
            per second, counted from a checkpoint that this process wrote or saw another one write.
        cleanup_class: the class of the removal of versions and data files.
    """

    tidy_every_us: ClassVar[int] = 600_000_000
    compact_all_every_us: ClassVar[int] = 24 * 3600 * 1_000_000
    checkpoint_pause_ms: ClassVar[float] = 5000.0
    cleanup_class: ClassVar[type[DeltaCleanup]] = DeltaCleanup

    def __init__(
        self, table: OffsetsStore, commits: CommitQueue, image: Callable[[], MetadataImage]
    ) -> None:
        """Return the maintenance of a table; nothing is read yet.

        Args:
            table: the table of this process.
            commits: the commits of this process.
            image: the function that returns the present metadata.
        """
        self._table = table
        self._commits = commits
        self._image = image
        self._is_running = threading.Lock()
        self._is_wanted = threading.Event()
        self._checkpoint_from_ms = 0.0
        self._known_checkpoint: int | None = None
        self._cleanup = self.cleanup_class(table.store, OFFSETS_TABLE, table.clock)
        self._warned: set[str] = set()

    def start(self) -> None:
        """Run the due steps on a separate thread; if they are running, run once more after that.

        The process does not exit before it has finished.
        """
        self._is_wanted.set()
        if self._is_running.acquire(blocking=False):
            name = "spark-log-offsets-maintenance"
            threading.Thread(target=self._run_logged, name=name).start()

    def wait(self) -> None:
        """Return when no thread of `start` is running."""
        with self._is_running:
            pass

    def run(self, *, is_forced: bool = False) -> None:
        """Run the steps that are due.

        Args:
            is_forced: whether to run all steps.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing was deleted.
            StorageError: some steps were not done, which is harmless.
        """
        try:
            now_us = self._storage_time_us(is_exact=is_forced)
        except ClockSkewError:
            self._compact(0)
            raise
        self._warned.discard("skew")
        self._compact(now_us, is_full=is_forced)
        if self._checkpoint(is_forced=is_forced):
            self._delete_versions(now_us)
        tidied_us, compacted_us = self._tidied(now_us)
        if not is_forced and 0 <= now_us - tidied_us < self.tidy_every_us:
            return
        is_full_due = not 0 <= now_us - compacted_us < self.compact_all_every_us
        compacted_us = now_us if is_full_due else compacted_us
        document = {"tidiedUs": now_us, "compactedUs": compacted_us}
        self._table.store.put(_TIDIED, json.dumps(document).encode(), sync=False)
        self._expire(now_us)
        if is_full_due:
            self._compact(now_us, is_full=True)
        self._delete_data_files(now_us)

    def retention_us(self) -> int:
        """Return the table's ``offsets.retention.minutes``, in microseconds."""
        text = self._table.state.configuration.get(RETENTION_MINUTES, "")
        if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
            if self._table.state.version >= 0:
                _log.warning("%s of %s is %r, not a number", RETENTION_MINUTES, OFFSETS_TABLE, text)
            text = TABLE_PROPERTIES[RETENTION_MINUTES]
        return int(text) * 60_000_000

    def _run_logged(self) -> None:
        try:
            while self._is_wanted.is_set():
                self._is_wanted.clear()
                self.run()
        except ClockSkewError as error:
            self._warn_once("skew", f"{OFFSETS_TABLE} is not maintained by this process: {error}")
        except (SparkLogError, OSError) as error:
            _log.warning(
                "maintenance of %s failed, retrying after later commits: %s", OFFSETS_TABLE, error
            )
        finally:
            self._is_running.release()

    # --- steps -----------------------------------------------------------------------------------

    def _storage_time_us(self, *, is_exact: bool) -> int:
        """Return the storage's time: the last commit's, or that of a file written for the purpose.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
        """
        with self._table.lock:
            self._table.refresh()
            now_us = self._table.log.modified_us
        max_skew_ms = self._image().cluster_config().max_clock_skew_ms
        if not is_exact:
            with suppress(ClockSkewError):  # the last commit may be older than the maximum skew
                check_clock_skew(self._table.clock, now_us, max_skew_ms)
                return now_us
        now_us = storage_time_us(self._table.store, OFFSETS_TABLE)
        check_clock_skew(self._table.clock, now_us, max_skew_ms)
        return now_us

    def _commit_times(self, present: Sequence[DataFile], files: DataFiles) -> CommitTimes:
        return commit_times(self._table.store, OFFSETS_TABLE, files, present)

    def _compact(self, now_us: int, *, is_full: bool = False) -> None:
        with self._table.lock:
            self._table.refresh()
            files = tuple(self._table.state.files.values())
            before_us = now_us - self.retention_us()
            time_ms = self._table.log.modified_us // 1000
        planned = Plan(files, True) if is_full and files else plan(files)
        if planned is None:
            return
        began_ms = self._table.clock.monotonic_ms()
        valid_ms = listing_validity_ms(self._table.log.deletion_delay_ms)
        data = self._table.files.keeping()  # small files are read for their times, and then moved
        times = self._commit_times(planned.inputs, data)
        written = compact(data, planned, before_us, times)
        rows = [sum(file.num_rows for file in some) for some in (planned.inputs, written)]
        actions = [
            each.to_remove(time_ms, is_change=rows[0] != rows[1]) for each in planned.inputs
        ] + [each.to_add(time_ms, is_new=rows[0] != rows[1]) for each in written]
        for _ in range(_MAX_TRIES):
            with self._table.lock:
                self._table.refresh()
                present = self._table.state.files
                if any(file.path not in present for file in planned.inputs):
                    break  # another process has compacted them
                if not is_listing_valid(self._table.clock, began_ms, valid_ms):
                    break  # cleanup may have deleted the new files
                try:
                    self._table.log.append(actions, "OPTIMIZE")
                except LogEndOffsetMismatchError:
                    continue
                _log.debug(
                    "%s: %d files with %d rows are compacted into %d files with %d rows",
                    OFFSETS_TABLE,
                    len(planned.inputs),
                    rows[0],
                    len(written),
                    rows[1],
                )
                return
        for file in written:
            self._table.files.delete(file)

    def _checkpoint(self, *, is_forced: bool = False) -> bool:
        """Write a checkpoint if it is due; return whether one was written."""
        with self._table.lock:
            state = self._table.state.copy()
            last = self._table.log.last_checkpoint()
        behind = state.version - last
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if self._known_checkpoint not in (None, last):
            self._checkpoint_from_ms = now_ms + self.checkpoint_pause_ms
        self._known_checkpoint = last
        interval = int(state.configuration.get("delta.checkpointInterval", "100"))
        is_due = behind >= interval and now_ms >= self._checkpoint_from_ms
        if state.version <= 0 or not (is_forced or is_due):
            return False
        self._checkpoint_from_ms = now_ms + self.checkpoint_pause_ms
        log = self._table.log
        write_checkpoint(self._table.store, log.log_directory, state, log.protocol)
        if log.last_checkpoint() < state.version:  # else another process was faster
            point_to_checkpoint(self._table.store, log.log_directory, state)
        _log.debug("%s: checkpoint of version %d", OFFSETS_TABLE, state.version)
        return True

    def _delete_versions(self, now_us: int) -> None:
        kept_us = max(self._interval_us(name) for name in (_LOG_RETENTION, _FILE_RETENTION))
        self._cleanup.delete_versions(now_us - kept_us)

    def _delete_data_files(self, now_us: int) -> None:
        if self._table.state.version >= 0:
            self._cleanup.delete_data_files(now_us - self._interval_us(_FILE_RETENTION))

    def _interval_us(self, name: str) -> int:
        text = self._table.state.configuration.get(name, TABLE_PROPERTIES[name])
        found = interval_us(text)
        if found is None:
            default = TABLE_PROPERTIES[name]
            self._warn_once(name, f"{name} of {OFFSETS_TABLE} is {text!r}; using {default!r}")
            found = interval_us(default)
            assert found is not None
        return found

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("%s", text)

    def _tidied(self, now_us: int) -> tuple[int, int]:
        try:
            found = parse_json(self._table.store.open_buffer(_TIDIED))
            return int(found["tidiedUs"]), int(found["compactedUs"])
        except (NotFoundError, ValueError, KeyError, TypeError):
            return -self.tidy_every_us, now_us

    def _expire(self, now_us: int) -> None:
        with self._table.lock:
            self._table.refresh()
            files = list(self._table.state.files.values())
            before_us = now_us - self.retention_us()
            changed = self._table.watch_changes()
        times = self._commit_times(files, self._table.files)
        groups = sorted(candidate_groups(self._table.files, files, self._image(), before_us, times))
        for at in range(0, len(groups), _REQUESTS_TOGETHER):
            requests = [
                self._expiry(group, before_us, times, changed)
                for group in groups[at : at + _REQUESTS_TOGETHER]
            ]
            self._commits.submit_all(requests)
            for request in requests:  # a group with new members does not expire
                if request.error and not isinstance(request.error, IllegalGenerationError):
                    raise request.error

    def _expiry(
        self, group: str, before_us: int, times: CommitTimes, changed: ChangedGroups
    ) -> CommitRequest:
        """Return the commit that deletes the expired offsets of a group."""
        view = GroupLog.view(self._table.store, group, self._table.clock)

        def decide(positions: CommittedOffsets) -> list[Row]:
            # The commit times of its new commits are not known: it waits for the next round.
            if group in changed:
                return []
            keys = expired_offsets(positions.present(), view, self._image(), before_us, times)
            partitions = [TopicPartition(key.topic, key.partition) for key in keys]
            _log.debug("group %s: committed offsets expire: %s", group, shown(partitions) or "none")
            return [Row(key, TOMBSTONE) for key in keys]

        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + _TIMEOUT_MS
        return CommitRequest(group, view.state.generation, "", decide, deadline_ms)
