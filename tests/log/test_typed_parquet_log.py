"""A log whose cold part has typed columns: consumers read what was appended, byte by byte."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.rewrite import merge
from spark_log.log.verify.finding import LogSeverity
from spark_log.log.verify.verifier import Verifier
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.values import typed_values_of
from tests.log.support import DIRECTORY, file_names, open_log, values
from tests.record.samples import START_US, record_batch, row

TYPED = {
    "table_format": "delta",
    "table_value_format": "json",
    "table_keep_value": False,
    "merge_tail_segments": 0,
    "retention_ms": -1,
}


@pytest.fixture
def store(memory_store):
    return memory_store


def events(first, count):
    return [b'{"n":%d,"name":"x%d","extra":1}' % (n, n % 3) for n in range(first, first + count)]


def append(log, contents, *, keys=None, **options):
    keys = keys or [None] * len(contents)
    rows = [
        row(value, key=key, timestamp=START_US + at)
        for at, (value, key) in enumerate(zip(contents, keys, strict=True))
    ]
    log.append(record_batch(rows), **options)


def table_of(store):
    """Return the rows of all Parquet files, as another program reads them."""
    names = [name for name in file_names(store) if name.endswith(".parquet")]
    buffers = [store.open_buffer(f"{DIRECTORY}/{name}") for name in names]
    tables = [parquet.read_table(pa.BufferReader(each)) for each in buffers]
    return pa.concat_tables(tables, promote_options="default")


def errors(log):
    return [each for each in Verifier(log).findings() if each.severity is LogSeverity.ERROR]


def contents(log):
    return [value for _, value in values(log)]


def test_a_merge_again_gives_old_rows_the_columns_that_were_added_later(store, clock):
    log = open_log(store, clock=clock, table_schema="n INT", **TYPED)
    for first in range(0, 30, 10):
        append(log, [*events(first, 9), b"broken"])
    before = contents(log)
    PartitionCleaner(log, table_at_once=True).clean()
    clock.advance_ms(120_000)
    PartitionCleaner(log, table_at_once=True).clean()
    assert table_of(store).schema.names[5:] == ["n", "_decode_error"]
    assert contents(log) == before

    schema = "n INT, name STRING, extra INT"
    log = open_log(store, clock=clock, table_schema=schema, **TYPED)
    for first in range(30, 60, 10):
        append(log, events(first, 10))
        before += events(first, 10)
    PartitionCleaner(log, table_at_once=True).clean()
    clock.advance_ms(120_000)
    PartitionCleaner(log, table_at_once=True).clean()

    assert contents(log) == before
    old_and_new = table_of(store).sort_by("offset")
    assert old_and_new.column("n").null_count == 3
    assert old_and_new.column("name").null_count == 30

    view = log.observe()
    typed, last = typed_values_of(log.config), len(view.live.segments) - 1
    merge(log.files, view, 0, last, to_parquet=lambda header, offset: False, typed=typed)
    clock.advance_ms(120_000)
    PartitionCleaner(log, table_at_once=True).clean()

    table = table_of(store)
    assert table.schema.names[5:] == ["n", "name", "extra", "_decode_error"]
    assert table.num_rows == 60
    assert table.column("name").null_count == 3
    assert table.column("value").to_pylist().count(b"broken") == 3
    assert table.column("value").null_count == 57
    assert contents(log) == before
    assert errors(log) == []


def test_compaction_and_transactions(store, clock):
    log = open_log(
        store,
        clock=clock,
        table_schema="n INT, name STRING, extra INT",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0,
        **TYPED,
    )
    keys = [b"k%d" % (n % 4) for n in range(10)]
    append(log, events(0, 10), keys=keys)
    producer = ProducerAppend(7, 0, 0, is_transactional=True)
    append(log, events(100, 4), keys=keys[:4], producer=producer)
    log.append_markers([EndTransactionMarker(7, 1, is_committed=False)])
    append(log, [None, b"no JSON"], keys=[b"k1", b"k9"])
    clock.advance_ms(120_000)

    assert compact(log, now_us=clock.time_us()).segments_written

    table = table_of(store)
    assert table.column("n").to_pylist() == [6, 7, 8, 9, *[None] * (table.num_rows - 4)]
    assert table.column("value").null_count >= 4
    assert contents(log) == [*events(6, 4), None, b"no JSON"]
    assert errors(log) == []


def test_a_reader_that_wants_no_values_reads_no_typed_columns(store, clock):
    log = open_log(store, clock=clock, table_schema="n INT, name STRING", **TYPED)
    append(log, events(0, 10))
    PartitionCleaner(log, table_at_once=True).clean()

    times = [each.records.schema.names for each in log.scan(0, columns=["timestamp"])]

    assert times == [["timestamp"]]
