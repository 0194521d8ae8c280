"""Format strings of kcat."""

import pytest

from spark_log.cli.format.deserializers import find_deserializer
from spark_log.cli.format.format_string import FormatString
from spark_log.errors import InvalidConfigurationError
from tests.cli.test_record_format import RECORDS, fetched
from tests.record.samples import row


def shown(text, records=RECORDS, **options):
    return FormatString.parse(text).text("flights", records, **options)


class TestToken:
    @pytest.mark.parametrize(
        ("token", "first", "second"),
        [
            ("%s", b"one", b""),
            ("%S", b"3", b"-1"),
            ("%R", b"\0\0\0\3", b"\xff\xff\xff\xff"),
            ("%k", b"a", b""),
            ("%K", b"1", b"-1"),
            ("%T", b"1370088000123", b"1370088000124"),
            ("%h", b"x=1,y=NULL", b""),
            ("%t", b"flights", b"flights"),
            ("%p", b"3", b"3"),
            ("%o", b"7", b"8"),
            ("%%", b"%", b"%"),
        ],
    )
    def test_stands_for_a_part_of_each_record(self, token, first, second):
        assert shown(token) == first + second
        assert shown(f"<{token}>") == b"<" + first + b"><" + second + b">"

    @pytest.mark.parametrize("text", ["%x", "%s %v", "%\n", "%é"])
    def test_that_is_unknown_is_refused_with_the_list_of_all(self, text):
        with pytest.raises(InvalidConfigurationError) as refused:
            FormatString.parse(text)
        assert f"has the unknown token '%{text[-1]}'" in refused.value.message
        for token in "sSRkKThtpo%":
            assert f"%{token} " in refused.value.message

    @pytest.mark.parametrize(("text", "problem"), [("", "is empty"), ("%s%", "ends with")])
    def test_that_is_missing_is_refused(self, text, problem):
        with pytest.raises(InvalidConfigurationError, match=problem):
            FormatString.parse(text)

    def test_is_what_the_deserializer_makes_and_its_length_that_of_the_stored_bytes(self):
        text = shown("%k=%s %K %S;", key=find_deserializer("", "hex"))
        assert text == b"61=one 1 3;= -1 -1;"


class TestEscape:
    @pytest.mark.parametrize(
        ("text", "data"),
        [
            (r"\n\r\t", b"\n\r\t"),
            (r"\x41\xfF\x0", b"A\xff\x00"),
            (r"\x412", b"A2"),
            (r"\0", b"\x00"),
            (r"\033", b"\x1b"),
            (r"\65", b"A"),
            (r"\\n", rb"\n"),
            (r"\"", b'"'),
            (r"\ü", "ü".encode()),
            ("a\\", b"a\\"),
        ],
    )
    def test_stands_for_one_byte(self, text, data):
        assert shown(text, RECORDS.slice(0, 1)) == data

    def test_before_a_percent_sign_is_a_backslash_as_in_kcat(self):
        assert shown(r"\%s", RECORDS.slice(0, 1)) == rb"\one"

    def test_of_more_than_a_byte_is_refused(self):
        with pytest.raises(InvalidConfigurationError, match="more than a byte"):
            FormatString.parse(r"\256")


class TestBytes:
    EVIL = fetched(row(b"\x1b[2J\xff", b"\x1b[k", [("\x1b[h", b"\x1b")]))

    def test_stay_as_they_are(self):
        assert shown("%s%k%h", self.EVIL) == b"\x1b[2J\xff\x1b[k\x1b[h=\x1b"

    def test_of_others_do_not_command_a_terminal(self):
        shown_bytes = shown(r"\x1b[1m%s %k %h\n", self.EVIL, for_terminal=True)
        assert shown_bytes == b"\x1b[1m\\x1b[2J\xef\xbf\xbd \\x1b[k \\x1b[h=\\x1b\n"

    def test_of_a_length_do_not_either(self):
        records = fetched(row(b"2J" + bytes(0x1B5B - 2)))
        assert b"\x1b" not in shown("%R", records, for_terminal=True)
        assert shown("%R", records) == b"\0\0\x1b["

    def test_of_a_topic_do_not_either(self):
        text = FormatString.parse("%t").text("\x9b2J", RECORDS.slice(0, 1), for_terminal=True)
        assert text == rb"\x9b2J"
