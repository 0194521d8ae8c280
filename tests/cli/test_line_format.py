"""How lines become records: by the rules of Kafka's ``LineMessageReader``."""

import pytest

from spark_log.cli.format.line_format import BadLine, LineFormat, parse_lines
from spark_log.errors import InvalidConfigurationError
from tests.record.samples import START_US, row, rows_of

KEYS = LineFormat(parse_key=True, key_separator=":")
HEADERS = LineFormat(parse_headers=True)
BOTH = LineFormat(parse_headers=True, parse_key=True)


def rows(block, line_format=LineFormat()):  # noqa: B008 - frozen
    parsed = parse_lines(block, line_format, START_US)
    assert parsed.bad is None, parsed.bad
    return rows_of(parsed.records)


def bad(block, line_format):
    parsed = parse_lines(block, line_format, START_US)
    assert parsed.bad is not None
    assert parsed.records.num_rows == parsed.bad.index
    return parsed.bad


class TestLines:
    @pytest.mark.parametrize(
        ("block", "values"),
        [
            (b"one\ntwo\n", [b"one", b"two"]),
            (b"one\ntwo", [b"one", b"two"]),
            (b"one\r\ntwo\r\n", [b"one", b"two"]),
            (b"one\ntwo\r", [b"one", b"two"]),
            (b"o\rne\n", [b"o\rne"]),
            (b"\n\n", [b"", b""]),
            (b"\xff\xfe\n", [b"\xff\xfe"]),
        ],
    )
    def test_are_values_without_their_ends(self, block, values):
        assert rows(block) == [row(value) for value in values]


class TestKeys:
    def test_end_at_the_first_separator(self):
        assert rows(b"a:1\nb:2:3\n:4\nc:\n", KEYS) == [
            row(b"1", b"a"),
            row(b"2:3", b"b"),
            row(b"4", b""),
            row(b"", b"c"),
        ]

    def test_may_end_at_a_longer_text(self):
        line_format = LineFormat(parse_key=True, key_separator=" => ")
        assert rows(b"a = b => c\n", line_format) == [row(b"c", b"a = b")]

    def test_need_not_be_utf_8(self):
        assert rows(b"\xff:\xfe\n", KEYS) == [row(b"\xfe", b"\xff")]

    def test_must_be_there(self):
        assert bad(b"a:1\nb:2\nno key\nc\n", KEYS) == BadLine(
            2, "no key.separator ':' in the line 'no key'"
        )

    def test_may_be_missing_when_errors_are_ignored(self):
        line_format = LineFormat(parse_key=True, key_separator=":", ignore_error=True)
        assert rows(b"a:1\nno key\n", line_format) == [row(b"1", b"a"), row(b"no key")]


class TestHeaders:
    def test_are_pairs_before_the_value(self):
        assert rows(b"a:1,b:2:3,a:\tvalue\n", HEADERS) == [
            row(b"value", headers=[("a", b"1"), ("b", b"2:3"), ("a", b"")])
        ]

    def test_come_before_the_key(self):
        assert rows(b"a:1\tkey\tval\tue\nb:2\t\t\n", BOTH) == [
            row(b"val\tue", b"key", [("a", b"1")]),
            row(b"", b"", [("b", b"2")]),
        ]

    def test_have_separators_of_their_own(self):
        line_format = LineFormat(
            parse_headers=True,
            headers_delimiter="|",
            headers_separator=";",
            headers_key_separator="=",
        )
        assert rows(b"a=1;b=2|v\n", line_format) == [row(b"v", headers=[("a", b"1"), ("b", b"2")])]

    def test_must_be_there(self):
        found = bad(b"a:1\tv\nnone\n", HEADERS)
        assert found == BadLine(1, "no headers.delimiter '\\t' in the line 'none'")

    def test_must_be_pairs(self):
        found = bad(b"a:1\tv\na:1,b\tv\nc\tv\n", HEADERS)
        assert found == BadLine(1, "no headers.key.separator ':' in the header 'b'")

    def test_without_a_value_have_none_when_errors_are_ignored(self):
        line_format = LineFormat(parse_headers=True, ignore_error=True)
        assert rows(b"a,b:2\tv\nno headers\n", line_format) == [
            row(b"v", headers=[("a", None), ("b", b"2")]),
            row(b"no headers"),
        ]

    def test_have_keys_in_utf_8_and_any_bytes_as_values(self):
        assert rows(b"\xff:\xff\tv\n", HEADERS) == [row(b"v", headers=[("\ufffd", b"\xff")])]

    def test_of_the_first_bad_line_counts_whatever_is_bad_about_it(self):
        found = bad(b"a:1\tk\tv\na:1\tno value\nb\tk\tv\n", BOTH)
        assert (found.index, found.reason[:16]) == (1, "no key.separator")
        found = bad(b"a:1\tk\tv\nb\tk\tv\na:1\tno value\n", BOTH)
        assert (found.index, found.reason[:24]) == (1, "no headers.key.separator")


class TestNullMarker:
    def test_stands_for_a_key_or_value_that_is_null(self):
        line_format = LineFormat(parse_key=True, key_separator=":", null_marker="NULL")
        assert rows(b"NULL:1\na:NULL\nNULL:NULL\naNULL:NULLa\n", line_format) == [
            row(b"1", None),
            row(None, b"a"),
            row(None, None),
            row(b"NULLa", b"aNULL"),
        ]

    def test_stands_for_a_header_value_and_for_no_headers(self):
        line_format = LineFormat(parse_headers=True, null_marker="NULL")
        assert rows(b"a:NULL\tv\nNULL\tv\n", line_format) == [
            row(b"v", headers=[("a", None)]),
            row(b"v", headers=None),
        ]

    def test_cannot_be_a_header_key(self):
        line_format = LineFormat(parse_headers=True, null_marker="NULL")
        assert bad(b"a:1\tv\nNULL:1\tv\n", line_format).index == 1

    def test_is_nothing_unless_it_is_given(self):
        assert rows(b"\nnull\n") == [row(b""), row(b"null")]


class TestCheck:
    def test_accepts_the_defaults(self):
        LineFormat().check()

    def test_accepts_a_key_that_ends_as_headers_do(self):
        LineFormat(key_separator="|", headers_delimiter="|").check()

    @pytest.mark.parametrize(
        "line_format",
        [
            LineFormat(key_separator=""),
            LineFormat(headers_delimiter=","),
            LineFormat(headers_separator=":"),
            LineFormat(headers_key_separator="\t"),
            LineFormat(null_marker="\t"),
            LineFormat(key_separator="x", null_marker="x"),
        ],
    )
    def test_refuses_what_cannot_be_told_apart(self, line_format):
        with pytest.raises(InvalidConfigurationError, match=r"is empty|may not be equal"):
            line_format.check()


def test_all_records_have_the_time_that_was_given():
    records = parse_lines(b"a\nb\n", LineFormat(), 7).records
    assert [row["timestamp"] for row in rows_of(records)] == [7, 7]


def test_a_long_bad_line_is_not_shown_whole():
    assert len(bad(b"x" * 10_000, KEYS).reason) < 200
