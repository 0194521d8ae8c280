"""Fixtures: two processes on one stripe, one of whose stores a test may hook."""

import pytest

from tests.log.stripe.support import Process
from tests.log.support import HookedStore


@pytest.fixture
def store(memory_store):
    """A store whose calls may be hooked."""
    return HookedStore(memory_store)


@pytest.fixture
def process(store, clock):
    """A process whose calls may be hooked."""
    return Process(store, clock)


@pytest.fixture
def other(memory_store, clock):
    """Another process on the same files."""
    return Process(memory_store, clock)
