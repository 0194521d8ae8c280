"""The typed columns that a topic's settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_log.config import TopicConfig
from spark_log.errors import InvalidConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_log.values.typed_values import TypedValues


def typed_values_of(config: TopicConfig) -> TypedValues | None:
    """Return the typed columns of a topic; None if it has none.

    Args:
        config: the topic's settings.

    Raises:
        InvalidConfigurationError: ``table.schema`` is missing, or is not possible (`TypedValues`).
    """
    if config.table_value_format == "none":
        return None
    from spark_log.values.typed_values import TypedValues  # late: few topics have typed columns

    is_avro = config.table_value_format == "avro"
    if not config.table_schema.strip():
        raise InvalidConfigurationError(
            f"config 'table.value.format' is {config.table_value_format}, which needs "
            f"'table.schema': {'an Avro schema' if is_avro else 'the columns as a DDL of Spark'}",
            key="table.schema",
        )
    try:
        return TypedValues(
            config.table_value_format, config.table_schema, keeps_values=config.table_keep_value
        )
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(
            f"config 'table.schema': {error.message}", key="table.schema"
        ) from None


def present_columns(config: TopicConfig) -> TypedValues | None:
    """Return the columns that files of a topic may have; None if no file can have any.

    While ``table.value.format`` is ``none``, these are the columns of ``table.schema``: the topic
    may have had a format before.

    Args:
        config: the topic's settings, as they were checked when they were set.
    """
    text = config.table_schema.strip()
    if config.table_value_format != "none" or not text:
        return typed_values_of(config)
    from spark_log.values.typed_values import TypedValues

    try:
        return TypedValues("avro" if text[0] in '{["' else "json", text)
    except InvalidConfigurationError:
        return None  # without a format it was not checked, so no file was written with it


def check_new_columns(before: TypedValues | None, after: TypedValues | None) -> None:
    """Check that a table keeps its columns if the settings of its topic change.

    Args:
        before: the present columns of the topic (`present_columns`).
        after: its new columns.

    Raises:
        InvalidConfigurationError: a column is missing in the new ones, or has another type. A
            STRUCT may have more fields than before.
    """
    if before is None:
        return
    if after is None:
        raise InvalidConfigurationError(
            "config 'table.schema': it would be gone, and files of the table may have its columns. "
            "Keep it; 'table.value.format' none writes files without columns",
            key="table.schema",
        )
    for field in before.schema:
        at = after.schema.get_field_index(field.name)
        if at < 0:
            problem = "would be gone; keep it, it may stay null"
        elif not _extends(after.schema.field(at).type, field.type):
            problem = f"is {field.type}, and would be {after.schema.field(at).type}; add a new one"
        else:
            continue
        raise InvalidConfigurationError(
            f"config 'table.schema': column {field.name} {problem}. A table has one type for a "
            f"column, and files that have it already",
            key="table.schema",
        )


def _extends(after: pa.DataType, before: pa.DataType) -> bool:
    if after.id != before.id or after.num_fields < before.num_fields:
        return False
    if not before.num_fields:
        return bool(after.equals(before))
    names = [after.field(at).name for at in range(after.num_fields)]
    for at in range(before.num_fields):
        field = before.field(at)
        if field.name not in names:
            return False
        if not _extends(after.field(names.index(field.name)).type, field.type):
            return False
    return True
