"""What keeps the offsets table small and quick to open, done in the background of commits.

Every `MAINTENANCE_EVERY` versions whoever made the last of them compacts small files and, when it
is time, has delta-rs write a checkpoint and delete what is past the table's retention. Every ten
minutes somebody forgets expired positions. All of it may fail, or be done twice, without harm.

On storage: ``__consumer_offsets/_tidied.json`` says when the last two were done (derived).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_log.clock import SYSTEM_CLOCK
from spark_log.coordinator.group_view import view_group
from spark_log.coordinator.offset_commits import OffsetCommits, Request
from spark_log.coordinator.offset_rows import TOMBSTONE, GroupPositions, Row
from spark_log.coordinator.offsets_compaction import Plan, compact, plan
from spark_log.coordinator.offsets_creation import RETENTION_MINUTES, TABLE_PROPERTIES
from spark_log.coordinator.offsets_expiry import candidates, expired
from spark_log.coordinator.offsets_store import DIRECTORY, OffsetsStore
from spark_log.errors import (
    IllegalGenerationError,
    LogEndOffsetMismatchError,
    NotFoundError,
    SparkLogError,
    StorageError,
)
from spark_log.metadata.image import MetadataImage

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TIDY_EVERY_US = 600_000_000
"""Kafka's ``offsets.retention.check.interval.ms``."""

_COMPACT_ALL_EVERY_US = 24 * 3600 * 1_000_000
_TIDIED = f"{DIRECTORY}/_tidied.json"
_REQUESTS_TOGETHER = 500
_TIMEOUT_MS = 60_000
_MAX_TRIES = 20
_CHECKPOINT_PAUSE_MS = 5000
"""From one checkpoint of a process to its next: hundreds of versions a second need no more."""

_log = logging.getLogger(__name__)


class OffsetsMaintenance:
    """Tidies up one table. `start` and `run` are safe to use from any thread."""

    def __init__(
        self, table: OffsetsStore, commits: OffsetCommits, image: Callable[[], MetadataImage]
    ) -> None:
        """Args: table, commits: of this process; image: returns the metadata as it is now."""
        self._table = table
        self._commits = commits
        self._image = image
        self._is_running = threading.Lock()
        self._is_wanted = threading.Event()
        self._checkpoint_from_ms = 0.0

    def start(self) -> None:
        """Run on a thread of its own; where it runs already, once more when it has ended.

        The process waits for it when it ends.
        """
        self._is_wanted.set()
        if self._is_running.acquire(blocking=False):
            name = "spark-log-offsets-maintenance"
            threading.Thread(target=self._run_logged, name=name).start()

    def wait(self) -> None:
        """Return when nothing runs any more that `start` began."""
        with self._is_running:
            pass

    def run(self, *, is_forced: bool = False) -> None:
        """Do what is due.

        Args:
            is_forced: do all there is, as if it were due.

        Raises:
            StorageError: some of it was not done; harmless.
        """
        self._compact(is_full=is_forced)
        self._checkpoint(is_forced=is_forced)
        now_us = self._table.clock.time_us()
        tidied_us, compacted_us = self._tidied()
        if not is_forced and 0 <= now_us - tidied_us < _TIDY_EVERY_US:
            return
        is_full_due = not 0 <= now_us - compacted_us < _COMPACT_ALL_EVERY_US
        compacted_us = now_us if is_full_due else compacted_us
        document = {"tidiedUs": now_us, "compactedUs": compacted_us}
        self._table.store.put(_TIDIED, json.dumps(document).encode())
        self._expire(now_us)
        if is_full_due:
            self._compact(is_full=True)
        self._vacuum()

    def retention_us(self) -> int:
        """Return the table's ``offsets.retention.minutes``, in microseconds."""
        text = self._table.state.configuration.get(RETENTION_MINUTES, "")
        if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
            if self._table.state.version >= 0:
                _log.warning("%s of %s is %r, no number", RETENTION_MINUTES, DIRECTORY, text)
            text = TABLE_PROPERTIES[RETENTION_MINUTES]
        return int(text) * 60_000_000

    def _run_logged(self) -> None:
        try:
            while self._is_wanted.is_set():
                self._is_wanted.clear()
                self.run()
        except (SparkLogError, OSError) as error:
            _log.warning("%s was not tidied up, the next commits will: %s", DIRECTORY, error)
        finally:
            self._is_running.release()

    # --- what is done ----------------------------------------------------------------------------

    def _compact(self, *, is_full: bool = False) -> None:
        with self._table.lock:
            self._table.refresh()
            files = tuple(self._table.state.files.values())
            before_us = self._table.clock.time_us() - self.retention_us()
        planned = Plan(files, True) if is_full and files else plan(files)
        if planned is None:
            return
        written = compact(self._table.files, planned, before_us)
        rows = [sum(file.num_rows for file in some) for some in (planned.inputs, written)]
        time_ms = self._table.clock.time_us() // 1000
        actions = [
            each.to_remove(time_ms, is_change=rows[0] != rows[1]) for each in planned.inputs
        ] + [each.to_add(time_ms, is_new=rows[0] != rows[1]) for each in written]
        for _ in range(_MAX_TRIES):
            with self._table.lock:
                self._table.refresh()
                present = self._table.state.files
                if any(file.path not in present for file in planned.inputs):
                    break  # another process has compacted them
                try:
                    self._table.log.append(actions, "OPTIMIZE")
                except LogEndOffsetMismatchError:
                    continue
                return
        for file in written:
            self._table.files.delete(file)

    def _checkpoint(self, *, is_forced: bool = False) -> None:
        with self._table.lock:
            state = self._table.state
            interval = state.configuration.get("delta.checkpointInterval", "100")
            behind = state.version - self._table.log.last_checkpoint()
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        is_due = behind >= int(interval) and now_ms >= self._checkpoint_from_ms
        if state.version > 0 and (is_forced or is_due):
            self._checkpoint_from_ms = now_ms + _CHECKPOINT_PAUSE_MS
            with _delta_errors():
                table = self._delta_table()
                table.create_checkpoint()
                table.cleanup_metadata()

    def _vacuum(self) -> None:
        if self._table.state.version >= 0:
            with _delta_errors():
                self._delta_table().vacuum(dry_run=False)

    def _delta_table(self) -> DeltaTable:
        from deltalake import DeltaTable  # only here: it takes a while to import

        # A local listing may leave out what comes meanwhile, and show what comes after it: delta-rs
        # calls that a gap. Up to a version that was read before there is none.
        return DeltaTable(
            self._table.url,
            version=self._table.state.version,
            storage_options=self._table.store.delta_options(),
        )

    def _tidied(self) -> tuple[int, int]:
        try:
            found = json.loads(self._table.store.open_buffer(_TIDIED).to_pybytes())
            return int(found["tidiedUs"]), int(found["compactedUs"])
        except (NotFoundError, ValueError, KeyError, TypeError):
            return -1, self._table.clock.time_us()

    def _expire(self, now_us: int) -> None:
        with self._table.lock:
            self._table.refresh()
            files = list(self._table.state.files.values())
            before_us = now_us - self.retention_us()
        groups = sorted(candidates(self._table.files, files, self._image(), before_us))
        for at in range(0, len(groups), _REQUESTS_TOGETHER):
            requests = [
                self._expiry(group, before_us) for group in groups[at : at + _REQUESTS_TOGETHER]
            ]
            self._commits.submit_all(requests)
            for request in requests:  # who has members again is not expired
                if request.error and not isinstance(request.error, IllegalGenerationError):
                    raise request.error

    def _expiry(self, group: str, before_us: int) -> Request:
        view = view_group(self._table.store, group, self._table.clock)

        def decide(positions: GroupPositions) -> list[Row]:
            found = expired(positions.positions(), view, self._image(), before_us)
            return [Row(key, TOMBSTONE) for key in found]

        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + _TIMEOUT_MS
        return Request(group, view.group.generation, "", decide, deadline_ms, needs_positions=True)


class _delta_errors:  # noqa: N801 - a context manager
    """What delta-rs raises, as errors of this package, without addresses."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            text = re.sub(r"\w+://\S+", "(URL)", str(error).partition("\n")[0])
            raise StorageError(f"{DIRECTORY}: {text:.300}", path=DIRECTORY) from None
