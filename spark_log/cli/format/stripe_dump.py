"""The entries of a stripe's object, each with its partition, its header and whether it is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.cli.format.segment_dump import BatchDump, batch_problem, problem_of
from spark_log.errors import CorruptRecordError
from spark_log.log import FetchedRecords
from spark_log.log.stripe import (
    StripeDirectory,
    StripeFileName,
    StripeListing,
    StripeObject,
    StripeState,
)
from spark_log.record import STRIPE_KEY
from spark_log.storage import open_store

_STRIPE_DIRECTORY: Final = re.compile(
    r".*/[^/]+\.(?P<topic_id>[\w-]{22})/__stripes/(?P<stripe>\d+)"
)


@dataclass(frozen=True, slots=True)
class EntryDump:
    """An entry of an object.

    Attributes:
        partition: the number of its partition.
        base_offset: the offset to which the header's offset deltas are added.
        batch: its batch, which may be damaged.
    """

    partition: int
    base_offset: int
    batch: BatchDump


class StripeDump:
    """A file of a stripe in any directory: an object, or a home marker.

    Attributes:
        name: the name of the file.
        topic_id: the id of its topic, from its directory, or else from the file.
        stripe: the number of its stripe, from its directory, or else from the file.
        size_bytes: the size of the file.
    """

    def __init__(self, path: Path, name: StripeFileName) -> None:
        """Find out whose file it is; reads its metadata if it is in no directory of a stripe."""
        path = path.absolute()
        self.name = name
        self.topic_id, self.stripe = _owner(path)
        self.size_bytes = path.stat().st_size
        self._directory = StripeDirectory(
            open_store(path.parent.parent),
            path.parent.name,
            topic_id=self.topic_id,
            stripe=self.stripe,
        )

    def home(self) -> StripeState:
        """Return the state in a home marker.

        Raises:
            CorruptRecordError: the marker is damaged.
        """
        return self._directory.read_home(self.name.number)

    def state_before(self) -> StripeState | None:
        """Return the state before the object, from the marker and the objects in its directory.

        Returns:
            None if one of those is missing or damaged: then the offsets are not known.
        """
        number = self.name.number
        listing = self._directory.list()
        try:
            start = StripeListing(
                tuple(each for each in listing.files if each[0].number <= number), 0
            ).home_number
            state = self._directory.read_home(start) if start else StripeState()
            for each in range(start, number):
                found = self._directory.open(each)
                if found is None:
                    return None
                state.take(found.directory)
        except CorruptRecordError:
            return None
        return state

    def entries(self, state: StripeState | None) -> Iterator[EntryDump]:
        """Yield every entry in the order of the file, with its checksum verified.

        Args:
            state: the state before the object; None counts the offsets of each partition from 0.

        Raises:
            CorruptRecordError: the object cannot be opened.
        """
        found = self._directory.open(self.name.number)
        assert found is not None
        for partition, entries in found.directory.groups():
            first = found.directory.headers[entries.start].base_offset_delta
            end = 0 if state is None else state.end_offset(partition)
            for run in found.runs(entries):
                for batch in self._batches(found, run, partition, end - first):
                    yield EntryDump(partition, end - first, batch)

    def _batches(
        self, found: StripeObject, run: range, partition: int, base_offset: int
    ) -> Iterator[BatchDump]:
        block = found.block(run)
        size_bytes = block.metadata_bytes + block.body_bytes
        headers = found.directory.headers[run.start : run.stop]
        codec, rows, problem = "unknown", None, None
        try:
            codec = found.compression(run)
            ((_, rows),) = found.read(run, check_crcs=False)
        except CorruptRecordError as error:
            problem = problem_of(error)
        row = 0
        for header in headers:
            records, wrong = None, problem
            if rows is not None:
                part = rows.slice(row, header.record_count)
                wrong = batch_problem(header, part, None)
                if wrong is None:
                    deltas = np.arange(header.base_offset_delta, header.last_offset_delta + 1)
                    records = FetchedRecords(
                        partition,
                        base_offset + deltas,
                        part,
                        header.timestamp_type,
                        header.leader_epoch,
                    )
            row += header.record_count
            yield BatchDump(block.position, size_bytes, codec, header, records, wrong)


def _owner(path: Path) -> tuple[str, int]:
    """Return the topic id and the stripe of a file, by its directory or else by its metadata."""
    place = _STRIPE_DIRECTORY.fullmatch(str(path.parent))
    if place is not None:
        return place["topic_id"], int(place["stripe"])
    try:
        with pa.memory_map(str(path)) as content, ipc.open_file(content) as file:
            metadata = file.schema.metadata or {}
        topic_id = metadata.get(b"spark_log.topic_id", b"").decode()
        return topic_id, int(metadata.get(STRIPE_KEY, b"0"))
    except (OSError, ValueError, pa.ArrowException):
        return "", 0
