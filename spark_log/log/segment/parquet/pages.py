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

_MAX_HEADER_BYTES: Final = 1_024
"""Maximum size of a page's header that is read; it has some 50 bytes."""

_WRONG_FIELDS: Final = AttributeError, IndexError, KeyError, OverflowError, TypeError
"""The errors of fields that are missing, or have another type, in a damaged footer."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of a file between two positions."""


Path = tuple[str, ...]
"""The names of a column and of what it contains, down to a leaf."""


class Leaf(NamedTuple):
    """A leaf of a Parquet schema.

    Attributes:
        number: its number among the leaves.
        kind: its physical type.
        path: its names.
        elements: the structs of the footer's schema, from the column to the leaf, with one child
            each.
    """

    number: int
    kind: int
    path: tuple[bytes, ...]
    elements: tuple[bytes, ...]


def leaves_of(footer: bytes) -> dict[Path, Leaf]:
    """Return the leaves of a footer's schema.

    Raises:
        ValueError: the footer is damaged.
    """
    reader = ThriftReader(footer)
    elements = [reader.raw_struct() for _ in range(reader.skip_to_list(_SCHEMA))]
    try:
        leaves = list(_leaves(elements))
    except _WRONG_FIELDS as error:
        raise ValueError(f"the schema in its footer lacks a field: {error!r}") from None
    return {tuple(name.decode() for name in leaf.path): leaf for leaf in leaves}


def _leaves(elements: list[tuple[dict[int, Any], bytes]]) -> Iterator[Leaf]:
    left: list[int] = []  # number of children of each parent that are still to come
    path: list[bytes] = []
    parents: list[bytes] = []
    number = 0
    for fields, element in elements[1:]:
        children = fields.get(5)
        if children is not None:
            left.append(int(children))
            path.append(fields[4])
            parents.append(_with_one_child(fields))
            continue
        yield Leaf(number, int(fields[1]), (*path, fields[4]), (*parents, element))
        number += 1
        while left:
            left[-1] -= 1
            if left[-1] > 0:
                break
            for stack in (left, path, parents):
                stack.pop()
    if left:
        raise ValueError("the schema in its footer is cut")


def _with_one_child(fields: dict[int, Any]) -> bytes:
    """Return the struct of a group. Its field ``converted_type`` tells lists from structs."""
    marks = {6: Value(I32, int(fields[6]))} if 6 in fields else {}
    name = {4: Value(BINARY, bytes(fields[4])), 5: Value(I32, 1)}
    return write_struct({3: Value(I32, int(fields[3])), **name, **marks})


def find_pages(footer: bytes, read: Read, paths: Collection[Path]) -> np.ndarray:
    """Return the pages of some columns as an array of `PAGE_DTYPE`.

    Args:
        footer: the footer of the Parquet format, without what follows it.
        read: reads the file's page index.
        paths: the leaves; others of the file are left out, and so are those that it does not have.

    Raises:
        ValueError: the footer or the page index is damaged, or the file has no page index.
    """
    leaves = leaves_of(footer)
    numbers = [leaves[path].number for path in paths if path in leaves]
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

        is_nested = len(self.leaf.path) > 1
        count = _number_of_values(parts[-1]) if is_nested else self.rows
        footer = _footer(self.leaf, self.rows, count, [len(part) for part in parts])
        data = b"".join([_MAGIC, *parts, footer, len(footer).to_bytes(4, "little"), _MAGIC])
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        column = file.read_row_group(0, use_threads=False).column(0)
        if len(column) != self.rows:
            raise ValueError(f"a page has {len(column)} rows instead of {self.rows}")
        value = column.slice(self.row, 1).combine_chunks()
        value.validate(full=True)
        return pa.concat_arrays([value])  # a copy: the slice would keep the page


def _number_of_values(page: bytes | memoryview) -> int:
    """Return the number of values that the header of a page says, those of empty lists included.

    Raises:
        ValueError: the header is damaged.
    """
    header = ThriftReader(bytes(page[:_MAX_HEADER_BYTES])).struct()
    try:
        return int(header[5][1])
    except _WRONG_FIELDS as error:
        raise ValueError(f"the header of a page lacks a field: {error!r}") from None


def _footer(leaf: Leaf, rows: int, count: int, sizes: list[int]) -> bytes:
    """Return the footer of a file with one page, and perhaps its dictionary before it.

    Args:
        leaf: the page's column.
        rows: number of its rows.
        count: number of its values.
        sizes: the sizes of dictionary and page.
    """
    size_bytes = sum(sizes)
    dictionary_bytes = size_bytes - sizes[-1]
    first = len(_MAGIC)
    metadata = {
        1: Value(I32, leaf.kind),
        2: Value(I32, [0, 3]),  # PLAIN, RLE; a page names its own encoding
        3: Value(BINARY, leaf.path),
        4: Value(I32, 6),  # ZSTD
        5: Value(I64, count),
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
            _SCHEMA: Value(STRUCT, [root, *leaf.elements]),
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
        self._leaves = leaves_of(footer)
        self._of: dict[tuple[int, int], np.ndarray] = {}
        self.pages = pages
        for leaf in self._leaves.values():
            mine = pages[pages["column"] == leaf.number]
            for is_dictionary in (0, 1):
                self._of[leaf.number, is_dictionary] = mine[mine["is_dictionary"] == is_dictionary]

    def find(self, path: Path, row: int) -> Page | None:
        """Return the page of a leaf that has a row; None if the table does not have it.

        Args:
            path: the leaf.
            row: the row's number in the segment.
        """
        leaf = self._leaves.get(path)
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
