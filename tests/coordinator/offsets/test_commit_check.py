"""A commit that its caller checks before each try."""

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import CommitFailedError
from spark_log.util.clock import SystemClock

T0 = TopicPartition("t", 0)


@pytest.fixture
def tables(tmp_path):
    """The table as two processes have it."""
    root = str(tmp_path / "root")
    # Clusters with the same clock would share one cache, as in one process.
    clusters = [Cluster(root, create=True, clock=SystemClock()) for _ in range(2)]
    Admin(root).create_topics([NewTopic("t")])
    tables = [OffsetsTable(each) for each in clusters]
    yield tables
    for each in clusters:
        each.release()


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_commit_that_lost_a_race_is_checked_again(tables, is_refused):
    ours, theirs = tables
    ours.commit("g", {T0: OffsetAndMetadata(1)})
    tries: list[None] = []

    def check():
        tries.append(None)
        if len(tries) == 1:
            theirs.commit("g", {T0: OffsetAndMetadata(7)})
        elif is_refused:
            raise CommitFailedError("another gateway may coordinate the group")

    def commit():
        ours.commit("g", {T0: OffsetAndMetadata(5)}, check=check)

    if is_refused:
        with pytest.raises(CommitFailedError, match="another gateway"):
            commit()
    else:
        commit()
    assert len(tries) == 2
    assert theirs.fetch("g")[T0].offset == (7 if is_refused else 5)
