"""A quorum of local or memory roots keeps every promise of a store, also without one of them."""

import shutil
import tempfile
import uuid

import pytest
from hypothesis import settings

from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite
from tests.storage.quorum.dead_root import open_quorum


class _OfThree(StoreSuite):
    contenders = 3  # each of them starts a thread for each root


@pytest.mark.long
class TestThreeDirectories(_OfThree):
    @pytest.fixture
    def store(self, tmp_path):
        return open_quorum([str(tmp_path / name) for name in "abc"])


class TestThreeInMemory(_OfThree):
    works_across_processes = False

    @pytest.fixture
    def store(self):
        return open_quorum([f"memory://{uuid.uuid4().hex}" for _ in range(3)])


@pytest.mark.long
class TestOneOfThreeIsDead(_OfThree):
    works_across_processes = False

    @pytest.fixture(params=[0, 1, 2])
    def store(self, request):
        roots = [f"memory://{uuid.uuid4().hex}" for _ in range(3)]
        return open_quorum(roots, dead=[roots[request.param]])


class QuorumMachine(StoreStateMachine):
    def make_store(self):
        self.folder = tempfile.mkdtemp()
        return open_quorum([f"{self.folder}/{name}" for name in "abc"])

    def close_store(self):
        shutil.rmtree(self.folder)


class DeadMemberMachine(StoreStateMachine):
    def make_store(self):
        roots = [f"memory://{uuid.uuid4().hex}" for _ in range(3)]
        return open_quorum(roots, dead=roots[:1])


TestQuorumStateful = pytest.mark.long(QuorumMachine.TestCase)
TestQuorumStateful.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestDeadMemberStateful = DeadMemberMachine.TestCase
TestDeadMemberStateful.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
