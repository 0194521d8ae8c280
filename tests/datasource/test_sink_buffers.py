"""A task that writes to many partitions has bounded memory, open files and segment sizes."""

import os
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic, StorageFullError
from spark_log.datasource.write import record_buffers
from spark_log.datasource.write.partition_writer import PartitionWriter
from spark_log.datasource.write.record_buffers import MEMORY_POOL, RecordBuffers
from tests.datasource.sink_support import attempt, numbers, rows, segment_sizes

MIB = 1 << 20


@pytest.fixture
def wide(root):
    """The root, with a topic `wide` of 60 partitions with the smallest possible segments."""
    config = {"segment.bytes": MIB}
    Admin(root).create_topics([NewTopic("wide", num_partitions=60, topic_configs=config)])
    return root


def mixed(total, *, partitions=60, seed=1, padding=500, cut=500):
    """Return rows for partitions in random order, and the expected values of each partition."""
    draw = random.Random(seed)
    expected: list[list[int]] = [[] for _ in range(partitions)]
    batches = []
    for start in range(0, total, cut):
        chosen = [draw.randrange(partitions) for _ in range(cut)]
        batch = rows(range(start, start + cut), padding=padding)
        batches.append(batch.set_column(1, "partition", pa.array(chosen, pa.int32())))
        for number, part in enumerate(chosen, start):
            expected[part].append(number)
    return batches, expected


@pytest.mark.parametrize("max_open", [0, 7, 60])
@pytest.mark.parametrize("max_pending_bytes", [1, 300_000, 64 * MIB])
def test_each_partition_gets_its_rows_in_order_whatever_has_to_be_spilled(
    wide, max_open, max_pending_bytes
):
    batches, expected = mixed(10_000)
    buffers = RecordBuffers(max_pending_bytes=max_pending_bytes, max_open=max_open)

    attempt(wide, batches, topic="wide", buffers=buffers)

    assert numbers(wide, "wide") == expected
    assert (buffers.spilled_bytes > 0) == (max_pending_bytes < 10 * MIB)


def test_open_segments_and_waiting_bytes_stay_within_their_bounds(wide, monkeypatch):
    batches, expected = mixed(16_000, partitions=12, padding=1500)
    buffers = RecordBuffers(max_pending_bytes=16 * MIB, max_open=5)
    open_at_once, pending_bytes = [], []
    write = PartitionWriter.write

    def watched(writer, records):
        write(writer, records)
        pending_bytes.append(sum(each.size_bytes for each in buffers._pending.values()))  # noqa: SLF001
        if buffers._pending:  # noqa: SLF001
            open_at_once.append(sum(each.is_open for each in buffers._pending))  # noqa: SLF001

    monkeypatch.setattr(PartitionWriter, "write", watched)
    attempt(wide, batches, topic="wide", buffers=buffers)

    assert numbers(wide, "wide")[:12] == expected
    assert 5 <= max(open_at_once) <= 6  # and the one that is flushed at the end
    assert max(pending_bytes) < 17 * MIB


def test_what_is_let_go_frees_whole_batches_also_where_one_partition_is_quiet(root):
    """The few rows of a partition must not keep all batches in memory of which they are a part."""
    buffers = RecordBuffers(max_pending_bytes=2 * MIB)
    most = 0

    def batches():
        nonlocal most
        for start in range(0, 100_000, 1000):
            batch = rows(range(start, start + 1000), padding=500)
            parts = pa.array([1] + [0] * 999, pa.int32())
            yield batch.set_column(1, "partition", parts)
            most = max(most, allocated() - before)

    def allocated():
        return pa.total_allocated_bytes() + MEMORY_POOL.bytes_allocated()

    before = allocated()
    attempt(root, batches(), buffers=buffers)

    assert most < 12 * MIB, "for 50 MiB of records"
    assert [len(found) for found in numbers(root)] == [99_900, 100, 0, 0]


def test_a_batch_of_half_the_size_is_passed_on_without_a_copy(root, monkeypatch):
    """Spark's batches of 10,000 short records for one partition are written as they are."""
    batches = [rows(range(start, start + 300), 2, padding=2000) for start in range(0, 1200, 300)]
    joined = []
    monkeypatch.setattr(pa, "concat_batches", lambda batches, **_: joined.append(batches))

    attempt(root, batches)

    assert not joined
    assert numbers(root)[2] == list(range(1200))


def test_no_segment_is_larger_than_segment_bytes(wide):
    batches, expected = mixed(6_000, partitions=2, padding=2000, cut=3000)

    attempt(wide, batches, topic="wide")

    assert numbers(wide, "wide")[:2] == expected[:2]
    sizes = segment_sizes(wide, "wide")[:2]
    assert all(max(found) <= MIB for found in sizes)
    assert all(min(found[:-1]) > MIB // 3 for found in sizes), "no batch is needlessly small"


def test_the_temporary_file_lies_where_spark_keeps_its_own_and_has_no_name(
    wide, tmp_path, monkeypatch
):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    seen = []
    spill = record_buffers._Spill.write  # noqa: SLF001

    def watched(self, share, records):
        spill(self, share, records)
        seen.append(os.readlink(f"/proc/self/fd/{self._file.fileno()}"))

    monkeypatch.setattr(record_buffers._Spill, "write", watched)  # noqa: SLF001
    batches, _ = mixed(1_000)
    attempt(wide, batches, topic="wide", buffers=RecordBuffers(max_pending_bytes=1))

    assert all(Path(path).parent == tmp_path for path in seen)
    assert all(path.endswith("(deleted)") for path in seen)


def test_a_full_disk_for_temporary_files_leaves_nothing_behind(wide, monkeypatch, tmp_path):
    full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - the buffers close it
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: full)
    batches, _ = mixed(1_000)

    with pytest.raises(StorageFullError):
        attempt(wide, batches, topic="wide", buffers=RecordBuffers(max_pending_bytes=1))

    assert numbers(wide, "wide") == [[]] * 60
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_partition_that_was_quiet_and_becomes_busy_keeps_its_order(root):
    """Its spilled records come before the records that could be written at once."""
    batches = [
        rows(range(start, start + 200), partition, padding=2000)
        for start, partition in zip(range(0, 4_000, 200), [0, 1, 2, 3] + [0] * 16, strict=True)
    ]
    buffers = RecordBuffers(max_pending_bytes=1_500_000)

    attempt(root, batches, buffers=buffers)

    first, *others = numbers(root)
    assert buffers.spilled_bytes > 0
    assert first == [*range(200), *range(800, 4_000)]
    assert others == [list(range(start, start + 200)) for start in (200, 400, 600)]
