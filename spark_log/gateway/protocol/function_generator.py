"""The base of the generators of decoders and encoders: collects the text of one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_log.gateway.protocol.schema import message_schema


class FunctionGenerator:
    """Generates the text of one function for one version of a message, and compiles it."""

    def __init__(self, name: str, version: int, scope: dict[str, Any]) -> None:
        """Return a generator without lines.

        Args:
            name: the message, such as ``MetadataRequest``.
            version: the version of the message.
            scope: the names that the text uses, with their values.
        """
        schema = message_schema(name)
        self._name = name
        self._struct = schema.struct
        self._version = version
        self._is_flexible = version in schema.flexible
        self._lines: list[str] = []
        self._names = 0
        self._scope = scope

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _constant(self, value: Any) -> str:
        name = self._new_name("constant")
        self._scope[name] = value
        return name

    def _compiled(self, function: str) -> Callable[..., Any]:
        """Return a function of the text, by its name."""
        file = f"<{function} {self._name}, version {self._version}>"
        # The text comes from Kafka's schemas alone.
        exec(compile("\n".join(self._lines), file, "exec"), self._scope)
        found: Callable[..., Any] = self._scope[function]
        return found
