"""A simulated store: each call is a step, and may fail in the ways in which real stores do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar, Protocol, TypeVar

import pyarrow as pa

from spark_log.errors import AlreadyExistsError, StorageError, UnknownOutcomeError
from spark_log.storage import FileInfo, StagedFile, Store
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS, Faults
from tests.simulation.same_thread import SameThread
from tests.simulation.scheduler import Crash, Scheduler

_Answer = TypeVar("_Answer")

_SLOW_LISTING_MS = 0.4 * DELETE_DELAY_MS
"""A reader may use a listing for half of the delete delay; this is nearly as long."""


class StorageObserver(Protocol):
    """Is called for every change of the storage, at the moment when it takes effect."""

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file."""

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file."""


class SimulatedDisk(MemoryStore):
    """The files of a simulation. Listings are cached until a file is created or deleted."""

    def __init__(self, clock: Clock, name: str = "simulation") -> None:
        """Return an empty disk; several of one simulation have different names."""
        super().__init__(name, clock)
        self._listings: dict[str, tuple[FileInfo, ...]] = {}
        for directory in tuple(self.list_directories("")):  # of an earlier simulation
            self.delete_directory(directory)

    def listing(self, directory: str) -> tuple[FileInfo, ...]:
        """Return the files that `list` yields; the same object until a file changes."""
        if directory not in self._listings:
            self._listings[directory] = tuple(super().list(directory))
        return self._listings[directory]

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Yield the files of a directory in the order of their names."""
        if start_after is not None:
            return super().list(directory, start_after)
        return iter(self.listing(directory))

    def delete(self, path: str) -> None:
        """Delete a file."""
        super().delete(path)
        self._listings.clear()

    def delete_directory(self, directory: str) -> None:
        """Delete a directory with all files below it."""
        super().delete_directory(directory)
        self._listings.clear()

    def _set(self, path: str, data: pa.Buffer) -> None:
        super()._set(path, data)
        self._listings.clear()


class SimulatedStore(Store):
    """A store that actors share, over a network that delays, loses and repeats requests.

    A call takes effect at one moment, on ``disk``, and ``observer`` is notified of it then. Before
    and after that moment other actors may run for any time.

    Attributes:
        disk: the files.
        faults: the probabilities of faults; may be changed while the simulation runs.
    """

    is_mapped: ClassVar[bool] = True
    time_resolution_us: ClassVar[int] = 0
    executor_class: ClassVar[type[ThreadPoolExecutor]] = SameThread

    def __init__(
        self, disk: SimulatedDisk, scheduler: Scheduler, observer: StorageObserver, faults: Faults
    ) -> None:
        """Return a store on a disk; ``observer`` is notified of every change."""
        self.url = disk.url
        self.disk = disk
        self.faults = faults
        self._scheduler = scheduler
        self._observer = observer

    # --- writing ---------------------------------------------------------------------------------

    def stage(self, directory: str) -> StagedFile:
        """Stage a file; local to the actor, not a step."""
        return self.disk.stage(directory)

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Create a file, which may fail."""
        data = source.read_back() if isinstance(source, StagedFile) else source

        def create() -> None:
            self.disk.put_if_absent(path, data)
            self._observer.on_file_created(path)

        self._write("put_if_absent", path, create, can_be_resent=True)

    def put(self, path: str, data: bytes | pa.Buffer, *, sync: bool = True) -> None:
        """Create or replace a file, which may fail."""
        self._write("put", path, lambda: self.disk.put(path, data))

    def delete(self, path: str) -> None:
        """Delete a file, which may fail."""

        def remove() -> None:
            self.disk.delete(path)
            self._observer.on_file_deleted(path)

        self._write("delete", path, remove)

    def _write(
        self, what: str, path: str, effect: Callable[[], None], *, can_be_resent: bool = False
    ) -> None:
        """Send a write, which may be lost before or after it takes effect."""
        chance, faults = self._scheduler.random.random, self.faults
        try:
            self.pass_time()
        except Crash:
            if chance() < 0.5:
                self._deliver_late(what, path, effect)  # the request was sent already
            raise
        if chance() < faults.failed:
            self._note(what, path, "fails")
            raise self._failure(path)
        if chance() < faults.late_copy:
            self._deliver_late(what, path, effect)
        if chance() < faults.lost_request:
            self._note(what, path, "is lost on its way")
            if chance() < 0.5:
                self._deliver_late(what, path, effect)
            self.pass_time()
            raise UnknownOutcomeError(f"{path}: no answer", path=path)
        error: AlreadyExistsError | None = None
        try:
            effect()
            self._note(what, path, "done")
            if can_be_resent and chance() < faults.resent:
                self._note(what, path, "is sent again by the client: exists")
                error = AlreadyExistsError(f"{path} exists", path=path)
        except AlreadyExistsError as taken:
            self._note(what, path, "exists")
            error = taken
        is_lost = chance() < faults.lost_answer
        self.pass_time()
        if is_lost:
            self._note(what, path, "gets no answer")
            raise UnknownOutcomeError(f"{path}: no answer", path=path)
        if error is not None:
            raise error

    def _deliver_late(self, what: str, path: str, effect: Callable[[], None]) -> None:
        def deliver() -> None:
            with suppress(AlreadyExistsError):
                effect()
                self._note(what, path, "a late copy takes effect")

        delay_ms = self._scheduler.random.choice((0.02, 0.2, 1, 2, 4)) * DELETE_DELAY_MS
        self._scheduler.after(delay_ms * self._scheduler.random.random(), deliver)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        """Read a range of a file; a step."""
        return self._read("read", path, lambda: self.disk.read(path, start, length))

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        """Read the end of a file; a step."""
        return self._read("read_tail", path, lambda: self.disk.read_tail(path, length))

    def open_buffer(self, path: str) -> pa.Buffer:
        """Read a whole file; a step."""
        return self._read("open", path, lambda: self.disk.open_buffer(path))

    def head(self, path: str) -> FileInfo:
        """Return the size and time of a file; a step."""
        return self._read("head", path, lambda: self.disk.head(path))

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """List a directory; each file that changes meanwhile may be listed or not."""
        before = self.disk.listing(directory)
        slow = self.faults.slow_listing
        if slow and self._scheduler.random.random() < slow:
            self._scheduler.pass_time(_SLOW_LISTING_MS)
        for _ in range(self._scheduler.random.choice((1, 1, 2, 5))):  # pages
            self.pass_time()
        shown, torn = self.disk.listing(directory), 0
        if shown is not before:
            shown, torn = self._torn(before, shown)
        if self._scheduler.random.random() < self.faults.failed:
            self._note("list", directory, "fails")
            raise self._failure(directory)
        if start_after is not None:
            shown = tuple(file for file in shown if file.name > start_after)
        self._note("list", directory, f"{len(shown)} files" + (f", {torn} wrong" if torn else ""))
        return iter(shown)

    def _torn(
        self, before: Sequence[FileInfo], after: Sequence[FileInfo]
    ) -> tuple[tuple[FileInfo, ...], int]:
        """Return a listing that mixes the directory's states before and after it.

        Also return the number of files that are listed although deleted, or missing although
        created.
        """
        chance, torn = self._scheduler.random.random, 0
        files, now = ({file.path: file for file in each} for each in (before, after))
        for path in sorted(files.keys() ^ now.keys()):
            if chance() < self.faults.torn_listing and chance() < 0.5:
                torn += 1
                if path in files:
                    now[path] = files[path]
                else:
                    del now[path]
        return tuple(now[path] for path in sorted(now)), torn

    def _read(self, what: str, path: str, read: Callable[[], _Answer]) -> _Answer:
        # The answer shows the state at the end of the call or at its beginning.
        is_early = self._scheduler.random.random() < 0.5
        if not is_early:
            self.pass_time()
        if self._scheduler.random.random() < self.faults.failed:
            self._note(what, path, "fails")
            raise self._failure(path)
        try:
            answer = read()
        except StorageError:
            self._note(what, path, "is not there")
            raise
        else:
            self._note(what, path, "done")
            return answer
        finally:
            if is_early:
                self.pass_time()

    # --- the rest --------------------------------------------------------------------------------

    def create_root(self) -> None:
        """Do nothing: the root exists."""

    def list_hidden(self, directory: str) -> Iterator[FileInfo]:
        """Yield the hidden files, of which there are none: staged files are not on this disk."""
        return self.disk.list_hidden(directory)

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories in a directory."""
        return self.disk.list_directories(directory)

    def delete_directory(self, directory: str) -> None:
        """Not simulated: the actors delete no directories."""
        raise NotImplementedError

    def directory_url(self, directory: str) -> str:
        """Return the URL of a directory."""
        return self.disk.directory_url(directory)

    def _failure(self, path: str) -> StorageError:
        """Return the error of a call that fails."""
        return StorageError(f"{path}: the simulated store fails", path=path)

    def pass_time(self) -> None:
        """Let other actors run for the time of a request, or for longer: a step."""
        random = self._scheduler.random
        duration_ms = random.expovariate(1 / self.faults.latency_ms)
        if random.random() < self.faults.pause:
            duration_ms += DELETE_DELAY_MS * random.choice((0.3, 0.7, 1.5, 4)) * random.random()
        self._scheduler.pass_time(duration_ms)

    def _note(self, what: str, path: str, outcome: str) -> None:
        name = path.rpartition("/")[2] or path
        if name.startswith("."):
            name = ".tmp"  # the rest does not come from the seed
        self._scheduler.note(f"{what} {name}: {outcome}")


class RangedSimulatedStore(SimulatedStore):
    """A simulated store whose files cannot be memory-mapped: they are read in ranges."""

    is_mapped: ClassVar[bool] = False


class DeltaStore(SimulatedStore):
    """A simulated store on which a Delta table can be opened."""

    def directory_url(self, directory: str) -> str:
        """Return a URL, which no library opens."""
        return f"simulated/{directory}"
