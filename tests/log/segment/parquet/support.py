"""Parquet segments for tests: written from the parts of which other tests make Arrow segments."""

from dataclasses import replace

import pyarrow as pa

from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment.parquet.writer import ParquetSegmentWriter
from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import OFFSET_DELTA_FIELD
from tests.log.support import DIRECTORY, TOPIC_ID
from tests.record.samples import header_of, record_batch


def batch_of(parts):
    """Return headers and rows of some `Part`, as a rewrite hands them to a writer."""
    headers, pieces = [], []
    for part in parts:
        deltas = part.deltas or []
        first = deltas[0] if part.base_delta is None else part.base_delta
        last = deltas[-1] if part.last_delta is None else part.last_delta
        rows = record_batch(part.rows).append_column(
            OFFSET_DELTA_FIELD, pa.array(deltas, pa.int32())
        )
        described = {
            "base_offset_delta": first,
            "last_offset_delta": last,
            "attributes": part.attributes,
            "leader_epoch": part.leader_epoch,
            "producer_id": part.producer_id,
            "producer_epoch": part.producer_epoch,
            "base_sequence": part.base_sequence,
        }
        if not part.rows:
            described |= {"base_timestamp_us": -1, "max_timestamp_us": -1}
        header = header_of(part.rows or [{"timestamp": -1}], **described)
        header = replace(header, record_count=len(part.rows))
        headers.append(replace(header, crc32c=batch_crc32c(header, rows)))
        pieces.append(rows)
    return tuple(headers), pa.concat_batches(pieces)


def parquet_writer(store, name, typed=None):
    return ParquetSegmentWriter(
        store, DIRECTORY, topic_id=TOPIC_ID, partition=0, name=name, typed=typed
    )


def put_parquet(store, arrow_batches, name, typed=None):
    """Write a list of `Part` for each row group as a Parquet segment; return its reader."""
    writer = parquet_writer(store, name, typed)
    for parts in arrow_batches:
        headers, records = batch_of(parts)
        writer.write_rewritten(records, headers)
    store.put_if_absent(f"{DIRECTORY}/{name.file_name}", writer.finish().staged, sync=False)
    return parquet_reader(store, name)


def parquet_reader(store, name):
    return SegmentReader(store, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)


def parquet_name(last, base=0, generation=1):
    return SegmentName(base, last, generation, is_parquet=True)
