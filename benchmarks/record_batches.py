"""Measures the codec of Kafka's record batches: reading into Arrow, and writing from it.

    python -m benchmarks.record_batches --repeats 7

Records have values of 100 bytes and keys of 8, in one batch of 100,000 and in batches of 16 KiB, as
Java's producer makes them by default; with values of 50 to 150 bytes; and with one header. Both
ways are measured: the compiled one and numpy. Reading includes the check of the checksum. Figures
count the processor time of one core, and are the best of all repeats. The limit beside them is one
copy of the batch's bytes and their checksum: no codec can do without. A peer is kafka-python's
reader, which makes an object of each record.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa
from kafka.record import MemoryRecords

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from spark_log.gateway.record_batches import (
    NUMPY_CODEC,
    BatchTarget,
    CompressionType,
    RecordCodec,
    from_arrow,
    native_codec,
    split,
    to_arrow,
)
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array

_RECORDS = 100_000
_VALUE_BYTES = 100
_JAVA_BATCH_RECORDS = 16_384 // (_VALUE_BYTES + 8 + 11)
_GOAL = 3.0
_LIMIT_BYTES = 1 << 31
_TIME_US = 1_700_000_000_000_000
_UNIT = "M/s"


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("record_batches", __doc__)
    options.add_argument("--repeats", type=positive, default=7, help="measured runs (7)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Read and write each kind of records in both ways."""
    equal = np.full(_RECORDS, _VALUE_BYTES)
    varied = np.random.default_rng(7).integers(_VALUE_BYTES // 2, _VALUE_BYTES * 3 // 2, _RECORDS)
    kinds = {
        "100 bytes": records(equal),
        "50 to 150 bytes": records(varied),
        "100 bytes, one header": records(equal, has_headers=True),
    }
    figures: list[Figure] = []
    native = native_codec()
    for name, batch in kinds.items():
        figures += _limits(name, batch, options.repeats)
        for codec in (native, NUMPY_CODEC):
            if codec is not None:
                figures += _one_batch(name, batch, codec, options.repeats)
    for codec in (native, NUMPY_CODEC):
        if codec is not None:
            figures += _small_batches(kinds["100 bytes"], codec, options.repeats)
    if native is not None:
        figures += _compressed(kinds["50 to 150 bytes"], native, options.repeats)
    figures.append(_kafka_python(kinds["100 bytes"]))
    return Report("record_batches", figures)


def records(sizes: np.ndarray, *, has_headers: bool = False) -> pa.RecordBatch:
    """Return records whose values have these sizes; text, so that compression has work to do."""
    count = len(sizes)
    text = b"the quick brown fox %d jumps over the lazy dog; "
    values = binary_array([(text % row * 5)[:size] for row, size in enumerate(sizes.tolist())])
    keys = binary_array([b"%08d" % row for row in range(count)])
    headers = pa.nulls(count, HEADERS_TYPE)
    if has_headers:
        headers = pa.array([[("trace", b"0123456789")]] * count, HEADERS_TYPE)
    times = timestamp_array(_TIME_US + np.arange(count) * 137)
    return pa.RecordBatch.from_arrays([keys, values, headers, times], schema=RECORD_SCHEMA)


def _limits(name: str, batch: pa.RecordBatch, repeats: int) -> Iterator[Figure]:
    data = from_arrow(batch, base_offset=0, target=BatchTarget())
    copied = pa.py_buffer(bytes(data))

    def copy_and_check() -> None:
        bytearray(data)
        google_crc32c.value(copied)

    yield _rate(f"limit: copy and checksum, {name}", copy_and_check, repeats)


def _one_batch(
    name: str, batch: pa.RecordBatch, codec: RecordCodec, repeats: int
) -> Iterator[Figure]:
    def write() -> bytes | bytearray:
        return from_arrow(batch, base_offset=0, target=BatchTarget(), codec=codec)

    def read() -> pa.RecordBatch:
        batches = split(data, max_batches=1)
        return to_arrow(batches, max_uncompressed_bytes=_LIMIT_BYTES, codec=codec)

    data = write()
    goal = _GOAL if name == "100 bytes" else None
    yield _rate(f"{codec.name}: write, {name}", write, repeats, goal)
    yield _rate(f"{codec.name}: read, {name}", read, repeats, goal)


def _small_batches(batch: pa.RecordBatch, codec: RecordCodec, repeats: int) -> Iterator[Figure]:
    parts = [
        batch.slice(start, _JAVA_BATCH_RECORDS) for start in range(0, _RECORDS, _JAVA_BATCH_RECORDS)
    ]

    def write() -> list[bytes | bytearray]:
        return [
            from_arrow(part, base_offset=0, target=BatchTarget(), codec=codec) for part in parts
        ]

    def read() -> Sequence[pa.RecordBatch]:
        return [
            to_arrow(split(each, max_batches=1), max_uncompressed_bytes=_LIMIT_BYTES, codec=codec)
            for each in encoded
        ]

    def read_together() -> pa.RecordBatch:
        batches = [split(each, max_batches=1)[0] for each in encoded]
        return to_arrow(batches, max_uncompressed_bytes=_LIMIT_BYTES, codec=codec)

    encoded = write()
    yield _rate(f"{codec.name}: write, batches of 16 KiB", write, repeats)
    yield _rate(f"{codec.name}: read, batches of 16 KiB one by one", read, repeats)
    yield _rate(f"{codec.name}: read, batches of 16 KiB together", read_together, repeats)


def _compressed(batch: pa.RecordBatch, codec: RecordCodec, repeats: int) -> Iterator[Figure]:
    for kind in CompressionType:
        if kind is CompressionType.NONE:
            continue

        def write(kind: CompressionType = kind) -> bytes | bytearray:
            return from_arrow(
                batch, base_offset=0, target=BatchTarget(), compression=kind, codec=codec
            )

        data = write()

        def read(data: bytes | bytearray = data) -> pa.RecordBatch:
            batches = split(data, max_batches=1)
            return to_arrow(batches, max_uncompressed_bytes=_LIMIT_BYTES, codec=codec)

        name = kind.name.lower()
        yield _rate(f"{codec.name}: write with {name}, 50 to 150 bytes", write, repeats)
        yield _rate(f"{codec.name}: read with {name}, 50 to 150 bytes", read, repeats)


def _kafka_python(batch: pa.RecordBatch) -> Figure:
    data = bytes(from_arrow(batch, base_offset=0, target=BatchTarget()))

    def read() -> None:
        batches = MemoryRecords(data)
        while (each := batches.next_batch()) is not None:
            for _ in each:
                pass

    return _rate("peer: kafka-python's reader, 100 bytes", read, 1)


def _rate(
    name: str, call: Callable[[], object], repeats: int, at_least: float | None = None
) -> Figure:
    best = min(_seconds(call) for _ in range(repeats))
    return Figure(name, _RECORDS / best / 1e6, _UNIT, at_least=at_least)


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
