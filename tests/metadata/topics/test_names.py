"""Topic names: Kafka's TopicTest, and directories of topics on storage."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import InvalidTopicError
from spark_log.metadata.topics.names import INTERNAL_TOPICS, collision_key, validate_topic_name

LEGAL = string.ascii_letters + string.digits + "._-"


def by_key(names):
    return {collision_key(name): name for name in names}


class TestLegal:
    @pytest.mark.parametrize(
        "name",
        ["valid", "TOPIC", "nAmEs", "ar6", "VaL1d", "_0-9_.", "...", "-", "_", "a" * 249, "a.b_c"],
    )
    def test_names_are_accepted(self, name):
        validate_topic_name(name)

    @given(st.text(LEGAL, min_size=1, max_size=249))
    def test_every_name_of_legal_characters_but_the_reserved_ones(self, name):
        if name in (".", "..") or name in INTERNAL_TOPICS:
            with pytest.raises(InvalidTopicError):
                validate_topic_name(name)
        else:
            validate_topic_name(name)


class TestIllegal:
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("", "it is empty"),
            (".", "reserved"),
            ("..", "reserved"),
            ("a" * 250, "250 characters"),
            ("foo bar", "' '"),
            ("foo:bar", "':'"),
            ("foo=bar", "'='"),
        ],
    )
    def test_names_are_refused_with_the_reason(self, name, reason):
        with pytest.raises(InvalidTopicError) as caught:
            validate_topic_name(name)
        assert reason in caught.value.message
        assert caught.value.topic == name

    @pytest.mark.parametrize("bad", list("/\\,\0:\"';*? \t\r\n=äµ€") + ["\u0661", "\uff41"])  # noqa: RUF005
    def test_any_other_character_is_refused_wherever_it_stands(self, bad):
        for name in (f"a{bad}b", f"{bad}a", f"a{bad}"):
            with pytest.raises(InvalidTopicError) as caught:
                validate_topic_name(name)
            assert repr(bad) in caught.value.message

    @given(st.text(min_size=1, max_size=20))
    def test_no_text_at_all_gets_past_the_rules(self, name):
        is_legal = set(name) <= set(LEGAL) and name not in (".", "..", *INTERNAL_TOPICS)
        try:
            validate_topic_name(name)
        except InvalidTopicError:
            assert not is_legal
        else:
            assert is_legal

    @pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
    def test_internal_topics_are_refused(self, name):
        with pytest.raises(InvalidTopicError, match="internal"):
            validate_topic_name(name)


class TestCollisions:
    """In metric names a period and an underscore are equal."""

    PAIRS = ((".topic", "_topic"), ("to.pic", "to_pic"), ("topic.", "topic_"), ("a.b_c", "a_b.c"))

    @pytest.mark.parametrize(("one", "other"), PAIRS)
    def test_names_that_differ_in_nothing_else_collide(self, one, other):
        for new, existing in ((one, other), (other, one)):
            with pytest.raises(InvalidTopicError) as caught:
                validate_topic_name(new, by_key(["before", existing, "behind"]))
            assert repr(existing) in caught.value.message
            assert caught.value.topic == new

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (".topic", "topic_"),
            ("to.pic", "_topic"),
            ("topic", "topic."),
            ("a.b", "a-b"),
            ("a", "A"),
        ],
    )
    def test_names_that_differ_in_anything_else_do_not(self, one, other):
        validate_topic_name(one, by_key([other]))
        validate_topic_name(other, by_key([one]))

    def test_a_name_does_not_collide_with_itself(self):
        """An existing topic with the same name is another error."""
        validate_topic_name("to.pic", by_key(["to.pic"]))
