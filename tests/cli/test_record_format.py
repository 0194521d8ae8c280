"""How records are shown."""

import numpy as np
import pytest

from spark_log.cli.format.record_format import TextFormat, format_text, record_documents
from spark_log.log import FetchedRecords
from tests.record.samples import record_batch, row

TIME_US = 1_370_088_000_123_456


def fetched(*rows, timestamp_type=0):
    return FetchedRecords(
        partition=3,
        offsets=np.arange(7, 7 + len(rows)),
        records=record_batch(rows),
        timestamp_type=timestamp_type,
        leader_epoch=5,
    )


RECORDS = fetched(
    row(b"one", b"a", [("x", b"1"), ("y", None)], TIME_US),
    row(None, None, None, TIME_US + 1000),
)


class TestText:
    def test_is_values_by_default(self):
        assert format_text(RECORDS, TextFormat()) == b"one\nnull\n"

    def test_has_kafkas_columns_in_kafkas_order(self):
        everything = TextFormat(
            print_timestamp=True,
            print_partition=True,
            print_offset=True,
            print_epoch=True,
            print_headers=True,
            print_key=True,
        )
        assert format_text(RECORDS, everything) == (
            b"CreateTime:1370088000123\tPartition:3\tOffset:7\tEpoch:5\tx:1,y:null\ta\tone\n"
            b"CreateTime:1370088000124\tPartition:3\tOffset:8\tEpoch:5\tNO_HEADERS\tnull\tnull\n"
        )

    def test_says_when_the_log_set_the_time(self):
        records = fetched(row(b"", timestamp=TIME_US), timestamp_type=1)
        text = format_text(records, TextFormat(print_timestamp=True))
        assert text == b"LogAppendTime:1370088000123\t\n"

    def test_can_do_without_values(self):
        assert format_text(RECORDS, TextFormat(print_key=True, print_value=False)) == b"a\nnull\n"
        assert format_text(RECORDS, TextFormat(print_value=False)) == b""

    def test_has_the_separators_that_were_asked_for(self):
        text_format = TextFormat(
            print_headers=True,
            print_key=True,
            key_separator=" | ",
            line_separator=";",
            headers_separator="&",
            null_literal="NIL",
        )
        assert format_text(RECORDS, text_format) == b"x:1&y:NIL | a | one;NO_HEADERS | NIL | NIL;"

    def test_replaces_what_is_not_utf_8_and_nothing_else(self):
        records = fetched(row("Zürich".encode()), row(b"\xff\xc3"), row(b"after"))
        assert format_text(records, TextFormat()).decode() == "Zürich\n\ufffd\ufffd\nafter\n"


class TestDocuments:
    def test_hold_all_that_is_known_of_a_record(self):
        assert record_documents(RECORDS) == [
            {
                "partition": 3,
                "offset": 7,
                "timestamp": "2013-06-01T12:00:00.123456Z",
                "timestamp_ms": 1_370_088_000_123,
                "timestamp_type": "CreateTime",
                "leader_epoch": 5,
                "key": "a",
                "value": "one",
                "headers": [{"key": "x", "value": "1"}, {"key": "y", "value": None}],
            },
            {
                "partition": 3,
                "offset": 8,
                "timestamp": "2013-06-01T12:00:00.124456Z",
                "timestamp_ms": 1_370_088_000_124,
                "timestamp_type": "CreateTime",
                "leader_epoch": 5,
                "key": None,
                "value": None,
                "headers": [],
            },
        ]

    @pytest.mark.parametrize("data", [b"\xff\x00", b"ab\xc3"])
    def test_hold_bytes_that_are_no_text_in_base64(self, data):
        (document,) = record_documents(fetched(row(data, data, [("h", data)])))
        expected = {"base64": {b"\xff\x00": "/wA=", b"ab\xc3": "YWLD"}[data]}
        assert document["key"] == document["value"] == expected
        assert document["headers"] == [{"key": "h", "value": expected}]
