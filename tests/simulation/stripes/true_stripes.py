"""A model of stripes, derived only from the changes of the storage; checks results against it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from tests.simulation.log.true_log import ViolationError
from tests.simulation.store import SimulatedDisk
from tests.simulation.stripes.stripe import Outcome, home_files, number_of
from tests.simulation.stripes.stripe_state import Entry, Refusal, StripeState, decode_object


class TrueStripes:
    """The records of each partition, in the order in which puts took effect.

    Attributes:
        records: partition → its records.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        """Return a model of empty stripes."""
        self._disk = disk
        self.records: dict[int, list[str]] = defaultdict(list)
        self._next_numbers: dict[str, int] = defaultdict(int)
        self._ends_at: dict[tuple[str, int], dict[int, int]] = {}
        self._sequences: dict[tuple[int, int], tuple[int, int]] = {}
        self._values: set[str] = set()

    def end(self, partition: int) -> int:
        """Return the log end offset of a partition."""
        return len(self.records[partition])

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file."""
        directory, _, name = path.partition("/")
        if name.endswith(".stripe"):
            self._on_object(directory, number_of(name), path)
        elif name.endswith(".home"):
            self._check_marker(directory, path)
        else:
            base, _, last = name.removesuffix(".log").partition("-")
            partition = int(directory.partition("-")[2])
            true = self.records[partition][int(base) : int(last) + 1]
            if self._read(path) != true:
                raise ViolationError(f"{path} has {self._read(path)}, and {true} is true")

    def on_file_deleted(self, path: str) -> None:
        """Check that all records can still be read: at home, or in the stripe behind its marker."""
        directory = path.partition("/")[0]
        names = [file.name for file in self._disk.listing(directory)]
        markers = [name for name in names if name.endswith(".home")]
        first = number_of(markers[-1]) if markers else 0
        for number in range(first, self._next_numbers[directory]):
            if f"{number:08}.stripe" not in names:
                raise ViolationError(f"{directory}: {number} is gone, and home is {first}")

    def _on_object(self, directory: str, number: int, path: str) -> None:
        expected = self._next_numbers[directory]
        if number > expected:
            raise ViolationError(f"{path} was put, and {expected} is the next number")
        if number < expected:
            return  # a late put of a number that was freed: nobody may read it
        self._next_numbers[directory] += 1
        for entry in decode_object(self._read_bytes(path)):
            self._append(entry, path)
        self._ends_at[directory, number + 1] = {
            partition: len(records) for partition, records in self.records.items()
        }

    def _append(self, entry: Entry, path: str) -> None:
        key = entry.partition, entry.producer_id
        epoch, next_sequence = self._sequences.get(key, (0, 0))
        if entry.epoch < epoch:
            raise ViolationError(f"{path} has {entry}, which epoch {epoch} has fenced")
        expected = next_sequence if entry.epoch == epoch else 0
        if entry.sequence != expected:
            raise ViolationError(f"{path} has {entry}, and the next sequence is {expected}")
        self._sequences[key] = entry.epoch, entry.sequence + len(entry.values)
        for value in entry.values:
            if value in self._values:
                raise ViolationError(f"{path} has {value!r}, which is in the log already")
            self._values.add(value)
            self.records[entry.partition].append(value)

    def _check_marker(self, directory: str, path: str) -> None:
        state = StripeState.decode(self._read_bytes(path))
        true = self._ends_at[directory, state.next_number]
        for partition, end in state.ends.items():
            if end != true[partition]:
                raise ViolationError(f"{path} ends {partition} at {end}, not {true[partition]}")
            self._check_home(partition, end)

    def _check_home(self, partition: int, end: int) -> None:
        """Check that the files at home have all records of a partition before an offset."""
        reached = 0
        for base, last, _ in sorted(home_files(self._disk, partition), key=lambda file: file[:2]):
            if base <= reached:
                reached = max(reached, last + 1)
        if reached < end:
            raise ViolationError(f"partition {partition} is at home up to {reached}, not {end}")

    def _read_bytes(self, path: str) -> bytes:
        content: bytes = self._disk.open_buffer(path).to_pybytes()
        return content

    def _read(self, path: str) -> list[str]:
        values: list[str] = json.loads(self._read_bytes(path))
        return values

    # --- results of actors -----------------------------------------------------------------------

    def check_outcome(self, entry: Entry, outcome: Outcome) -> None:
        """Check the answer to an append."""
        if outcome is Refusal.FENCED:
            epoch, _ = self._sequences.get((entry.partition, entry.producer_id), (-1, 0))
            if epoch <= entry.epoch:
                raise ViolationError(f"{entry} was fenced, and the newest epoch is {epoch}")
        elif isinstance(outcome, int):
            true = self.records[entry.partition][outcome : outcome + len(entry.values)]
            if tuple(true) != entry.values:
                raise ViolationError(f"{entry} was acknowledged at {outcome}, where {true} is")

    def check_read(self, partition: int, offset: int, values: Sequence[str], end: int) -> None:
        """Check what a reader got from an offset; nothing only if the log ended there."""
        true = self.records[partition][offset : offset + len(values)]
        if list(values) != true:
            raise ViolationError(f"a reader got {values} at {offset} of {partition}, not {true}")
        if not values and end > offset:
            raise ViolationError(f"a reader got nothing at {offset} of {partition}, before {end}")

    def check_whole(self, partition: int, found: Sequence[str]) -> None:
        """Check what a new reader read of a whole partition in the end."""
        if list(found) != self.records[partition]:
            raise ViolationError(
                f"in the end {len(found)} records of {partition} are read, and "
                f"{len(self.records[partition])} were appended"
            )
