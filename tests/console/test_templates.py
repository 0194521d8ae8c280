"""How values become text of a page."""

import math

import pytest

from spark_log.console.decoding import show
from spark_log.console.templates import (
    age_text,
    byte_size,
    environment,
    exact,
    link,
    number,
    rate_text,
    time_text,
)


def shown(template, **values):
    return environment().from_string(template).render(values)


def test_every_value_is_escaped_and_printable():
    assert shown("{{ x }}", x="<b>\x1b\n\u202e") == r"&lt;b&gt;\x1b\x0a\u202e"
    assert shown("{{ x|lines }}", x="<b>\x1b\n\u202e") == "&lt;b&gt;\\x1b\n\\u202e"
    assert shown("{{ x|pretty }}", x='{"a":"<"}') == "{\n  &#34;a&#34;: &#34;&lt;&#34;\n}"


def test_a_field_that_is_not_shown_keeps_its_value_exactly():
    assert exact('"<\r\n&\x1b') == "&#34;&lt;&#13;&#10;&amp;\x1b"


def test_a_link_carries_any_name():
    assert link("/topic", topic="a/b?&#\n", start=None) == "/topic?topic=a%2Fb%3F%26%23%0A"
    assert link("/topic", topic="\ud800") == "/topic?topic=%3F"


def test_numbers_have_units_and_unknown_ones_a_dash():
    dash = "\N{EN DASH}"
    assert (number(1234567), number(-1), number(None)) == ("1,234,567", dash, dash)
    assert (byte_size(512), byte_size(1536), byte_size(-1)) == ("512 B", "1.5 KiB", dash)
    assert (rate_text(0.25), rate_text(1234.5), rate_text(None)) == ("0.2/s", "1,234/s", dash)
    assert (age_text(90_061_000), age_text(5), age_text(None)) == ("1 d 1 h", "5 ms", dash)
    assert (rate_text(0.01), rate_text(0)) == ("< 0.1/s", "0/s")
    for text in (number, byte_size, rate_text, age_text):
        assert [text(each) for each in (math.nan, math.inf, -math.inf)] == [dash] * 3
    assert time_text(1_370_044_800_000_001) == "2013-06-01 00:00:00.000001Z"
    assert time_text(2**62) == f"{2**62} µs"


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (None, "auto", ("null", "")),
        (b"", "auto", ("text", "")),
        (b"", "hex", ("hex", "")),
        (b'{"a": 1}', "auto", ("json", '{"a": 1}')),
        (b'{"a": 1}', "text", ("text", '{"a": 1}')),
        (b"17", "auto", ("text", "17")),
        (b"[" * 100_000, "json", ("text", "[" * 100)),
        (b"\xff\x00", "auto", ("hex", "ff 00")),
        (b"\xff\x00", "text", ("hex", "ff 00")),
        ("a" * 99 + "é", "text", ("text", "a" * 99)),
    ],
)
def test_bytes_are_shown_as_what_they_are(data, form, expected):
    data = data.encode() if isinstance(data, str) else data
    found = show(data, form, max_bytes=100)
    assert (found.form, found.text) == expected
