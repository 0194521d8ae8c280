"""The tables of a cluster's topics, as a process that runs for long keeps them."""

import gc
import weakref

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, TopicTables

DELTA = {"table.format": "delta"}


def test_the_tables_of_deleted_topics_are_forgotten(tmp_path):
    """Each holds the files of a whole table, and a console runs for months."""
    url = str(tmp_path / "root")
    admin = Admin(url)
    admin.create_topics([NewTopic(name, topic_configs=DELTA) for name in ("t", "u", "v")])
    cluster = Cluster(url)
    tables = TopicTables(cluster)
    image = cluster.image()
    kept, *others = [weakref.ref(tables.committer(image, image.topic(name))) for name in "tuv"]
    admin.delete_topics(["u", "v"])
    present = cluster.image()
    assert tables.committer(present, present.topic("t")) is kept()
    gc.collect()
    assert [each() for each in others] == [None, None]


def test_a_topic_of_the_same_name_has_a_table_of_its_own(tmp_path):
    url = str(tmp_path / "root")
    admin = Admin(url)
    admin.create_topics([NewTopic("t", topic_configs=DELTA)])
    cluster = Cluster(url)
    tables = TopicTables(cluster)
    image = cluster.image()
    before = tables.committer(image, image.topic("t")).table.directory
    admin.delete_topics(["t"])
    admin.create_topics([NewTopic("t", topic_configs=DELTA)])
    image = cluster.image()
    assert tables.committer(image, image.topic("t")).table.directory != before
