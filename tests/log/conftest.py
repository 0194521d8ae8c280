"""Fixtures: a log, and a store whose calls a test may hook."""

import pytest

from tests.log.support import HookedStore, open_log


@pytest.fixture
def inner(memory_store):
    """The store of the files; its calls are not hooked."""
    return memory_store


@pytest.fixture
def store(inner):
    """The same files, behind a store whose calls may be hooked."""
    return HookedStore(inner)


@pytest.fixture
def log(store, clock):
    """The log of `store`."""
    return open_log(store, clock=clock)
