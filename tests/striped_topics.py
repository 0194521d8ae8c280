"""Tests with striped topics: ``pytest --stripes 4`` creates those in place of others."""

import re
from dataclasses import replace

import pytest

from spark_log.admin import topics
from spark_log.metadata import topic_records


def give_stripes(monkeypatch, stripes):
    """Let each topic that an `Admin` creates, with one replica in the root, have stripes."""

    def records(topic, topic_id, image):
        return topic_records(striped(topic, stripes), topic_id, image)

    monkeypatch.setattr(topics, "topic_records", records)


def striped(topic, stripes):
    """Return the topic with stripes, if it can have them and does not set them itself."""
    configs = {key.replace("_", "."): value for key, value in topic.topic_configs.items()}
    has_others = topic.replica_assignment or topic.replication_factor not in (None, -1, 1)
    if has_others or "stripes" in configs or str(configs.get("file.delete.delay.ms", 1)) == "0":
        return topic
    return replace(topic, topic_configs={**topic.topic_configs, "stripes": stripes})


def skip_tests_of_partition_logs(items):
    """Leave out the tests that are marked ``partition_logs_only``."""
    for item in items:
        if (mark := item.get_closest_marker("partition_logs_only")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"not for stripes: {mark.args[0]}"))


def is_in(path, text):
    """Return whether a path has a text. ``/t-1`` is also the stripe that has this partition of t.

    A topic of such a test has no more partitions than stripes. ``/t-`` is any partition of t.
    """
    partition = re.fullmatch(r"/?([a-z]+)-([0-9]*)", text)
    if partition is None:
        return text in path
    topic, number = partition.groups()
    stripe = rf"(.*/)?{topic}\.[^/]+/__stripes/{number or '[0-9]+'}/.*"
    return text in path or re.fullmatch(stripe, path) is not None
