"""Which topics are mirrored, and under which names."""

import pytest

from spark_log.errors import InvalidConfigurationError
from spark_log.mirror import (
    MirroredPartition,
    MirrorSettings,
    ReplicationPolicy,
    Side,
    TopicFilter,
)


def test_a_topic_keeps_its_name():
    settings = MirrorSettings()
    assert settings.partition("flights", 1, Side.KAFKA) == MirroredPartition(
        "flights", "flights", 1
    )
    assert settings.is_exclusive


def test_the_alias_of_the_source_precedes_the_name():
    settings = MirrorSettings("east", "west", ReplicationPolicy.DEFAULT)
    forward = settings.partition("flights", 0, Side.KAFKA)
    assert forward == MirroredPartition("flights", "east.flights", 0)
    back = settings.partition("flights", 0, Side.LOG)
    assert back == MirroredPartition("west.flights", "flights", 0)
    assert not settings.is_exclusive


def test_a_topic_does_not_go_back_to_where_it_came_from():
    settings = MirrorSettings("east", "west", ReplicationPolicy.DEFAULT)
    assert not settings.is_mirrored("east.flights", Side.LOG)
    assert settings.is_mirrored("east.flights", Side.KAFKA)
    assert settings.is_mirrored("eastern", Side.LOG)


def test_a_topic_does_not_go_round_in_a_circle():
    """Mirrors copy from a to b, from b to c, and from c to a."""
    names = ["flights"]
    for source, target in [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b")]:
        settings = MirrorSettings(source, target, ReplicationPolicy.DEFAULT)
        mirrored = [each for each in names if settings.is_mirrored(each, Side.KAFKA)]
        names = [settings.partition(each, 0, Side.KAFKA).log_topic for each in mirrored]
        if target == "a":
            assert names == []
    assert MirrorSettings("c", "a", ReplicationPolicy.DEFAULT).is_mirrored("c.b.aa.t", Side.KAFKA)
    assert MirrorSettings("c", "a", ReplicationPolicy.DEFAULT).is_mirrored("flights.a", Side.KAFKA)


def test_whole_names_match_and_internal_topics_are_left_out():
    chosen = TopicFilter.parse(["flights", "shop[.].*"])
    names = ["flights", "flights2", "shop.orders", "shop.a.internal", "__consumer_offsets"]
    assert [each for each in names if chosen(each)] == ["flights", "shop.orders"]
    assert not TopicFilter.parse()(MirrorSettings().offset_sync_topic)


def test_both_directions_have_one_transactional_id_if_names_are_kept():
    same, other = MirrorSettings(), MirrorSettings(policy=ReplicationPolicy.DEFAULT)
    assert same.transactional_id(Side.LOG) == same.transactional_id(Side.KAFKA)
    assert other.transactional_id(Side.LOG) != other.transactional_id(Side.KAFKA)


@pytest.mark.parametrize(
    "given", [{"kafka_alias": "a.b"}, {"log_alias": ""}, {"kafka_alias": "a", "log_alias": "a"}]
)
def test_an_alias_that_names_nothing_is_refused(given):
    with pytest.raises(InvalidConfigurationError, match="alias"):
        MirrorSettings(**given)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(InvalidConfigurationError, match=r"--topics .* is not a regular"):
        TopicFilter.parse(["("])
