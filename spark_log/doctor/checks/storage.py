"""Checks that the storage of each broker has the properties that the log relies on.

The check writes a few small files into the scratch folder, and removes it. Without the right to
write, a client skips the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from spark_log.doctor.check import Check, NotCheckedError
from spark_log.doctor.examination import THREAD_NAME, Examination
from spark_log.doctor.finding import Finding, Problem, Severity, Subject
from spark_log.errors import (
    AlreadyExistsError,
    StorageError,
    StorageFullError,
    UnsupportedStoreError,
)
from spark_log.storage import Store
from spark_log.threads import DaemonPool

IGNORES_CONDITION = Problem(
    "put-if-absent-ignored",
    Severity.ERROR,
    "A put-if-absent replaces a file that exists: of two writers, one loses its records.",
)
RACES = Problem(
    "put-if-absent-races",
    Severity.ERROR,
    "Several concurrent writers create the same file: all but one lose their records.",
)
INCOMPLETE_LISTING = Problem(
    "listing-incomplete",
    Severity.ERROR,
    "A listing lacks a file that exists, or shows a file that does not exist: readers end too "
    "early.",
)
WRONG_RANGE = Problem(
    "range-wrong", Severity.ERROR, "A read of a part of a file returns wrong bytes."
)
STALE_READ = Problem(
    "read-stale", Severity.ERROR, "A read of a replaced file returns its old content."
)
STORAGE_FULL = Problem("storage-full", Severity.ERROR, "No space is left to write to.")
SCRATCH_LEFT = Problem(
    "scratch-left", Severity.WARNING, "The doctor's scratch folder could not be removed."
)

_RACES: Final = 3
_CONTENDERS: Final = 8
_PATIENCE_MS: Final = 30_000
"""Time limit of a put. A put without an answer makes the check fail."""

_NAMES: Final = ("a", "b", "c-1", "c-10", "c-2")
"""File names in byte order, the order of a listing."""
_CONTENT: Final = bytes(range(256)) * 40


class StorageCheck(Check):
    """Writes a few files into a scratch folder of each broker, and reads them."""

    name: ClassVar[str] = "storage"
    title: ClassVar[str] = "whether the storage holds its promises (--probe-storage)"
    problems: ClassVar[tuple[Problem, ...]] = (
        IGNORES_CONDITION,
        RACES,
        INCOMPLETE_LISTING,
        WRONG_RANGE,
        STALE_READ,
        STORAGE_FULL,
        SCRATCH_LEFT,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about properties that a storage lacks."""
        if not examination.probes_storage:
            raise NotCheckedError("it writes a few files, so it needs --probe-storage")
        without_right = []
        for broker_id, store in examination.broker_stores():
            try:
                yield from _probe(broker_id, store, examination.scratch)
            except _NoRightError as error:
                without_right.append(str(error))
            examination.on_progress()
        if without_right:
            raise NotCheckedError(f"this client has no right to write: {without_right[0]}")


class _NoRightError(Exception):
    """The storage has refused the first file."""


def _probe(broker_id: int, store: Store, scratch: str) -> Iterator[Finding]:
    subject = Subject.of_broker(broker_id)

    def failed(problem: Problem, message: str, evidence: str) -> Finding:
        return problem.finding(
            subject,
            f"{message}, on {store.url}",
            remedy="Stop writing to this root, and move it to a storage that holds its promise "
            "(docs/storage.md)",
            evidence=evidence,
        )

    try:
        store.put_if_absent(f"{scratch}/first", b"first")
    except StorageFullError as error:
        yield STORAGE_FULL.finding(
            subject, str(error), remedy="Free space, or enlarge the storage", evidence="a put"
        )
        return
    except UnsupportedStoreError as error:
        yield failed(IGNORES_CONDITION, str(error), "a put-if-absent")
        return
    except StorageError as error:
        if error.retriable:
            raise
        raise _NoRightError(error.message) from error
    try:
        for step in (_ignored_condition, _races, _listing, _ranges, _overwrite):
            found = step(store, scratch)
            if found is not None:
                yield failed(*found)
    finally:
        left = _remove(store, scratch)
    if left is not None:
        yield SCRATCH_LEFT.finding(
            subject,
            f"the scratch folder {scratch} could not be removed: {left}",
            remedy="Remove it by hand",
            evidence="its removal",
        )


_Fault = tuple[Problem, str, str]


def _ignored_condition(store: Store, scratch: str) -> _Fault | None:
    try:
        store.put_if_absent(f"{scratch}/first", b"second")
    except AlreadyExistsError:
        pass
    else:
        return IGNORES_CONDITION, "put-if-absent replaced a file", "two puts of one name"
    content = store.open_buffer(f"{scratch}/first").to_pybytes()
    if content != b"first":
        return IGNORES_CONDITION, "a refused put-if-absent changed the file", "its content"
    return None


def _races(store: Store, scratch: str) -> _Fault | None:
    for race in range(_RACES):
        path = f"{scratch}/race-{race}"

        def contend(number: int, path: str = path) -> bool:
            try:
                store.put_if_absent(path, str(number).encode())
            except AlreadyExistsError:
                return False
            return True

        pool = DaemonPool(_CONTENDERS, _PATIENCE_MS, name=THREAD_NAME)
        winners = sum(each.result() for _, each in pool.run(contend, range(_CONTENDERS)))
        if winners != 1:
            message = f"{winners} of {_CONTENDERS} concurrent writers created the same file"
            return RACES, message, f"race {race + 1} of {_RACES}"
    return None


def _listing(store: Store, scratch: str) -> _Fault | None:
    directory = f"{scratch}/list"
    for name in reversed(_NAMES):
        store.put_if_absent(f"{directory}/{name}", name.encode())
    looks: list[tuple[str | None, tuple[str, ...]]] = [(None, _NAMES), ("b", _NAMES[2:])]
    for start_after, expected in looks:
        found = tuple(file.name for file in store.list(directory, start_after))
        if found != expected:
            return INCOMPLETE_LISTING, f"a listing shows {found}, and not {expected}", "a listing"
    store.delete(f"{directory}/b")
    found = tuple(file.name for file in store.list(directory))
    if found != (_NAMES[0], *_NAMES[2:]):
        return INCOMPLETE_LISTING, f"a listing after a deletion shows {found}", "a listing"
    return None


def _ranges(store: Store, scratch: str) -> _Fault | None:
    path, size = f"{scratch}/range", len(_CONTENT)
    store.put_if_absent(path, _CONTENT)
    reads: list[tuple[str, Callable[[], object], bytes]] = [
        ("a range", lambda: store.read(path, 300, 1000), _CONTENT[300:1300]),
        ("a range past the end", lambda: store.read(path, size - 5, 99), _CONTENT[-5:]),
        ("the tail", lambda: store.read_tail(path, 77), _CONTENT[-77:]),
        ("all", lambda: store.open_buffer(path), _CONTENT),
    ]
    for what, read, expected in reads:
        if bytes(read().to_pybytes()) != expected:  # type: ignore[attr-defined]
            return WRONG_RANGE, f"a read of {what} returns wrong bytes", "a ranged read"
    if store.head(path).size_bytes != size:
        return WRONG_RANGE, "a file has another size than it was written with", "a HEAD"
    return None


def _overwrite(store: Store, scratch: str) -> _Fault | None:
    path = f"{scratch}/replaced"
    for version in (b"1", b"22", b"333"):
        store.put(path, version)
        if store.open_buffer(path).to_pybytes() != version:
            return STALE_READ, "a read after a put returns the old content", "a put and a read"
    return None


def _remove(store: Store, scratch: str) -> str | None:
    """Remove the scratch folder; return the reason of a failure, or None."""
    try:
        store.delete_directory(scratch)
    except StorageError as error:
        return error.message
    return None
