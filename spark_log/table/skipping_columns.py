"""The columns by whose statistics programs may skip files: ``delta.dataSkippingStatsColumns``.

delta-rs 1.6 takes a missing bound of a column that this property names, or that no such property
leaves out, for a null. A filter on the column then finds no row of the file, without an error. So a
column is named only while every file of the table has its number of nulls and, unless all values
are null, both bounds. A file without it, as one with NaN, or one that is older than the column,
takes the column out of the property. It comes back when no such file is left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from spark_log.delta import DataFile

SKIPPING_PROPERTY: Final = "delta.dataSkippingStatsColumns"

_LOG_COLUMNS: Final = ("offset", "timestamp")
_PLAIN_NAME: Final = re.compile(r"\w+", re.ASCII)
"""A name that needs no quotes in the property."""


def skipping_columns(schema: Iterable[pa.Field], files: Collection[DataFile]) -> list[str]:
    """Return the columns, and the fields of STRUCTs with dots, that all files have statistics of.

    Args:
        schema: the typed columns.
        files: the files of the table.
    """
    names = [*_LOG_COLUMNS, *_leaves(schema, "")]
    return columns_of_all(names, files)


def columns_of_all(names: Iterable[str], files: Collection[DataFile]) -> list[str]:
    """Return those of some columns that all files have statistics of.

    Args:
        names: the columns, and the fields of STRUCTs with dots.
        files: the files.
    """
    return [name for name in names if all(_has_statistics(each, name) for each in files)]


def _leaves(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    """Yield the names of columns that may have bounds."""
    for field in fields:
        kind, name = field.type, prefix + field.name
        if not _PLAIN_NAME.fullmatch(field.name):
            continue
        if pa.types.is_struct(kind):
            yield from _leaves(kind, f"{name}.")
        elif not pa.types.is_nested(kind) and not _is_bytes(kind):
            yield name


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _has_statistics(file: DataFile, name: str) -> bool:
    if not file.num_rows:
        return True
    path = name.split(".")
    nulls = _get(file.null_counts, path)
    if nulls is None:
        return False
    bounds = _get(file.min_values, path), _get(file.max_values, path)
    return nulls == file.num_rows or None not in bounds


def _get(values: Mapping[str, Any], path: Iterable[str]) -> Any:
    """Return a value of nested mappings; None if it is missing."""
    found: Any = values
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found
