"""The fixtures of the tests of `Admin`, and those of groups: an opened root with topic ``t``."""

import pytest

from spark_log import Admin
from tests.coordinator.conftest import clock, cluster, spark, storage_clock

__all__ = ["clock", "cluster", "spark", "storage_clock"]


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def admin(root):
    return Admin(root)
