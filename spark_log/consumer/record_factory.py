"""Converts fetched rows to `ConsumerRecord` objects, or to an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Final, Generic, NoReturn, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from spark_log.consumer.fetch import BatchSlice
from spark_log.errors import InvalidConfigurationError, RecordDeserializationError
from spark_log.record import READ_SCHEMA, int_array, ints_of, text_scalar
from spark_log.types import ConsumerRecord

TABLE_SCHEMA: Final = READ_SCHEMA
"""Columns of `Consumer.poll_table`: names and types of the Spark source's columns."""

LEADER_EPOCH: Final = pa.field("leaderEpoch", pa.int32(), nullable=False)
"""The column that `Consumer.poll_table` adds with ``leader_epochs=True``."""

Headers = list[tuple[str, bytes | None]]


_Value = TypeVar("_Value")


class _NoHeaders(Headers):
    """The headers of records without headers: one shared list, which cannot be changed.

    Separate lists would be half of the objects that the garbage collector tracks. Sharing one list
    doubles the rate of records.
    """

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "records without headers share one empty list; create a new list: [*record.headers, …]"
        )

    append = extend = insert = __iadd__ = _refuse

    def __reduce__(self) -> tuple[type[list[object]], tuple[()]]:
        return list, ()  # a pickled copy is a normal list


NO_HEADERS: Final[Headers] = _NoHeaders()


class Deserializer(Protocol):
    """Kafka's Deserializer, as in kafka-python."""

    def deserialize(self, topic: str, data: bytes) -> object:
        """Return the object that the bytes of a key or value encode."""


AnyDeserializer = Deserializer | Callable[[bytes], object]


def checked_deserializers(
    key: AnyDeserializer | None, value: AnyDeserializer | None
) -> tuple[AnyDeserializer | None, AnyDeserializer | None]:
    """Return the deserializers of keys and values.

    Raises:
        InvalidConfigurationError: one of them is no deserializer.
    """
    for name, given in (("key_deserializer", key), ("value_deserializer", value)):
        if given is None or callable(given) or callable(getattr(given, "deserialize", None)):
            continue
        example = "lambda data: data.decode()"
        if isinstance(given, str):
            example = f"lambda data: data.decode({given!r})"
        raise InvalidConfigurationError(
            f"{name} is {given!r}, which is not callable; give a function of the bytes, such as "
            f"{example}, or an object with deserialize(topic, data)",
            key=name,
        )
    return key, value


# Faster than the constructor of a NamedTuple, which is a Python function.
_new_record = partial(tuple.__new__, ConsumerRecord)


class RecordFactory:
    """Converts rows to records."""

    def __init__(
        self,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
    ) -> None:
        """Use these deserializers; None returns the bytes.

        Args:
            key_deserializer: the function that is called with the bytes of a key; a null key stays
                None, as in Kafka.
            value_deserializer: the function that is called with the bytes of a value; a null value
                stays None.
        """
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

    def records(
        self, rows: BatchSlice
    ) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """Return the records of consecutive rows.

        Returns:
            All records and None; or the records before the first one that a deserializer refused,
            and the error.
        """
        tp = rows.partition
        keys, values = rows.texts("key"), rows.texts("value")
        offsets = rows.offsets().tolist()
        times_ms = (rows.times_us() // 1000).tolist()
        headers = _headers(rows)
        made_keys, key_error = _deserialized(self._key_deserializer, tp.topic, keys)
        made_values, value_error = _deserialized(self._value_deserializer, tp.topic, values)
        records = list(
            map(
                _new_record,
                zip(
                    repeat(tp.topic),
                    repeat(tp.partition),
                    offsets,
                    times_ms,
                    repeat(rows.batch.timestamp_type),
                    made_keys,
                    made_values,
                    headers,
                    repeat(rows.batch.leader_epoch),
                    strict=False,
                ),
            )
        )
        at = len(records)
        if at == rows.count:
            return records, None
        is_key = len(made_keys) == at
        reason = key_error if is_key else value_error
        origin = "KEY" if is_key else "VALUE"
        error = RecordDeserializationError(
            f"the {origin.lower()} of the record at offset {offsets[at]} of {tp} cannot be "
            f"deserialized ({type(reason).__name__}: {reason}); seek to offset {offsets[at] + 1} "
            f"to skip it",
            topic=tp.topic,
            partition=tp.partition,
            offset=offsets[at],
            origin=origin,
            key=keys[at],
            value=values[at],
            headers=tuple(headers[at]),
            timestamp=times_ms[at],
            reason=str(reason),
        )
        error.__cause__ = reason
        return records, error


class TableFactory:
    """Converts rows to Arrow tables without copying keys, values, timestamps and headers."""

    def __init__(self) -> None:
        self._topics = _Constants(text_scalar)
        self._partitions = _Constants(_int32_scalar)
        self._types = _Constants(_int32_scalar)
        self._epochs = _Constants(_int32_scalar)

    def table(self, taken: Sequence[BatchSlice], *, leader_epochs: bool = False) -> pa.Table:
        """Return a table with `TABLE_SCHEMA`, one chunk for each of the fetched rows.

        With ``leader_epochs`` it has one more column, `LEADER_EPOCH`.
        """
        table = pa.Table.from_batches([self._batch(rows) for rows in taken], TABLE_SCHEMA)
        if not leader_epochs:
            return table
        epochs = [self._epochs.repeated(rows.batch.leader_epoch, rows.count) for rows in taken]
        return table.append_column(LEADER_EPOCH, pa.chunked_array(epochs, LEADER_EPOCH.type))

    def _batch(self, rows: BatchSlice) -> pa.RecordBatch:
        tp = rows.partition
        return pa.RecordBatch.from_arrays(
            [
                rows.column("key"),
                rows.column("value"),
                self._topics.repeated(tp.topic, rows.count),
                self._partitions.repeated(tp.partition, rows.count),
                int_array(rows.offsets(), pa.int64()),
                rows.column("timestamp"),
                self._types.repeated(rows.batch.timestamp_type, rows.count),
                rows.column("headers"),
            ],
            schema=TABLE_SCHEMA,
        )


class _Constants(Generic[_Value]):
    """Columns that repeat one value, sliced from the longest column so far."""

    def __init__(self, scalar: Callable[[_Value], pa.Scalar]) -> None:
        self._scalar = scalar
        self._columns: dict[_Value, pa.Array] = {}

    def repeated(self, value: _Value, count: int) -> pa.Array:
        column = self._columns.get(value)
        if column is None or len(column) < count:
            column = pa.repeat(self._scalar(value), max(count, 1024))
            self._columns[value] = column
        return column.slice(0, count)


def _int32_scalar(value: int) -> pa.Scalar:
    return int_array([value], pa.int32())[0]


def _headers(rows: BatchSlice) -> list[Headers]:
    """Return the headers of each row; `NO_HEADERS` for a row without headers."""
    count = rows.count
    if rows.has_no_headers:
        return [NO_HEADERS] * count
    column = rows.column("headers")
    if column.null_count == count:
        return [NO_HEADERS] * count
    pairs = column.flatten()  # leaves out values of null rows and of other slices
    names = pairs.field("key").to_pylist()
    values = pairs.field("value").to_pylist()
    flat = list(zip(names, values, strict=True))
    lengths = ints_of(column.value_lengths(), np.int32)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return [flat[start:end] if start < end else NO_HEADERS for start, end in spans]


def _deserialized(
    deserializer: AnyDeserializer | None, topic: str, values: Sequence[bytes | None]
) -> tuple[Sequence[object], Exception | None]:
    """Return deserialized values up to the first that the deserializer refuses, and its error."""
    if deserializer is None:
        return values, None
    method = getattr(deserializer, "deserialize", None)
    call: Callable[[bytes], object] = deserializer if method is None else partial(method, topic)  # type: ignore[assignment]
    made: list[object] = []
    add = made.append
    try:
        for value in values:
            add(None if value is None else call(value))
    except Exception as error:  # a user's function may raise any error
        return made, error
    return made, None
