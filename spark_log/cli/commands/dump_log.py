"""``spark-log dump-log``: print and check the content of a segment or index file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import (
    TIMESTAMP_TYPES,
    BatchDump,
    EntryDump,
    IndexEntry,
    Output,
    SegmentDump,
    StripeDump,
    byte_progress,
    headers_text,
    print_json,
    print_json_stream,
    print_note,
    print_text,
    read_index,
    record_documents,
)
from spark_log.cli.options import with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.errors import CorruptRecordError
from spark_log.log import ProducerEntry
from spark_log.log.files import SegmentName
from spark_log.log.stripe import StripeFileName
from spark_log.record import NO_SEQUENCE, SEQUENCES, BatchHeader, LeaderChange, parse_leader_change
from spark_log.util import printable

_ROWS_AT_ONCE = 4096
"""Number of records that are converted to Python objects at a time."""


@with_examples("spark-log dump-log /data/log/flights.*/flights-0/*.log --print-data-log")
@with_option_groups
def dump_log(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="A .log, .parquet, .index, .timeindex or .keyindex file of a partition, or a "
            ".stripe or .home file of a stripe.",
        ),
    ],
    output: Output,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print the records too.")
    ] = False,
) -> None:
    """Dump a segment, index or stripe file and check it.

    Shows every batch header and verifies every checksum. A damaged file is dumped as far as it can
    be read. Then the problem is reported with its position, and the exit status is 1. An object of
    a stripe has no offsets: they follow from the home marker and the objects before it, in the same
    directory. If those are missing, the offsets of each partition are counted from 0.
    """
    of_stripe = StripeFileName.parse(file.name)
    if of_stripe is not None:
        dump = StripeDump(file, of_stripe)
        if of_stripe.is_home:
            _dump_home(file, dump, output)
        else:
            _dump_object(file, dump, output, print_data_log)
        return
    segment = SegmentName.parse(file.name)
    name = segment or SegmentName.parse_index(file.name)
    if name is None:
        raise typer.BadParameter(
            f"{file.name!r} is not the name of a segment (….log, ….parquet), of its index "
            f"(….index, ….timeindex, ….keyindex), or of a file of a stripe (….stripe, ….home), "
            f"which begins with 20 digits",
            param_hint="'FILE'",
        )
    if segment is not None:
        _dump_segment(file, name, output, print_data_log)
    else:
        _dump_index(file, name, output)


def _dump_segment(file: Path, name: SegmentName, output: Output, with_records: bool) -> None:
    segment = SegmentDump(file, name)
    problems: list[dict[str, object]] = []

    def batches() -> Iterator[BatchDump]:
        with byte_progress(f"Checking {file.name}", segment.size_bytes) as done:
            for batch in segment.batches():
                if batch.problem is not None:
                    problems.append({"position": batch.position, "problem": batch.problem})
                yield batch
                done(batch.position + batch.size_bytes)

    if output.is_json:
        head = {
            "file": str(file),
            "topic_id": segment.topic_id,
            "partition": segment.partition,
            "base_offset": segment.base_offset,
            "size_bytes": segment.size_bytes,
        }
        documents = (
            _batch_document(segment.base_offset, batch, with_records) for batch in batches()
        )
        print_json_stream(
            head, "batches", documents, lambda: {"is_valid": not problems, "problems": problems}
        )
    else:
        print_text(f"Dumping {file}")
        print_text(f"Topic id: {segment.topic_id} partition: {segment.partition}")
        print_text(f"Log starting offset: {segment.base_offset}")
        for batch in batches():
            print_text(_batch_line(segment.base_offset, batch))
            if with_records:
                _print_records(batch)
    _raise_first(file, problems)


def _dump_object(file: Path, dump: StripeDump, output: Output, with_records: bool) -> None:
    problems: list[dict[str, object]] = []
    state = dump.state_before()

    def entries() -> Iterator[EntryDump]:
        for each in dump.entries(state):
            if each.batch.problem is not None:
                problems.append({"position": each.batch.position, "problem": each.batch.problem})
            yield each

    if output.is_json:
        head = {
            "file": str(file),
            "topic_id": dump.topic_id,
            "stripe": dump.stripe,
            "number": dump.name.number,
            "size_bytes": dump.size_bytes,
            "has_offsets": state is not None,
        }
        documents = (
            {
                "partition": each.partition,
                **_batch_document(each.base_offset, each.batch, with_records),
            }
            for each in entries()
        )
        print_json_stream(
            head, "batches", documents, lambda: {"is_valid": not problems, "problems": problems}
        )
    else:
        print_text(f"Dumping {file}")
        print_text(f"Topic id: {dump.topic_id} stripe: {dump.stripe} object: {dump.name.number}")
        for each in entries():
            print_text(f"partition: {each.partition} {_batch_line(each.base_offset, each.batch)}")
            if with_records:
                _print_records(each.batch)
    if state is None:
        print_note(
            "The objects before it, or a home marker, are not in its directory: the offsets of "
            "each partition are counted from 0."
        )
    _raise_first(file, problems)


def _dump_home(file: Path, dump: StripeDump, output: Output) -> None:
    home = dump.home()
    if output.is_json:
        partitions = [
            {
                "partition": partition,
                "end_offset": state.offset,
                "leader_epoch": home.leader_epochs.get(partition, 0),
                "producers": [
                    {_snake(key): value for key, value in _producer_fields(*each).items()}
                    for each in state.entries()
                ],
            }
            for partition, state in home.partitions()
        ]
        print_json(
            {
                "file": str(file),
                "topic_id": dump.topic_id,
                "stripe": dump.stripe,
                "number": dump.name.number,
                "size_bytes": dump.size_bytes,
                "has_ended": home.is_ended,
                "partitions": partitions,
            }
        )
        return
    print_text(f"Dumping {file}")
    ended = " (the stripe has ended)" if home.is_ended else ""
    print_text(
        f"Topic id: {dump.topic_id} stripe: {dump.stripe} home marker: {dump.name.number}{ended}"
    )
    for partition, state in home.partitions():
        epoch = home.leader_epochs.get(partition, 0)
        print_text(f"partition: {partition} endOffset: {state.offset} leaderEpoch: {epoch}")
        for each in state.entries():
            fields = _producer_fields(*each).items()
            print_text("| " + " ".join(f"{key}: {value}" for key, value in fields))


def _producer_fields(producer_id: int, entry: ProducerEntry) -> dict[str, int | None]:
    """Return a producer with the names of Kafka's dump of a producer snapshot."""
    last = entry.runs[-1] if entry.runs else None
    return {
        "producerId": producer_id,
        "producerEpoch": entry.epoch,
        "currentTxnFirstOffset": entry.first_transaction_offset,
        "lastSequence": NO_SEQUENCE if last is None else (last.next_sequence - 1) % SEQUENCES,
        "lastOffset": -1 if last is None else last.end_offset - 1,
    }


def _raise_first(file: Path, problems: Sequence[Mapping[str, object]]) -> None:
    """Raise the first problem of a file, if it has one."""
    if not problems:
        return
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise CorruptRecordError(
        f"{file}, position {first['position']}: the record batch {first['problem']}{more}",
        path=str(file),
    )


def _dump_index(file: Path, name: SegmentName, output: Output) -> None:
    dump = read_index(file, name)
    entries = dump.entries
    if output.is_json:
        head = {"file": str(file), "base_offset": name.base_offset}
        print_json_stream(head, "entries", map(_entry_document, entries), dict)
    else:
        print_text(f"Dumping {file}")
        for entry in entries:
            fields = _entry_document(entry)
            print_text(" ".join(f"{key}: {_text(value)}" for key, value in fields.items()))
    if any(entry.is_valid is None for entry in entries):
        print_note(f"{name.file_name} does not exist: the entries could not be checked.")
    wrong = next((entry for entry in entries if entry.is_valid is False), None)
    problem = dump.problem
    if wrong is not None:
        which = f"offset {wrong.offset}" if wrong.row is None else f"row {wrong.row}"
        problem = f"the entry for {which} does not fit {name.file_name}"
    if problem is not None:
        raise CorruptRecordError(
            f"{file}: {problem}. Delete the file: an index is rebuilt from its segment",
            path=str(file),
        )


def _header_fields(base_offset: int, header: BatchHeader) -> dict[str, object]:
    """Return a header with the names and in the order of Kafka's ``DumpLogSegments``."""
    has_sequence = header.base_sequence != NO_SEQUENCE
    last_sequence = header.base_sequence + header.record_count - 1 if has_sequence else NO_SEQUENCE
    return {
        "baseOffset": base_offset + header.base_offset_delta,
        "lastOffset": base_offset + header.last_offset_delta,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": bool(header.attributes & BatchHeader.TRANSACTIONAL_BIT),
        "isControl": header.is_control,
    }


def _marker_fields(header: BatchHeader | None) -> dict[str, object]:
    """Return how the transaction ended, as Kafka's dump names it; empty if it is no marker."""
    if header is None or header.marker is None:
        return {}
    return {"endTxnMarker": header.marker.name}


def _leader_change(batch: BatchDump) -> LeaderChange | None:
    """Return what a barrier says; None if the batch is none."""
    header, records = batch.header, batch.records
    if header is None or not header.is_control or header.marker or not records:
        return None
    key, value = (records.records.column(name)[0].as_py() for name in ("key", "value"))
    with suppress(ValueError):
        return parse_leader_change(key, value)
    return None


def _batch_line(base_offset: int, batch: BatchDump) -> str:
    header = batch.header
    fields: dict[str, object] = {"position": batch.position}
    if header is not None:
        fields = _header_fields(base_offset, header) | fields
        fields[TIMESTAMP_TYPES[header.timestamp_type]] = header.max_timestamp_us // 1000
    fields["size"] = batch.size_bytes
    if header is not None:
        fields |= {"magic": header.magic, "compresscodec": batch.compression, "crc": header.crc32c}
    fields["isvalid"] = batch.problem is None
    fields |= _marker_fields(header)
    change = _leader_change(batch)
    if change is not None:
        fields["LeaderChange"] = change
    line = " ".join(f"{key}: {_text(value)}" for key, value in fields.items())
    return line if batch.problem is None else f"{line} ({batch.problem})"


def _batch_document(base_offset: int, batch: BatchDump, with_records: bool) -> dict[str, object]:
    header = batch.header
    document: dict[str, object] = {}
    if header is not None:
        named = _header_fields(base_offset, header) | _marker_fields(header)
        document = {_snake(key): value for key, value in named.items()}
        document |= {
            "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
            "max_timestamp_ms": header.max_timestamp_us // 1000,
            "magic": header.magic,
            "crc": header.crc32c,
        }
    document |= {
        "position": batch.position,
        "size_bytes": batch.size_bytes,
        "compression": batch.compression,
        "is_valid": batch.problem is None,
    }
    if batch.problem is not None:
        document["problem"] = batch.problem
    change = _leader_change(batch)
    if change is not None:
        document["leader_change"] = asdict(change)
    if with_records and batch.records is not None:
        document["records"] = record_documents(batch.records)
    return document


def _print_records(batch: BatchDump) -> None:
    if batch.header is None or batch.records is None:
        return
    kind = TIMESTAMP_TYPES[batch.header.timestamp_type]
    sequence = batch.header.base_sequence
    for piece in batch.records.pieces(_ROWS_AT_ONCE):
        rows = zip(
            piece.offsets.tolist(),
            (piece.timestamps_us // 1000).tolist(),
            *(piece.records.column(name).to_pylist() for name in ("key", "value", "headers")),
            strict=True,
        )
        lines = []
        for offset, time_ms, key, value, headers in rows:
            shown_headers = _shown(headers_text(headers, b",", b"null"))
            line = (
                f"| offset: {offset} {kind}: {time_ms} keySize: {_size(key)} "
                f"valueSize: {_size(value)} sequence: {sequence} headers: [{shown_headers}]"
            )
            line += "" if key is None else f" key: {_shown(key)}"
            line += "" if value is None else f" payload: {_shown(value)}"
            lines.append(line)
            sequence += 0 if sequence == NO_SEQUENCE else 1
        print_text("\n".join(lines))


def _shown(data: bytes) -> str:
    """Return bytes as text that stays on its line."""
    return printable(data.decode("utf-8", "replace"))


def _entry_document(entry: IndexEntry) -> dict[str, object]:
    document: dict[str, object] = {}
    if entry.timestamp_us is not None:
        document["timestamp"] = entry.timestamp_us // 1000
    if entry.key_hash is not None:
        document |= {"key_hash": entry.key_hash, "row": entry.row}
    if entry.offset is not None:
        document["offset"] = entry.offset
    if entry.position is not None:
        document["position"] = entry.position
    if entry.is_valid is not None:
        document["is_valid"] = entry.is_valid
    return document


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
