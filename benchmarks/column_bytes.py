"""Measures which bytes of a segment file a read of some columns touches, without a peer.

    python -m benchmarks.column_bytes --records 1000000

The read of a Spark task runs in this process, and every buffer that Spark would receive is touched.
The bytes touched are the pages of the file that this process has mapped by then
(``/proc/self/smaps``), including up to 64 KiB around each page, which the kernel maps with it.
"""

import mmap
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.table import Table

from benchmarks.command_line import base_parser, positive
from benchmarks.log_workload import binary_array
from benchmarks.whole_table import print_whole
from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import plan_splits
from spark_log.log.files.file_names import SegmentName
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_BATCH = 10_000
_FIELD_BYTES = 100


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = base_parser("column_bytes", __doc__)
    parser.add_argument("--records", type=positive, default=1_000_000, help="how many (1000000)")
    options = parser.parse_args()
    table = Table(title=f"{options.records:,} records; key, value and a header of 100 bytes each")
    for title in ("columns", "file, MB", "touched, MB", "sent to Spark, MB"):
        table.add_column(title, justify="left" if title == "columns" else "right")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as work:
        path = _fill(work, options.records)
        for columns in (("value",), ("timestamp",), ("key", "value", "headers", "timestamp")):
            touched, sent = _read(work, path, columns)
            sizes = (path.stat().st_size, touched, sent)
            table.add_row(", ".join(columns), *(f"{size / 1e6:.1f}" for size in sizes))
    print_whole(table)


def _fill(root: str, count: int) -> Path:
    Admin(root).create_topics([NewTopic("t", 1)])
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic("t"), 0)
    random = np.random.default_rng(0)

    def field() -> pa.Array:
        return binary_array(random.bytes(_BATCH * _FIELD_BYTES), _BATCH)

    def headers() -> pa.Array:
        names = pa.array(["h"] * _BATCH)
        entries = pa.StructArray.from_arrays([names, field()], fields=[*HEADERS_TYPE.value_type])
        return pa.ListArray.from_arrays(pa.array(range(_BATCH + 1), pa.int32()), entries).cast(
            HEADERS_TYPE
        )

    def batch(first: int) -> pa.RecordBatch:
        times = pa.array(np.arange(_BATCH) + 1_700_000_000_000_000 + first).cast(TIMESTAMP_TYPE)
        return pa.RecordBatch.from_arrays(
            [field(), field(), headers(), times], schema=RECORD_SCHEMA
        )

    log.append([batch(first) for first in range(0, count, _BATCH)])
    return Path(root) / log.directory / SegmentName(0).file_name


def _read(root: str, path: Path, columns: Sequence[str]) -> tuple[int, int]:
    """Return the bytes of the file that a read touches, and the bytes that Spark receives."""
    options = parse_read_options({"path": root, "subscribe": "t"}, is_stream=False)
    (split,) = plan_splits(options)
    batches = list(read_split(split, columns, options))
    for buffer in (buffer for batch in batches for column in batch for buffer in column.buffers()):
        if buffer is not None:
            np.frombuffer(buffer, np.uint8)[:: mmap.PAGESIZE].sum()
    return _mapped_bytes(path), sum(batch.nbytes for batch in batches)


def _mapped_bytes(path: Path) -> int:
    """Return the bytes of a file that this process has mapped and touched."""
    total_kib, is_wanted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            is_wanted = line.endswith(str(path))
        elif name == "Rss:" and is_wanted:
            total_kib += int(rest.split()[0])
    return total_kib * 1024


if __name__ == "__main__":
    main()
