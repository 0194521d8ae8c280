"""File names for ids, which may be any string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.storage.text_names import file_name, text_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my-group_1.x", "my-group_1.x"),
        ("a/b", "a=2Fb"),
        ("..", "=2E."),
        (".hidden", "=2Ehidden"),
        ("=", "=3D"),
        ("größe", "gr=C3=B6=C3=9Fe"),
        ("a b\n", "a=20b=0A"),
        ("%2F", "=252F"),
    ],
)
def test_what_is_no_plain_letter_is_written_as_bytes(text, name):
    assert file_name(text) == name
    assert text_of(name) == text


@given(st.text())
def test_every_text_has_a_name_that_file_systems_take(text):
    name = file_name(text)
    assert 0 < len(name) <= 200
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(".")
    assert text_of(name) in (text, None)
    assert text_of(name) == text or text == "" or len(name) > 64


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_two_texts_have_two_names(one, other):
    assert (file_name(one) == file_name(other)) == (one == other)


def test_long_texts_that_begin_alike_have_two_names():
    one, other = "ü" * 500, "ü" * 501
    assert file_name(one) != file_name(other)
    assert text_of(file_name(one)) is None


@pytest.mark.parametrize("name", ["=2f", "a=", "=ZZ", "a b", ".x", "=41", ""])
def test_what_stands_for_no_text_is_not_read_as_one(name):
    assert text_of(name) is None
