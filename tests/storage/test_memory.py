"""The memory store: the conformance suite, and its own features."""

import uuid

import pytest
from hypothesis import settings

from spark_log.errors import AlreadyExistsError, UnsupportedStoreError
from spark_log.storage.memory import MemoryStore
from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite
from spark_log.util.clock import ManualClock
from tests.storage.emptying import delete_everything


def new_name():
    return f"test-{uuid.uuid4().hex}"


class TestMemoryStore(StoreSuite):
    works_across_processes = False

    @pytest.fixture
    def store(self):
        return MemoryStore(new_name())


class MemoryStoreMachine(StoreStateMachine):
    def make_store(self):
        return MemoryStore(new_name())

    def close_store(self):
        delete_everything(self.handles[0])


TestMemoryStoreStateful = MemoryStoreMachine.TestCase
TestMemoryStoreStateful.settings = settings(stateful_step_count=40)


class TestNames:
    def test_stores_of_one_name_are_one_store_and_of_two_names_are_two(self):
        name = new_name()
        MemoryStore(name).put_if_absent("file", b"here")
        assert MemoryStore(name).read("file", 0, 4).to_pybytes() == b"here"
        assert list(MemoryStore(new_name()).list("")) == []

    def test_slashes_around_a_name_do_not_matter(self):
        name = new_name()
        MemoryStore(f"/{name}/").put_if_absent("file", b"")
        with pytest.raises(AlreadyExistsError):
            MemoryStore(name).put_if_absent("file", b"")
        assert MemoryStore(f"{name}/").url == f"memory://{name}"


def test_files_carry_the_time_of_the_clock_that_the_store_was_given():
    clock = ManualClock(time_us=5_000_000)
    store = MemoryStore(new_name(), clock)
    store.put_if_absent("first", b"")
    clock.advance_ms(1_500)
    store.put_if_absent("second", b"")
    assert store.head("first").modified_us == 5_000_000
    assert store.head("second").modified_us == 6_500_000
    clock.advance_ms(1)
    store.put("first", b"replaced")
    assert store.head("first").modified_us == 6_501_000


def test_a_memory_store_has_no_url_for_delta():
    with pytest.raises(UnsupportedStoreError, match="use a directory as the root"):
        MemoryStore(new_name()).directory_url("__consumer_offsets")
