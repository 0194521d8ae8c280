"""A Spark session, and a root with a topic of four partitions."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.testing.spark import spark

__all__ = ["root", "spark"]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A cluster root with the topic ``t``, which has four partitions."""
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=4)])
    return url
