"""What is left of deleted topics is removed; what merely looks like it stays."""

from spark_log import Admin, NewTopic
from spark_log.metadata import Cluster
from spark_log.metadata.topic_deletion import MARKERS, finish_deletions, mark_deleted
from tests.log.support import values
from tests.metadata.support import append


def test_a_topic_that_is_created_and_marked_while_a_cleaner_looks_stays(tmp_path, monkeypatch):
    """Who was about to delete it has died: a cleaner must not know less of topics than of marks."""
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic("a", 1)])
    cluster, other = Cluster(root), Cluster(root)
    cluster.image()
    look = cluster.store.list

    def look_late(directory, start_after=None):
        if directory == MARKERS:
            admin.create_topics([NewTopic("b", 1)])
            append(root, "b", 1)
            mark_deleted(other.store, [other.topic("b")])
        return look(directory, start_after)

    monkeypatch.setattr(cluster.store, "list", look_late)
    assert list(finish_deletions(cluster)) == []
    assert values(other.partition_log(other.topic("b"), 0)) != []
