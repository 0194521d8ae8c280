"""A log whose store lets a test come between a call and its effect."""

import pytest

from tests.log.support import HookedStore, open_log


@pytest.fixture
def inner(memory_store):
    """Where the files are: what goes here passes no hook."""
    return memory_store


@pytest.fixture
def store(inner):
    """The same files, each call hooked where the test wants it."""
    return HookedStore(inner)


@pytest.fixture
def log(store, clock):
    """A handle on the log of `store`."""
    return open_log(store, clock=clock)
