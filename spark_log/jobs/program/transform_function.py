"""A user's function from records to records, named by the option ``--transform``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession

from spark_log.errors import InvalidOptionError

TransformOption = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Function that takes a DataFrame of records and returns a DataFrame. The module "
        "may be in the current directory.",
    ),
]
"""The name of a `Transform` on the command line."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A function that takes a DataFrame of records and returns a DataFrame.

    Attributes:
        name: ``module:function``.
        function: the function.
    """

    name: str
    function: Callable[[DataFrame], object]

    @classmethod
    def load(cls, name: str) -> Transform:
        """Import a function; the current directory is searched too.

        Raises:
            InvalidOptionError: the module or the function does not exist.
        """
        module_name, _, function_name = name.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            function = getattr(importlib.import_module(module_name), function_name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidOptionError(
                f"--transform is {name!r}, expected MODULE:FUNCTION, with a module in the current "
                f"directory or among --py-files, and a function in it: {error}",
                key="transform",
            ) from None
        if not callable(function):
            raise InvalidOptionError(
                f"--transform {name} is of type {type(function).__name__}, expected a function",
                key="transform",
            )
        return cls(name, function)

    def results(self, records: DataFrame) -> DataFrame:
        """Return the result of the function.

        Raises:
            InvalidOptionError: the result is no DataFrame.
        """
        results = self.function(records)
        if not isinstance(results, DataFrame):
            raise InvalidOptionError(
                f"--transform {self.name} returned {type(results).__name__}, expected a DataFrame",
                key="transform",
            )
        return results


def count_records(
    spark: SparkSession,
    options: Mapping[str, str],
    condition: Callable[[DataFrame], DataFrame] = lambda records: records,
) -> int:
    """Return the number of records of a read, by a separate query that reads one column.

    An observation within a function's query would count only the records that this query reads, or
    count those of another query.

    Args:
        spark: the session.
        options: options of the read.
        condition: the function that selects records by their column ``timestamp``.
    """
    reader = spark.read.format("spark_log").options(**options)
    return condition(reader.schema("timestamp timestamp").load()).count()
