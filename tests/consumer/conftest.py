"""Fixtures: a root with topics, and consumers that are closed at the end of the test."""

import pytest

from spark_log import Admin, Consumer, NewTopic

UNSYNCED = {"flush.on.append": "false", "message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``, of one partition, and the topic ``three``, of three."""
    path = str(tmp_path / "root")
    Admin(path).create_topics(
        [
            NewTopic("t", topic_configs=UNSYNCED),
            NewTopic("three", num_partitions=3, topic_configs=UNSYNCED),
        ]
    )
    return path


@pytest.fixture
def open_consumer(root):
    """Creates consumers that start at the earliest record unless a setting says otherwise."""
    opened = []

    def open_consumer(*topics, **settings):
        settings = {"root": root, "auto_offset_reset": "earliest", **settings}
        opened.append(Consumer(*topics, **settings))
        return opened[-1]

    yield open_consumer
    for consumer in opened:
        consumer.close(autocommit=False)


@pytest.fixture
def join(open_consumer):
    """Creates members of group ``g`` that read ``three``; range assigns in order of their ids."""
    names = iter("abcdefgh")

    def join(*topics, listener=None, pattern=None, **settings):
        settings = {"enable_auto_commit": False, "client_id": next(names), **settings}
        consumer = open_consumer(group_id="g", **settings)
        topics = () if pattern else topics or ("three",)
        consumer.subscribe(topics, pattern=pattern, listener=listener)
        return consumer

    return join
