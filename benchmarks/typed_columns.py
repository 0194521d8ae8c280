"""Measures typed columns: decoding JSON and Avro, converting to Parquet with them, and the size.

    python -m benchmarks.typed_columns --repeats 3

The values are the 336,776 flights of 2013, as JSON without null fields and as Avro. Decoding and
encoding count the processor time of one core; figures are medians. Beside them is what pyarrow
alone takes for the same values: to read them as JSON, and to write them to Parquet as they are. A
topic of the JSON, keyed by carrier in 4 partitions, is merged into Parquet files: without typed
columns, with them, and with them and without the values. The log reads keys and values of each. The
sizes are compared with the "best Parquet": the same rows (offset, timestamp, key and the fields)
that pyarrow writes with zstd into a file for each partition, as delta for offset and timestamp,
with dictionaries for the others.
"""

import argparse
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import fastavro
import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet as pq

from benchmarks.command_line import positive
from benchmarks.flights_size import ROWS_AN_APPEND, flights_of_2013, json_records
from benchmarks.log_report import Figure, Report, parser, run
from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.log.rewrite import merge
from spark_log.values import TypedValues

_TOPIC = "flights"
_PARTITIONS = 4
_BATCH = 65_536
_A_CORE = "M records/s a core"
_FRAME = b"\0\0\0\0\7"
_TYPES = {"int64": "INT", "string": "STRING", "timestamp[s, tz=UTC]": "TIMESTAMP"}
_AVRO_TYPES = {
    "int64": "int",
    "string": "string",
    "timestamp[s, tz=UTC]": {"type": "long", "logicalType": "timestamp-millis"},
}
_DELTA = ("offset", "timestamp")
_WAYS = ("without columns", "with columns", "with columns, without values")


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("typed_columns", __doc__)
    options.add_argument("--repeats", type=positive, default=3, help="measured runs (3)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Decode, encode, convert, and compare sizes and reads."""
    flights = flights_of_2013()
    records = json_records(flights)
    ddl = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in flights.schema)
    fields = [
        {"name": field.name, "type": ["null", _AVRO_TYPES[str(field.type)]]}
        for field in flights.schema
    ]
    schema = json.dumps({"type": "record", "name": "flight", "fields": fields})
    avro = _avro(flights, schema)
    values = records["value"].to_pylist()
    figures = [
        *_values("JSON", TypedValues("json", ddl), values, options.repeats),
        *_limits(TypedValues("json", ddl), values, options.repeats),
        *_values("Avro", TypedValues("avro", schema), avro, options.repeats),
        *_values(
            "Avro with schema id",
            TypedValues("avro", schema),
            [_FRAME + each for each in avro],
            options.repeats,
        ),
    ]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        figures += _topic(Path(directory), flights, records, ddl, options.repeats)
    notes = {"records": f"{flights.num_rows:,} flights", "repeats": options.repeats}
    return Report("typed_columns", figures, notes)


def _avro(flights: pa.Table, schema: str) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    found = []
    for row in flights.to_pylist():
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, row)
        found.append(sink.getvalue())
    return found


def _values(name: str, typed: TypedValues, values: list[bytes], repeats: int) -> list[Figure]:
    """Return the rates of decoding and of encoding with comparison."""
    array = pa.array(values, pa.binary())
    batches = [array.slice(start, _BATCH) for start in range(0, len(array), _BATCH)]
    decoded = [typed.decode(batch) for batch in batches]
    if any(each.column("_decode_error").null_count < len(each) for each in decoded):
        raise SystemExit(f"{name}: a flight does not decode")
    encoding = typed.choose_encoding(batches[0], decoded[0])
    pairs = list(zip(batches, decoded, strict=True))
    if not all(typed.encodes_same(*pair, encoding).all() for pair in pairs):
        raise SystemExit(f"{name}: a flight does not encode to the same bytes")
    decode = _rate(lambda: [typed.decode(batch) for batch in batches], len(values), repeats)
    encode = _rate(
        lambda: [typed.encodes_same(*pair, encoding) for pair in pairs], len(values), repeats
    )
    return [
        Figure(f"decoding {name}", decode, _A_CORE),
        Figure(f"encoding {name}, and comparing", encode, _A_CORE),
    ]


def _limits(typed: TypedValues, values: list[bytes], repeats: int) -> list[Figure]:
    """Return what pyarrow alone takes for the two largest parts of converting JSON."""
    parts = [
        pa.py_buffer(b"\n".join(values[at : at + _BATCH])) for at in range(0, len(values), _BATCH)
    ]

    def read_json() -> None:
        for part in parts:
            arrow_json.read_json(
                pa.BufferReader(part),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=part.size + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=typed.schema, unexpected_field_behavior="ignore"
                ),
            )

    array = pa.table({"value": pa.array(values, pa.binary())})

    def write_values() -> None:
        with pq.ParquetWriter(
            pa.BufferOutputStream(),
            array.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
        ) as writer:
            writer.write_table(array, row_group_size=_BATCH)

    return [
        Figure("pyarrow's JSON reader alone", _rate(read_json, len(values), repeats), _A_CORE),
        Figure(
            "pyarrow alone writes the values to Parquet with zstd",
            _rate(write_values, len(values), repeats),
            _A_CORE,
        ),
    ]


def _rate(work: Callable[[], object], records: int, repeats: int) -> float:
    took = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return records / median(took) / 1e6


def _topic(
    directory: Path, flights: pa.Table, records: pa.Table, ddl: str, repeats: int
) -> list[Figure]:
    """Return the figures of a topic that is merged in each way."""
    written = directory / "written"
    _write(written, records)
    figures, sizes, reads = [], {}, {}
    for way in _WAYS:
        root = directory / way.replace(", ", "-")
        shutil.copytree(written, root, symlinks=True)
        typed = None
        if way != _WAYS[0]:
            typed = TypedValues("json", ddl, keeps_values=way == _WAYS[1])
        began = time.process_time()
        sizes[way] = _merge(root, typed)
        rate = len(records) / (time.process_time() - began) / 1e6
        figures.append(Figure(f"converting {way}", rate, _A_CORE))
        reads[way] = _rate(lambda root=root: _read(root), len(records), repeats)  # type: ignore[misc]
    best = _best_parquet(directory, written, flights, records)
    figures += [Figure(f"reading {way}", rate, _A_CORE) for way, rate in reads.items()]
    figures += [Figure(f"size {way}", size / 1e6, "MB") for way, size in sizes.items()]
    figures.append(Figure("best Parquet of the same rows", best / 1e6, "MB"))
    figures.append(Figure("… without values / best Parquet", sizes[_WAYS[2]] / best, at_most=1.05))
    return figures


def _write(root: Path, records: pa.Table) -> None:
    configs = {"merge.tail.segments": "0", "retention.ms": "-1", "flush.on.append": "false"}
    Admin(str(root)).create_topics([NewTopic(_TOPIC, _PARTITIONS, topic_configs=configs)])
    with Producer(str(root)) as producer:
        for start in range(0, len(records), ROWS_AN_APPEND):
            producer.send_table(_TOPIC, records.slice(start, ROWS_AN_APPEND))
            producer.flush()


def _merge(root: Path, typed: TypedValues | None) -> int:
    """Merge each partition into one Parquet file; return the size of all."""
    cluster = Cluster(str(root))
    topic = cluster.topic(_TOPIC)
    size_bytes = 0
    for number in topic.partitions:
        log = cluster.partition_log(topic, number)
        view = log.observe()
        last = len(view.live.segments) - 1
        merged = merge(
            log.files,
            view,
            0,
            last,
            to_parquet=lambda header, base_offset: False,
            typed=typed,
            sync=False,
        )
        size_bytes += merged.size_bytes
        for segment in view.live.segments:
            log.files.store.delete(segment.file.path)
    return size_bytes


def _read(root: Path, columns: Sequence[str] = ("key", "value")) -> int:
    cluster = Cluster(str(root))
    topic = cluster.topic(_TOPIC)
    logs = [cluster.partition_log(topic, number) for number in topic.partitions]
    return sum(each.records.num_rows for log in logs for each in log.scan(0, columns=list(columns)))


def _best_parquet(directory: Path, root: Path, flights: pa.Table, records: pa.Table) -> int:
    """Return the size of the same rows, in the log's order, in a file for each partition."""
    numbers = {value: row for row, value in enumerate(records["value"].to_pylist())}
    narrow = [
        pa.field(each.name, pa.int32() if each.type == pa.int64() else each.type)
        for each in flights.schema
    ]
    at = flights.schema.get_field_index("time_hour")
    narrow[at] = pa.field("time_hour", pa.timestamp("us", "UTC"))
    fields = flights.cast(pa.schema(narrow))
    cluster = Cluster(str(root))
    topic = cluster.topic(_TOPIC)
    size_bytes = 0
    for number in topic.partitions:
        batches = list(cluster.partition_log(topic, number).scan(0))
        rows = [numbers[each] for batch in batches for each in batch.records["value"].to_pylist()]
        own = pa.table(
            {
                "offset": np.arange(len(rows)),
                "timestamp": records["timestamp"].take(rows),
                "key": records["key"].take(rows),
            }
        )
        for name in fields.schema.names:
            own = own.append_column(name, fields[name].take(rows))
        path = directory / "best.parquet"
        pq.write_table(
            own,
            path,
            compression="zstd",
            use_dictionary=[each for each in own.schema.names if each not in _DELTA],
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        )
        size_bytes += path.stat().st_size
    return size_bytes


if __name__ == "__main__":
    sys.exit(main())
