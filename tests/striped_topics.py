"""All tests with striped topics: ``pytest --stripes 4`` creates those in place of others."""

from dataclasses import replace

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
