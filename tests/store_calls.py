"""Counts the calls of local stores: on an object store each of them is a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from spark_log.storage.local import LocalStore


@contextmanager
def counted_calls() -> Iterator[Counter[tuple[str, str]]]:
    """Count the calls of local stores, by operation and directory."""
    calls: Counter[tuple[str, str]] = Counter()
    with mock.patch.multiple(LocalStore, **{name: _counting(name, calls) for name in _READS}):
        yield calls


_READS = ("read", "read_tail", "open_buffer", "list", "head")


def _counting(name: str, calls: Counter[tuple[str, str]]):
    original = getattr(LocalStore, name)

    def counting(self: LocalStore, path: str, *args: object, **options: object):
        directory = path if name == "list" else path.rpartition("/")[0]
        calls[name, directory] += 1
        return original(self, path, *args, **options)

    return counting
