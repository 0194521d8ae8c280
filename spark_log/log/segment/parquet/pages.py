"""The pages of a Parquet segment: where each one lies, and the read of one alone.

pyarrow reads a column of a whole row group, 65,536 rows. A page has 20,000 rows or 1 MiB at most.
To read one, its bytes are given to pyarrow as a file of their own, behind which a footer is written
that names this page alone. So pyarrow decodes it, and checks its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.log.segment.parquet.thrift import (
    BINARY,
    I32,
    I64,
    STRUCT,
    ThriftReader,
    Value,
    write_struct,
)

PAGE_DTYPE: Final = np.dtype(
    [
        ("column", "<u2"),
        ("is_dictionary", "<u1"),
        ("first_row", "<u4"),
        ("rows", "<u4"),
        ("position", "<u8"),
        ("size_bytes", "<u4"),
    ]
)
"""A page: the number of its column among the leaves of the schema, its first row in the segment,
the number of its rows, its position in the file, and its size with its header. The dictionary of a
column chunk has the rows of the chunk. In the order of column, ``is_dictionary`` and first row."""

_MAGIC: Final = b"PAR1"
_SCHEMA: Final = 2
"""Field of the footer with the schema."""

_ROW_GROUPS: Final = 4
"""Field of the footer with the row groups."""

_REPEATED: Final = 2

_WRONG_FIELDS: Final = AttributeError, IndexError, KeyError, OverflowError, TypeError
"""The errors of fields that are missing, or have another type, in a damaged footer."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of a file between two positions."""


class Leaf(NamedTuple):
    """A column of Parquet that is a whole column of Arrow.

    Attributes:
        number: its number among the leaves of the schema.
        kind: its physical type.
        element: its struct in the footer's schema.
    """

    number: int
    kind: int
    element: bytes


def flat_leaves(footer: bytes) -> dict[str, Leaf]:
    """Return the columns of a footer's schema that are not nested, by their names.

    Raises:
        ValueError: the footer is damaged.
    """
    reader = ThriftReader(footer)
    elements = [reader.raw_struct() for _ in range(reader.skip_to_list(_SCHEMA))]
    try:
        return dict(_flat_leaves(elements))
    except _WRONG_FIELDS as error:
        raise ValueError(f"the schema in its footer lacks a field: {error!r}") from None


def _flat_leaves(elements: list[tuple[dict[int, Any], bytes]]) -> Iterator[tuple[str, Leaf]]:
    number, at = 0, 1
    while at < len(elements):
        fields, element = elements[at]
        if fields.get(5) is None:  # num_children
            if fields[3] == _REPEATED:
                raise ValueError("its footer has a column that repeats")
            yield fields[4].decode(), Leaf(number, int(fields[1]), element)
            number, at = number + 1, at + 1
        else:
            at, leaves = _skip_nested(elements, at)
            number += leaves


def _skip_nested(elements: list[tuple[dict[int, Any], bytes]], at: int) -> tuple[int, int]:
    """Return the number of the element behind a nested column, and the number of its leaves."""
    left, leaves = 1, 0
    while left:
        if at >= len(elements):
            raise ValueError("the schema in its footer is cut")
        children = elements[at][0].get(5)
        left += -1 if children is None else int(children) - 1
        leaves += children is None
        at += 1
    return at, leaves


def find_pages(footer: bytes, read: Read, columns: Collection[str]) -> np.ndarray:
    """Return the pages of some columns as an array of `PAGE_DTYPE`.

    Args:
        footer: the footer of the Parquet format, without what follows it.
        read: reads the file's page index.
        columns: names of columns; nested ones are left out.

    Raises:
        ValueError: the footer or the page index is damaged, or the file has no page index.
    """
    leaves = flat_leaves(footer)
    numbers = [leaves[name].number for name in columns if name in leaves]
    reader = ThriftReader(footer)
    row_groups = [reader.struct() for _ in range(reader.skip_to_list(_ROW_GROUPS))]
    try:
        entries = [
            page
            for number in sorted(numbers)
            for page in _pages_of_column(row_groups, number, read)
        ]
    except _WRONG_FIELDS as error:
        raise ValueError(f"its footer or its page index lacks a field: {error!r}") from None
    found = np.array(entries, PAGE_DTYPE)
    return found[np.lexsort((found["first_row"], found["is_dictionary"], found["column"]))]


def _pages_of_column(
    row_groups: list[dict[int, Any]], number: int, read: Read
) -> Iterator[tuple[int, bool, int, int, int, int]]:
    first_row = 0
    for row_group in row_groups:
        rows, chunk = row_group[3], row_group[1][number]
        metadata = chunk[3]
        index = ThriftReader(read(chunk[4], chunk[4] + chunk[5])).struct()[1]
        dictionary = metadata.get(11)
        if dictionary:
            size_bytes = metadata[9] - dictionary
            yield number, True, first_row, rows, dictionary, size_bytes
        starts = [page.get(3, 0) for page in index]
        for page, start, end in zip(index, starts, [*starts[1:], rows], strict=True):
            yield number, False, first_row + start, end - start, page[1], page[2]
        first_row += rows


class Page(NamedTuple):
    """The page that has a row.

    Attributes:
        leaf: its column.
        row: number of the row in the page.
        rows: number of its rows.
        chunks: the parts of the file with it: the column chunk's dictionary if it has one, and the
            page.
    """

    leaf: Leaf
    row: int
    rows: int
    chunks: tuple[tuple[int, int], ...]

    def decode(self, parts: Sequence[bytes | memoryview]) -> pa.Array:
        """Return the value of the row, as an array of one value.

        Args:
            parts: the bytes of `chunks`.

        Raises:
            ValueError, OSError, pa.ArrowException: the page is damaged.
        """
        from pyarrow import parquet  # late: clients without a table start without it

        sizes = [len(part) for part in parts]
        footer = _footer(self.leaf, self.rows, sizes)
        data = b"".join([_MAGIC, *parts, footer, len(footer).to_bytes(4, "little"), _MAGIC])
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        column = file.read_row_group(0, use_threads=False).column(0)
        if len(column) != self.rows:
            raise ValueError(f"a page has {len(column)} rows instead of {self.rows}")
        value = column.slice(self.row, 1).combine_chunks()
        value.validate(full=True)
        return pa.concat_arrays([value])  # a copy: the slice would keep the page


def _footer(leaf: Leaf, rows: int, sizes: list[int]) -> bytes:
    """Return the footer of a file with one page, and perhaps its dictionary before it."""
    size_bytes = sum(sizes)
    dictionary_bytes = size_bytes - sizes[-1]
    first = len(_MAGIC)
    name = ThriftReader(leaf.element).struct()[4]
    metadata = {
        1: Value(I32, leaf.kind),
        2: Value(I32, [0, 3]),  # PLAIN, RLE; a page names its own encoding
        3: Value(BINARY, [name]),
        4: Value(I32, 6),  # ZSTD
        5: Value(I64, rows),
        6: Value(I64, size_bytes),
        7: Value(I64, size_bytes),
        9: Value(I64, first + dictionary_bytes),
    }
    if dictionary_bytes:
        metadata[11] = Value(I64, first)
    chunk = write_struct({2: Value(I64, first), 3: Value(STRUCT, write_struct(metadata))})
    root = write_struct({4: Value(BINARY, b"schema"), 5: Value(I32, 1)})
    row_group = {1: Value(STRUCT, [chunk]), 2: Value(I64, size_bytes), 3: Value(I64, rows)}
    return write_struct(
        {
            1: Value(I32, 2),
            _SCHEMA: Value(STRUCT, [root, leaf.element]),
            3: Value(I64, rows),
            _ROW_GROUPS: Value(STRUCT, [write_struct(row_group)]),
        }
    )


class PageTable:
    """The pages of a segment, to find those with a row."""

    def __init__(self, pages: np.ndarray, footer: bytes) -> None:
        """Hold the pages.

        Args:
            pages: what `find_pages` returned.
            footer: the file's footer.

        Raises:
            ValueError: the footer is damaged.
        """
        self._leaves = flat_leaves(footer)
        self._of: dict[tuple[int, int], np.ndarray] = {}
        self.pages = pages
        for leaf in self._leaves.values():
            mine = pages[pages["column"] == leaf.number]
            for is_dictionary in (0, 1):
                self._of[leaf.number, is_dictionary] = mine[mine["is_dictionary"] == is_dictionary]

    def find(self, column: str, row: int) -> Page | None:
        """Return the page of a column that has a row; None if the table does not have it.

        Args:
            column: the column's name.
            row: the row's number in the segment.
        """
        leaf = self._leaves.get(column)
        page = None if leaf is None else self._find(leaf, 0, row)
        if leaf is None or page is None:
            return None
        dictionary = self._find(leaf, 1, row)
        chunks = tuple(
            (int(each["position"]), int(each["position"]) + int(each["size_bytes"]))
            for each in (dictionary, page)
            if each is not None
        )
        return Page(leaf, row - int(page["first_row"]), int(page["rows"]), chunks)

    def _find(self, leaf: Leaf, is_dictionary: int, row: int) -> np.void | None:
        pages = self._of[leaf.number, is_dictionary]
        at = int(np.searchsorted(pages["first_row"], np.uint32(row), "right")) - 1
        if at < 0 or row >= int(pages["first_row"][at]) + int(pages["rows"][at]):
            return None
        found: np.void = pages[at]
        return found
