"""`lazy`: a property whose value is read once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class lazy(Generic[_Value]):  # noqa: N801 - a decorator
    """A property whose value is kept in its object.

    Until Python 3.12, ``functools.cached_property`` holds one lock for all objects of a class. If
    reading the value is a request, all threads would send it one after the other, and a request
    without an answer would block all of them. Here two threads that access the property of one
    object for the first time may both read the value.
    """

    def __init__(self, read: Callable[[Any], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> _Value:
        """Read the value, and store it in the object, where it hides this descriptor."""
        value = self._read(instance)
        instance.__dict__[self._name] = value
        return value
