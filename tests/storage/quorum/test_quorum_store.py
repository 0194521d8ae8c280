"""A quorum of local or memory roots keeps every promise of a store, also without one of them."""

import shutil
import tempfile
import uuid
from itertools import cycle

import pytest
from hypothesis import settings

from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite
from tests.storage.quorum.dead_root import open_quorum


class _OfThree(StoreSuite):
    contenders = 2  # each of them starts a thread for each root
    many_files = 30  # the members have pages, and suites of their own


@pytest.mark.long
class TestThreeDirectories(_OfThree):
    @pytest.fixture
    def store(self, tmp_path):
        return open_quorum([str(tmp_path / name) for name in "abc"])


class TestThreeInMemory(_OfThree):
    works_across_processes = False

    @pytest.fixture
    def store(self):
        return open_quorum(_roots_in_memory())


@pytest.mark.long
class TestTheFirstOfThreeIsDead(_OfThree):
    works_across_processes = False

    @pytest.fixture
    def store(self):
        roots = _roots_in_memory()
        return open_quorum(roots, dead=roots[:1])


class QuorumMachine(StoreStateMachine):
    def make_store(self):
        self.folder = tempfile.mkdtemp()
        return open_quorum([f"{self.folder}/{name}" for name in "abc"])

    def close_store(self):
        shutil.rmtree(self.folder)


class DeadMemberMachine(StoreStateMachine):
    """In each sequence another of the three is dead."""

    dead = cycle(range(3))

    def make_store(self):
        roots = _roots_in_memory()
        return open_quorum(roots, dead=[roots[next(self.dead)]])


TestQuorumStateful = pytest.mark.long(QuorumMachine.TestCase)
TestQuorumStateful.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestDeadMemberStateful = DeadMemberMachine.TestCase
TestDeadMemberStateful.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def _roots_in_memory():
    return [f"memory://{uuid.uuid4().hex}" for _ in range(3)]
