"""A model of a topic whose partitions move between stripes and logs of their own."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from pyarrow import ipc

from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.log.files.live_segments import live_log
from spark_log.record.batch_header import NO_PRODUCER_ID, BatchHeader
from tests.simulation.store import SimulatedDisk
from tests.simulation.stripes.true_stripes import TOPIC, TOPIC_ID, TrueStripes, partition_path
from tests.simulation.violation import ViolationError


class TrueTopic(TrueStripes):
    """The model of all partitions of a topic, wherever their records are.

    Attributes:
        epochs: partition → the leader epoch of its last batch.
        ended: partition and leader epoch → the offset behind the barrier of this epoch: where the
            partition's place of the epoch before it ends.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        """Return a model of an empty topic."""
        super().__init__(disk)
        self.epochs: dict[int, int] = defaultdict(int)
        self.ended: dict[tuple[int, int], int] = {}

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file; those of the metadata are not of the topic."""
        if path.startswith(f"{TOPIC}/"):
            super().on_file_created(path)

    def on_file_deleted(self, path: str) -> None:
        """Check that all records can still be read."""
        if path.startswith(f"{TOPIC}/"):
            super().on_file_deleted(path)

    def _append(
        self, partition: int, header: BatchHeader, records: pa.RecordBatch, path: str
    ) -> None:
        """Append a batch, and check that no barrier has fenced it."""
        epoch = self.epochs[partition]
        is_barrier = header.is_control and header.producer_id == NO_PRODUCER_ID
        if header.leader_epoch != epoch + is_barrier:
            raise ViolationError(
                f"{path}, partition {partition}: a batch of leader epoch {header.leader_epoch} "
                f"behind epoch {epoch}"
            )
        super()._append(partition, header, records, path)
        if is_barrier:
            self.epochs[partition] = header.leader_epoch
            self.ended[partition, header.leader_epoch] = self.partitions[partition].end

    def _check_segment(self, directory: str, name: SegmentName, path: str) -> None:
        """Check a rewritten segment; append the batches of a plain one at the log's end."""
        if name.last_offset is not None:
            super()._check_segment(directory, name, path)
            return
        partition = int(directory.rpartition("-")[2])
        end = self.partitions[partition].end
        if name.base_offset > end:
            raise ViolationError(f"{path} was put, and the log ends at {end}")
        if name.base_offset < end:
            return  # a late put of a name that was freed: nobody may read it
        reader = SegmentReader(self._disk, directory, name, topic_id=TOPIC_ID, partition=partition)
        for ordinal in range(reader.batch_count):
            headers, records = reader.read_batch(ordinal)
            row = 0
            for header in headers:
                self._append(partition, header, records.slice(row, header.record_count), path)
                row += header.record_count

    def _check_marker(self, directory: str, number: int, path: str) -> None:
        """Check a home marker; one without objects before it begins a stripe."""
        if number < self._newest_marker(directory):
            return  # a late put of a number that was freed: nobody reads it
        if not self._next_numbers[directory]:
            self._next_numbers[directory] = number
            batch = ipc.open_file(self._disk.open_buffer(path)).get_batch(0)
            numbers = batch.column("partition").to_pylist()
            self._ends_at[directory, number] = {each: self.partitions[each].end for each in numbers}
        super()._check_marker(directory, number, path)

    def _check_home(self, partition: int, end: int) -> None:
        """Check that the files at home have all records of a partition before an offset."""
        path = partition_path(partition)
        segments = live_log(self._disk.list(path)).segments
        reached = 0
        if segments:
            name = segments[-1].name
            reader = SegmentReader(self._disk, path, name, topic_id=TOPIC_ID, partition=partition)
            reached = reader.end_offset
        if reached < end:
            raise ViolationError(f"partition {partition} is at home up to {reached}, not {end}")
