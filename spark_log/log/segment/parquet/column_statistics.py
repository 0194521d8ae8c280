"""The statistics of a segment's typed columns, from all row groups of its footer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_log.log.segment.file import ColumnStatistics

if TYPE_CHECKING:
    from pyarrow import parquet

_BOUNDED: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)
"""The types of which the smallest and the largest value are returned."""


def column_statistics(
    footer: parquet.FileMetaData,
    schema: pa.Schema,
    first: int,
    has_nan: Callable[[tuple[str, ...]], bool],
) -> Iterator[ColumnStatistics]:
    """Yield the statistics of columns that are no lists or maps, nor in one.

    Args:
        footer: the footer of the file.
        schema: the columns of the file, as Arrow has them.
        first: number of the first column in ``schema`` that counts.
        has_nan: returns whether a floating-point column has NaN. Parquet's statistics do not tell.
    """
    leaf = 0
    row_groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    for at, field in enumerate(schema):
        leaves = list(_leaves(field, ()))
        if at >= first:
            for number, (path, kind) in enumerate(leaves, leaf):
                if path:
                    chunks = [each.column(number).statistics for each in row_groups]
                    found = _of_chunks(path, kind, chunks)
                    if found is not None:
                        is_float = pa.types.is_floating(kind)
                        yield found._replace(has_nan=is_float and has_nan(path))
        leaf += len(leaves)


def _leaves(
    field: pa.Field, parents: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield path and type of each leaf of a column; the path is empty below a list or a map."""
    kind = field.type
    path = (*parents, field.name)
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _leaves(each, path)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.value_field]
        for each in inner:
            for _, leaf_kind in _leaves(each, ()):
                yield (), leaf_kind
    else:
        yield path, kind


def _of_chunks(
    path: tuple[str, ...], kind: pa.DataType, chunks: Sequence[parquet.Statistics | None]
) -> ColumnStatistics | None:
    """Return the statistics of all row groups together; None if one has none."""
    null_count = 0
    least, most = [], []
    is_known = any(is_type(kind) for is_type in _BOUNDED)
    for chunk in chunks:
        if chunk is None or not chunk.has_null_count:
            return None
        null_count += chunk.null_count
        if chunk.has_min_max:
            if is_known:
                least.append(_value(kind, chunk.min_raw))
                most.append(_value(kind, chunk.max_raw))
        elif chunk.num_values:
            is_known = False  # a string is too long, or all values are NaN
    if not is_known or not least:
        return ColumnStatistics(path, kind, null_count, None, None)
    return ColumnStatistics(path, kind, null_count, min(least), max(most))


def _value(kind: pa.DataType, raw: int | float | bytes) -> int | float | bytes:
    if pa.types.is_decimal(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw
