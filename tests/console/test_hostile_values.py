"""Keys, values and headers of any bytes: each page shows them as text, bounded, and obeys none."""

import base64
import html
import json
import re

import pytest

from spark_log import Admin, NewTopic
from spark_log.console.decoding import show
from spark_log.console.templates import pretty
from tests.cli.support import append_batches
from tests.console.conftest import FAST, get
from tests.record.hostile_values import UNSAFE, VALUES
from tests.record.samples import record_batch, row

ANY_TIME = {"message.timestamp.after.max.ms": 2**63 - 1}
FORMS = ("auto", "text", "json", "avro", "hex")


@pytest.fixture(scope="module")
def binary_root(tmp_path_factory):
    """``binary``: a record for each of `VALUES`, which is its value, key and header."""
    root = tmp_path_factory.mktemp("binary") / "root"
    Admin(root).create_topics([NewTopic("binary", topic_configs=FAST)])
    for data in VALUES.values():
        short = None if data is None else data[:20_000]
        name = "" if short is None else short[:9_000].decode("utf-8", "replace")
        one = row(data, key=short, headers=[(name, short), ("", None), (name, b"")])
        append_batches(root, "binary", record_batch([one]))
    return root


def check(answer):
    """The answer is a page without a character that a browser obeys, or JSON in ASCII."""
    assert answer.status_code == 200, answer.text[:500]
    assert not UNSAFE.search(answer.text)
    assert len(answer.content) < 8_000_000
    if answer.headers["content-type"].startswith("application/json"):
        assert answer.text.isascii()
        json.loads(answer.text)
    return answer.text


@pytest.mark.parametrize("form", FORMS)
def test_a_page_shows_each_record(binary_root, clients, form):
    client = clients(binary_root)
    for offset in range(len(VALUES)):
        query = {"topic": "binary", "partition": 0, "offset": offset, "form": form}
        page = check(client.get("/record", params=query))
        assert "<script>alert" not in page
        assert "onerror=alert(2)>" not in page
        check(client.get("/api/record", params=query))


@pytest.mark.parametrize("form", FORMS)
def test_pages_list_the_records(binary_root, clients, form):
    client = clients(binary_root)
    for path in ("/records", "/search"):
        query = {"topic": "binary", "limit": 100, "form": form}
        if path == "/search":
            query["run"] = "true"
        check(client.get(path, params=query))
        query.pop("run", None)
        check(client.get(f"/api{path}", params=query))


def test_the_list_of_records_has_all_of_them(binary_root, clients):
    found = get(clients(binary_root), "/records", topic="binary", limit=100)["records"]
    assert len(found) == len(VALUES)
    by_offset = {each["offset"]: each["value"] for each in found}
    for offset, data in enumerate(VALUES.values()):
        assert by_offset[offset]["size_bytes"] == len(data or b"")


def test_an_export_has_all_bytes(binary_root, clients):
    query = {"topic": "binary", "format": "jsonl"}
    text = clients(binary_root).get("/api/export", params=query).text
    lines = [json.loads(line) for line in text.split("\n") if line]
    found = {each["offset"]: each["value"] for each in lines}
    for offset, data in enumerate(VALUES.values()):
        value = found[offset]
        if isinstance(value, dict):
            value = base64.b64decode(value["base64"])
        elif value is not None:
            value = value.encode()
        assert value == data


def test_a_link_by_a_time_of_no_calendar_leads_to_the_record(tmp_path, clients):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("times", topic_configs={**FAST, **ANY_TIME})])
    times_us = [-(2**62), -1, 2**62]
    rows = [row(b"%d" % time_us, timestamp=time_us) for time_us in times_us]
    append_batches(root, "times", record_batch(rows))
    client = clients(root)
    page = check(client.get("/records", params={"topic": "times"}))
    links = re.findall(r'href="(/records[?]topic=times&amp;time=[^"]*)" title', page)
    assert len(links) == len(times_us)
    for link, time_us in zip(links, reversed(times_us), strict=True):
        found = client.get("/api" + html.unescape(link)).json()["records"]
        assert found[0]["timestamp_us"] == time_us
        record = {"topic": "times", "partition": 0, "offset": times_us.index(time_us)}
        assert client.get("/record", params=record).status_code == 200


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b"\xc0\xaf", "hex", "c0 af"),
        (b"\xed\xa0\x80", "hex", "ed a0 80"),
        (b"\0", "text", "\0"),
        (b"", "text", ""),
        (b'{"x": 1e999}', "json", '{"x": 1e999}'),
        (b"[" * 100_000, "text", "[" * 2_000),
    ],
)
def test_bytes_are_what_they_are(data, form, text):
    shown = show(data, max_bytes=2_000)
    assert (shown.form, shown.text) == (form, text)


def test_json_is_indented_and_nothing_of_it_is_changed():
    """Not a duplicate member, a long fraction, a number too large for a float, or an escape."""
    text = r'{"a": 1, "a": [0.10000000000000000555, 1e999, -0.0], "b": {}, "c\"{,": "\ud800:, "}'
    shown = pretty(text)
    assert shown == (
        '{\n  "a": 1,\n  "a": [\n    0.10000000000000000555,\n    1e999,\n    -0.0\n  ],\n'
        '  "b": {},\n  "c\\"{,": "\\ud800:, "\n}'
    )
    assert pretty("[]") == "[]"
    assert pretty("no json: {") == "no json: {"
    assert pretty("[" * 3_000) == "[" * 3_000


def test_headers_without_number_are_shown_in_part(tmp_path, clients):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("many", topic_configs=FAST)])
    headers = [(f"header-{number}", b"x" * 20) for number in range(20_000)]
    append_batches(root, "many", record_batch([row(b"value", headers=headers)] * 3))
    client = clients(root)
    for path, query in (
        ("/records", {}),
        ("/record", {"partition": 0, "offset": 1}),
        ("/search", {}),
    ):
        answer = client.get(f"/api{path}", params={"topic": "many", **query})
        assert len(check(answer)) < 300_000, path
        found = answer.json()
        one = found["record"] if path == "/record" else found.get("records", found.get("hits"))[0]
        assert one["header_count"] == 20_000
        assert one["headers"][0]["name"] == "header-0"
        page = check(client.get(path, params={"topic": "many", **query}))
        if path != "/search":
            assert "20,000 headers" in html.unescape(page)
