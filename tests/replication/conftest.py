"""The cluster of the tests of replication."""

import pytest

from tests.replication.support import Disks


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path)
