"""The answers of commands: text for people, JSON for programs, both on stdout.

Names and ids come from untrusted sources and may contain control characters. These are escaped
here, so that none reaches a terminal. Records are printed by `print_bytes`, unchanged.
"""

from __future__ import annotations

import json as json_module
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spark_log.util import escape_as_json, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

before_printing: Callable[[], None] | None = None
"""The function that is called before each write to stdout, to clear a progress bar on the same
terminal; None without a bar."""


class Format(StrEnum):
    """Values of ``--output``."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Output:
    """The form of a command's answer."""

    format: Format

    @classmethod
    def from_options(
        cls,
        output: Annotated[
            Format, typer.Option("--output", help="Form of the answer.")
        ] = Format.TEXT,
        json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    ) -> Output:
        """Return the form; ``--json`` overrides ``--output``."""
        return cls(Format.JSON if json else output)

    @property
    def is_json(self) -> bool:
        """Whether the answer is JSON."""
        return self.format is Format.JSON

    def answer(self, text: str, document: Mapping[str, object]) -> None:
        """Print a line of text, or the JSON document with the same content."""
        if self.is_json:
            print_json(document)
        else:
            print_text(text)


def print_text(text: str) -> None:
    """Print a line (or several) of text to stdout, control characters escaped.

    The caller passes names that may contain line breaks through `printable` first.
    """
    shown = _encodable(printable_lines(text))
    print_bytes(f"{shown}\n".encode("utf-8", "surrogateescape"))


def print_json(document: object) -> None:
    """Print one JSON document to stdout, in UTF-8 with any locale."""
    print_bytes(f"{to_json(document, indent=2)}\n".encode())


def print_json_lines(documents: Iterable[object]) -> None:
    """Print JSON documents to stdout, each on its own line."""
    print_bytes("".join(f"{to_json(document)}\n" for document in documents).encode())


def print_json_stream(
    head: Mapping[str, object],
    name: str,
    items: Iterable[object],
    tail: Callable[[], Mapping[str, object]],
) -> None:
    """Print one JSON document with a long list, without holding the list in memory.

    Args:
        head: the members before the list.
        name: the name of the list.
        items: the items of the list.
        tail: the function that returns the members after the list, called when all items are
            printed.
    """
    print_text(f"{to_json(head)[:-1]}, {to_json(name)}: [")
    between = ""
    for item in items:
        print_bytes(f"{between}{to_json(item)}".encode())
        between = ",\n"
    rest = to_json(tail())[1:-1]
    print_text(f"\n]{', ' if rest else ''}{rest}}}")


def to_json(document: object, indent: int | None = None) -> str:
    """Return a document as JSON text that can be encoded as UTF-8."""
    text = json_module.dumps(document, ensure_ascii=False, indent=indent)
    # JSON does not escape DEL and C1, which terminals interpret.
    text = escape_as_json(text)
    # A path that is not UTF-8 has lone surrogates: \udcff is also how JSON escapes them.
    return _escaped(text)


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout unchanged."""
    if before_printing is not None:
        before_printing()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings: a table on a terminal, otherwise plain aligned columns.

    On a terminal that is too narrow, headings are broken at their hyphens. If the table is still
    too wide, each row is printed as a block of lines with a heading and a value.

    Args:
        columns: the headings.
        rows: the rows. Columns of numbers are aligned to the right, others to the left. None is an
            unknown number, shown as ``-``. Control characters are escaped.
    """
    rows, numeric = _checked(columns, rows)
    if not sys.stdout.isatty():
        _print_plain_table(columns, rows, numeric)
        return
    broken = [_broken(heading, [row[at] for row in rows]) for at, heading in enumerate(columns)]
    if not any(_print_rich_table(headings, rows, numeric) for headings in (columns, broken)):
        _print_blocks(columns, rows)


def live_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table of `print_table` for a part of a screen that is drawn repeatedly.

    If the table is too wide, texts are broken into several lines, and numbers stay whole.
    """
    return _rich_table(columns, *_checked(columns, rows))


def counted(count: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_note(text: str) -> None:
    """Print a line that is not part of the answer to stderr, control characters escaped."""
    if before_printing is not None:
        before_printing()
    print(printable_lines(text), file=sys.stderr, flush=True)


def _print_rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]
) -> bool:
    """Print to a terminal; return False if it is too narrow, where Rich would truncate offsets."""
    from rich.console import Console

    table = _rich_table(columns, rows, numeric)
    console = Console()
    roomy = console.options.update(max_width=100_000)
    if console.measure(table, options=roomy).maximum > console.width:
        return False
    console.print(table)
    return True


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading, right in zip(columns, numeric, strict=True):
        justify: JustifyMethod = "right" if right else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    return table


def _checked(
    columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[list[list[object]], list[bool]]:
    """Return rows of numbers and printable texts, and for each column whether it has numbers."""
    checked: list[list[object]] = [
        [cell if _is_number(cell) else printable(str(cell)) for cell in row] for row in rows
    ]
    numeric = [
        bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))
    ]
    return checked, numeric


def _is_number(cell: object) -> bool:
    return cell is None or type(cell) in (int, float)


def _broken(heading: str, cells: Sequence[object]) -> str:
    """Return a heading on several lines, broken at hyphens, not wider than its cells need."""
    parts = [f"{part}-" for part in heading.split("-")]
    parts[-1] = parts[-1].removesuffix("-")
    width = max([*(len(_shown(cell)) for cell in cells), *map(len, parts)])
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _print_blocks(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    width = max(map(len, columns), default=0)
    for number, row in enumerate(rows):
        if number:
            print_text("")
        for heading, cell in zip(columns, row, strict=True):
            print_text(f"{heading:<{width}}  {_shown(cell)}".rstrip())


def _shown(cell: object) -> str:
    return f"{cell:,}" if type(cell) is int else _plain(cell)


def _plain(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:.1f}" if type(cell) is float else _escaped(str(cell))


def _encodable(text: str) -> str:
    """Return a text that can be encoded: bytes of a path are kept, lone surrogates escaped."""
    return "".join(
        part if "\udc80" <= part <= "\udcff" else _escaped(part)
        for part in re.split("([\udc80-\udcff])", text)
    )


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _print_plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]
) -> None:
    cells = [[heading.upper() for heading in columns], *(list(map(_plain, row)) for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    for row in cells:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        print_text("  ".join(aligned).rstrip())
