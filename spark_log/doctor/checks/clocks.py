"""Checks that the clocks of this machine and of the brokers' storages agree.

A process whose clock differs from the storage's by more than ``max.clock.skew.ms`` deletes and
expires nothing. Without this check users notice that only when the storage is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import ClassVar, Final

from spark_log.doctor.check import Check
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    ROOT,
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
)
from spark_log.errors import StorageError
from spark_log.metadata import METADATA_DIRECTORY, ROOT_BROKER_ID
from spark_log.storage import Store, newest_modified_us, storage_time_us

CLOCK_WRONG = Problem(
    "clock-apart",
    Severity.ERROR,
    "The clocks of this machine and of a storage differ by more than max.clock.skew.ms: processes "
    "of this machine delete and expire nothing.",
)
CLOCKS_APART = Problem(
    "brokers-clocks-apart",
    Severity.ERROR,
    "The clocks of two brokers' storages differ by more than max.clock.skew.ms: no machine can "
    "clean both.",
)

_US: Final = 1000


class ClocksCheck(Check):
    """Compares the dates of files with this machine's clock; with ``--probe-storage``, exactly.

    Without a probe the check only notices a clock of this machine that is behind the storage's,
    because the newest file may be old.
    """

    name: ClassVar[str] = "clocks"
    title: ClassVar[str] = "clocks of this machine and of the storages"
    problems: ClassVar[tuple[Problem, ...]] = (CLOCK_WRONG, CLOCKS_APART)

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about clocks that differ too much."""
        max_us = examination.image.cluster_config().max_clock_skew_ms * _US
        ahead: dict[int, float] = {}
        for broker_id, store in examination.broker_stores():
            found = _ahead_us(examination, broker_id, store)
            if found is not None:
                ahead[broker_id] = found
            examination.on_progress()
        for broker_id, ahead_us in ahead.items():
            if abs(ahead_us) > max_us:
                yield _apart(examination, broker_id, ahead_us)
        for (one, one_us), (other, other_us) in combinations(ahead.items(), 2):
            if examination.now_is_of_storage and abs(one_us - other_us) > max_us:
                yield CLOCKS_APART.finding(
                    Subject.of_broker(other),
                    f"the clock of its storage is {duration_text(one_us - other_us)} "
                    f"{'behind' if one_us > other_us else 'ahead of'} that of broker {one}",
                    remedy="Set the clocks of the storages' machines (NTP)",
                    evidence="dates of files that were just written on both",
                )


def _ahead_us(examination: Examination, broker_id: int, store: Store) -> float | None:
    """Return the microseconds by which a storage's clock is ahead of this machine's.

    The result is 0 if no file is dated in this machine's future; None if it is unknown.
    """
    clock = examination.cluster.clock
    if examination.probes_storage:
        try:
            before_us = clock.time_us()  # wall clock: compared with the storage's, to report
            storage_us = storage_time_us(store, examination.scratch)
            after_us = clock.time_us()
        except StorageError as error:
            if error.retriable:
                raise
            return None  # no right to write: the check of the storage reports it
        finally:
            _remove(store, examination)
        if broker_id == ROOT_BROKER_ID:
            examination.set_storage_time(storage_us)
        # The file was dated between the two readings; some storages date in whole seconds.
        slack_us = store.time_resolution_us
        if storage_us < before_us - slack_us:
            return float(storage_us - before_us)
        return float(max(0, storage_us - after_us))
    if broker_id != ROOT_BROKER_ID:
        return None
    newest_us = newest_modified_us(store.list(METADATA_DIRECTORY))
    return float(max(0, newest_us - clock.time_us()))  # wall clock: compared, to report


def _remove(store: Store, examination: Examination) -> None:
    with examination.cluster.suppressed.suppress("scratch folder", store.url, StorageError):
        store.delete_directory(examination.scratch)


def _apart(examination: Examination, broker_id: int, ahead_us: float) -> Finding:
    at_least = "" if examination.now_is_of_storage else "at least "
    where = "ahead of" if ahead_us < 0 else "behind"
    subject = ROOT if broker_id == ROOT_BROKER_ID else Subject.of_broker(broker_id)
    return CLOCK_WRONG.finding(
        subject,
        f"the clock of this machine is {at_least}{duration_text(ahead_us)} {where} that of the "
        f"storage {examination.store_url(broker_id)}: processes of this machine delete and expire "
        f"nothing",
        remedy="Set the clock of this machine (NTP), then check that cleaning works",
        command=shell_command("clean", "--all-topics", "--dry-run"),
        evidence="the date of a file that was just written"
        if examination.now_is_of_storage
        else "the newest file of the metadata log",
    )
