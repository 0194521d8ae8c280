"""Settings of topics that are taken over."""

import pytest

from spark_log import IgnoredOptionWarning
from spark_log.config import TopicConfig
from spark_log.mirror.kafka.topic_settings import settings_for_kafka, settings_for_log


def test_settings_with_the_same_meaning_are_taken_over():
    given = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
    assert settings_for_log(given) == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert settings_for_kafka(given) == settings_for_log(given)


def test_append_times_do_not_replace_mirrored_ones():
    assert settings_for_log({"message.timestamp.type": "LogAppendTime"}) == {}


def test_compressions_become_the_nearest_one():
    for theirs, ours in (("gzip", "zstd"), ("snappy", "lz4")):
        with pytest.warns(IgnoredOptionWarning, match=f"is {theirs}, which .* {ours} is used"):
            assert settings_for_log({"compression.type": theirs}) == {"compression.type": ours}
    assert settings_for_log({"compression.type": "uncompressed"}) == {"compression.type": "none"}
    assert settings_for_kafka({"compression.type": "none"}) == {"compression.type": "uncompressed"}


def test_small_segments_become_as_small_as_the_log_allows():
    assert settings_for_log({"segment.bytes": "14"}) == {"segment.bytes": "1048576"}


def test_what_is_taken_over_is_valid_here():
    given = dict.fromkeys(settings_for_log(dict.fromkeys(TopicConfig().dotted(), "1")), "1")
    del given["cleanup.policy"], given["compression.type"]
    TopicConfig.parse(settings_for_log(given))
