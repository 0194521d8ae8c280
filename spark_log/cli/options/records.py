"""Options of commands that print records: the printed fields and their form."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from spark_log.cli.format import (
    TOKENS,
    FieldDeserializer,
    FormatString,
    Output,
    TextFormat,
    find_deserializer,
    format_text,
    print_bytes,
    print_json_lines,
    print_note,
    record_documents,
)
from spark_log.cli.options.properties import with_properties
from spark_log.log import FetchedRecords

_AVRO: Final = "avro"
"""The deserializer that exists if fastavro is installed."""

_ROWS_AT_ONCE: Final = 4096
"""Number of records that are converted to Python objects at a time."""


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form of a command's printed records, unless its answer is JSON.

    Attributes:
        text_format: the printed fields, used without a format string.
        format_string: kcat's format string; None without one.
        key: the deserializer of keys, also for JSON.
        value: the deserializer of values, also for JSON.
        is_raw: whether the bytes of records are printed as they are.
    """

    text_format: TextFormat
    format_string: FormatString | None
    key: FieldDeserializer
    value: FieldDeserializer
    is_raw: bool

    @classmethod
    def from_options(
        cls,
        print_key: Annotated[bool, typer.Option("--print-key", help="Print keys.")] = False,
        print_timestamp: Annotated[
            bool, typer.Option("--print-timestamp", help="Print timestamps, in milliseconds.")
        ] = False,
        print_partition: Annotated[
            bool, typer.Option("--print-partition", help="Print partitions.")
        ] = False,
        print_offset: Annotated[
            bool, typer.Option("--print-offset", help="Print offsets.")
        ] = False,
        print_headers: Annotated[
            bool, typer.Option("--print-headers", help="Print headers.")
        ] = False,
        key_separator: Annotated[
            str | None,
            typer.Option(
                "--key-separator", metavar="TEXT", help="Text between columns. [default: a tab]"
            ),
        ] = None,
        key_deserializer: Annotated[
            str,
            typer.Option(
                "--key-deserializer",
                metavar="string|json|hex|avro",
                help="Form in which keys are printed.",
            ),
        ] = "string",
        value_deserializer: Annotated[
            str,
            typer.Option(
                "--value-deserializer",
                metavar="string|json|hex|avro",
                help="Form in which values are printed.",
            ),
        ] = "string",
        avro_schema: Annotated[
            Path | None,
            typer.Option(
                "--avro-schema",
                metavar="FILE",
                help="Schema of avro, in JSON. Values may be plain, in Avro's single object "
                "encoding, or in Confluent's with the id of a schema, which is skipped.",
            ),
        ] = None,
        format_string: Annotated[
            str | None,
            typer.Option(
                "-f",
                "--format",
                metavar="TEXT",
                help="Print each record by a format string of kcat, and nothing else: "
                + ", ".join(f"%{token} {meaning}" for token, meaning in TOKENS.items())
                + r"; \n, \r, \t, \\, \xNN.",
            ),
        ] = None,
        raw: Annotated[
            bool,
            typer.Option(
                "--raw",
                help="Print keys, values and headers byte by byte. [default: on a terminal control "
                "characters are escaped; bytes that are not UTF-8 are replaced, with --format only "
                "on a terminal]",
            ),
        ] = False,
        properties: Annotated[
            list[str] | None,
            typer.Option(
                "--property",
                "--formatter-property",
                metavar="KEY=VALUE",
                help="Property of Kafka's formatter: print.key, print.value, print.timestamp, "
                "print.offset, print.epoch, print.partition, print.headers, key.separator, "
                "line.separator, headers.separator, null.literal, key.deserializer, "
                "value.deserializer. Repeatable.",
            ),
        ] = None,
    ) -> RecordForm:
        """Return the form that the user asked for.

        Raises:
            InvalidConfigurationError: a deserializer, a property or a token is not known.
            typer.BadParameter: two options exclude each other.
        """
        if format_string is not None:
            others = {
                "--print-key": print_key,
                "--print-timestamp": print_timestamp,
                "--print-partition": print_partition,
                "--print-offset": print_offset,
                "--print-headers": print_headers,
                "--key-separator": key_separator is not None,
                "--property": properties,
            }
            for name, is_given in others.items():
                if is_given:
                    raise typer.BadParameter(f"--format and {name} exclude each other")
        text_format = TextFormat(
            print_key=print_key,
            print_timestamp=print_timestamp,
            print_partition=print_partition,
            print_offset=print_offset,
            print_headers=print_headers,
            key_separator=TextFormat().key_separator if key_separator is None else key_separator,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        text_format = with_properties(text_format, properties or [])
        return cls(
            text_format,
            None if format_string is None else FormatString.parse(format_string),
            *_deserializers(text_format, avro_schema),
            raw,
        )

    def printer(self, output: Output) -> RecordPrinter:
        """Return a printer for this form.

        Raises:
            typer.BadParameter: the answer is JSON, and there is a format string.
        """
        if self.format_string is not None and output.is_json:
            raise typer.BadParameter("--format and --output json exclude each other")
        return RecordPrinter(output, self)

    def text(self, topic: str, records: FetchedRecords, *, is_terminal: bool) -> bytes:
        """Return records as text.

        Args:
            topic: the records' topic.
            records: the records.
            is_terminal: whether the text is for a terminal.

        Raises:
            SerializationError: a deserializer refused a key or value.
        """
        escapes = is_terminal and not self.is_raw
        if self.format_string is not None:
            return self.format_string.text(
                topic, records, self.key, self.value, for_terminal=escapes
            )
        return format_text(
            records,
            self.text_format,
            self.key,
            self.value,
            is_raw=self.is_raw,
            for_terminal=escapes,
        )


def _deserializers(
    text_format: TextFormat, avro_schema: Path | None
) -> tuple[FieldDeserializer, FieldDeserializer]:
    """Return the deserializers of keys and of values."""
    names = {
        "key.deserializer": text_format.key_deserializer,
        "value.deserializer": text_format.value_deserializer,
    }
    if _AVRO not in names.values():
        if avro_schema is not None:
            raise typer.BadParameter(
                "--avro-schema requires --key-deserializer avro or --value-deserializer avro"
            )
        avro = {}
    elif avro_schema is None:
        raise typer.BadParameter("the deserializer avro requires --avro-schema")
    else:
        from spark_log.cli.format import avro_deserializer

        avro = {_AVRO: avro_deserializer(avro_schema)}
    key, value = (
        avro.get(name) or find_deserializer(setting, name) for setting, name in names.items()
    )
    return key, value


class RecordPrinter:
    """Prints records in the requested form, and reports their number at the end."""

    def __init__(self, output: Output, form: RecordForm) -> None:
        """Print to the present stdout, which may be a terminal or not."""
        self._output = output
        self._form = form
        self._is_terminal = sys.stdout.isatty()

    def print_all(self, found: Iterable[tuple[str, FetchedRecords]]) -> None:
        """Print records until they end; report their number then, and on Ctrl-C.

        Args:
            found: topics with their records.

        Raises:
            SerializationError: a key or value is not what its deserializer takes.
        """
        count = 0
        try:
            for topic, records in found:
                for piece in records.pieces(_ROWS_AT_ONCE):
                    count += len(piece)  # before printing, as Kafka: Ctrl-C may come right after it
                    self._print(topic, piece)
        except KeyboardInterrupt:
            _report(count)
            raise
        _report(count)

    def _print(self, topic: str, records: FetchedRecords) -> None:
        form = self._form
        if self._output.is_json:
            documents = record_documents(records, form.key, form.value)
            print_json_lines({"topic": topic, **each} for each in documents)
        else:
            print_bytes(form.text(topic, records, is_terminal=self._is_terminal))


def _report(count: int) -> None:
    print_note(f"Processed a total of {count} messages")
