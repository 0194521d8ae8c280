"""The forms in which keys and values are shown: as text, as JSON documents, or in hexadecimal.

`spark_log.cli.format.avro` has one more deserializer, for Avro.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from spark_log.errors import InvalidConfigurationError, SerializationError
from spark_log.log import FetchedRecords


@dataclass(frozen=True, slots=True)
class FieldDeserializer:
    """Turns the bytes of keys or values into JSON documents, and into text for people.

    Attributes:
        kind: the required kind of the bytes, for errors.
        document: the function from bytes to a document that JSON can express; ValueError if the
            bytes are not `kind`.
        text: the function from bytes to the bytes to print, of which some may not be UTF-8;
            ValueError if the bytes are not `kind`.
    """

    kind: str
    document: Callable[[bytes], Any]
    text: Callable[[bytes], bytes]

    @classmethod
    def of_documents(cls, kind: str, document: Callable[[bytes], Any]) -> FieldDeserializer:
        """Return a deserializer whose text is its document as JSON on one line."""
        return cls(
            kind,
            document,
            lambda data: json.dumps(document(data), ensure_ascii=False).encode(),
        )

    def documents(self, records: FetchedRecords, name: str) -> list[Any]:
        """Return the document of each key or value; None for null.

        Args:
            records: the records.
            name: ``key`` or ``value``.

        Raises:
            SerializationError: bytes are not `kind`; the message has their partition and offset.
        """
        return self._each(records, name, self.document)

    def texts(self, records: FetchedRecords, name: str, null: bytes) -> list[bytes]:
        """Return the text of each key or value.

        Args:
            records: the records.
            name: ``key`` or ``value``.
            null: text for null.

        Raises:
            SerializationError: bytes are not `kind`; the message has their partition and offset.
        """
        found = self._each(records, name, self.text)
        return [null if text is None else text for text in found]

    def _each(
        self, records: FetchedRecords, name: str, convert: Callable[[bytes], Any]
    ) -> list[Any]:
        column = records.records.column(name).to_pylist()
        converted: list[Any] = []
        try:
            for data in column:
                converted.append(None if data is None else convert(data))
        except ValueError as error:
            raise SerializationError(
                f"the {name} at partition {records.partition}, offset "
                f"{records.offsets[len(converted)]} is not {self.kind}: {error}"
            ) from None
        return converted


def bytes_document(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON: text if they are UTF-8, else ``{"base64": …}``; null for None."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


STRING: Final = FieldDeserializer("a string", bytes_document, lambda data: data)
_DESERIALIZERS: Final = {
    "string": STRING,
    "json": FieldDeserializer.of_documents("JSON", json.loads),
    "hex": FieldDeserializer("bytes", bytes.hex, lambda data: data.hex().encode()),
}


def find_deserializer(key: str, name: str) -> FieldDeserializer:
    """Return a deserializer by its name.

    Args:
        key: the setting that names it, for errors.
        name: ``string``, ``json`` or ``hex``.

    Raises:
        InvalidConfigurationError: no deserializer has this name.
    """
    if name not in _DESERIALIZERS:
        raise InvalidConfigurationError(
            f"{key} is {name!r}, expected {', '.join(_DESERIALIZERS)} or avro", key=key
        )
    return _DESERIALIZERS[name]
