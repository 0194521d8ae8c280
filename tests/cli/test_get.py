"""``spark-log get``: the newest record of a key, as text and as JSON."""

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.log.key_index import KeyIndexWriter
from spark_log.record import murmur2_of_key
from spark_log.storage import open_store
from tests.log.segment.parquet.support import parquet_name, put_parquet
from tests.log.support import DIRECTORY, Part
from tests.record.samples import row


@pytest.fixture(autouse=True)
def records(root):
    Admin(root).create_topics(
        [NewTopic("airports", 3, topic_configs={"cleanup.policy": "compact"})]
    )
    with Producer(root) as producer:
        for key, value in ((b"JFK", b"old"), (b"LGA", b"gone"), (b"JFK", b"new"), (b"LGA", None)):
            producer.send("airports", value, key=key)
        producer.send("airports", b"bytes", key=b"\xff\x00", headers=[("source", b"x")])


def test_the_newest_value_is_printed(shell):
    outcome = shell("get", "airports", "JFK")
    assert (outcome.status, outcome.out) == (0, "new\n")


def test_the_key_may_be_printed_too(shell):
    assert shell("get", "airports", "JFK", "--print-key", "--key-separator", "=").out == "JFK=new\n"


def test_json_has_offset_time_and_headers(shell):
    document = shell("get", "airports", "ff00", "--hex-key", "--json").document
    assert document["value"] == "bytes"
    assert document["headers"] == [{"key": "source", "value": "x"}]
    assert document["offset"] >= 0
    assert document["timestamp_ms"] > 0


@pytest.mark.parametrize(("key", "what"), [("LGA", "a tombstone"), ("SFO", "no record")])
def test_without_a_value_nothing_is_printed(shell, key, what):
    outcome = shell("get", "airports", key)
    assert (outcome.status, outcome.out) == (1, "")
    assert f"has {what} of the key '{key}'" in outcome.err


def test_another_partition_can_be_named(shell):
    found = [shell("get", "airports", "JFK", "--partition", str(at)).status for at in range(3)]
    assert sorted(found) == [0, 1, 1]


def test_mistakes_are_told(shell):
    assert "is not hexadecimal" in shell("get", "airports", "xyz", "--hex-key").err
    assert "no partition 7" in shell("get", "airports", "JFK", "--partition", "7").error
    assert "there is no topic" in shell("get", "airport", "JFK").error


def test_an_index_of_keys_can_be_dumped(shell, root, tmp_path):
    store = open_store(str(tmp_path))
    name = parquet_name(2)
    rows = [row(b"new", key=b"JFK"), row(b"none", key=None), row(b"new", key=b"LGA")]
    reader = put_parquet(store, [[Part(rows, deltas=[0, 1, 2])]], name)
    with KeyIndexWriter() as writer:
        writer.add_segment(reader)
        writer.put(store, DIRECTORY, name, reader.append_id, reader.find_pages())
    path = tmp_path / DIRECTORY / name.key_index
    entries = shell("dump-log", str(path), "--json").document["entries"]
    hashes = {b"JFK": 0, b"LGA": 2}
    assert sorted(entries, key=lambda each: each["row"]) == [
        {"key_hash": murmur2_of_key(key), "row": at, "offset": at, "is_valid": True}
        for key, at in hashes.items()
    ]
    assert "row: 2 offset: 2" in shell("dump-log", str(path)).out
    whole = path.read_bytes()
    (tmp_path / DIRECTORY / name.file_name).unlink()
    entries = shell("dump-log", str(path), "--json").document["entries"]
    assert sorted(each["row"] for each in entries) == [0, 2]
    assert all(each.keys() == {"key_hash", "row"} for each in entries)
    assert "Delete the file" in damaged(shell, path, b"damaged")
    assert "is damaged" in damaged(shell, path, bytes([whole[0] ^ 1]) + whole[1:])


def damaged(shell, path, content):
    path.write_bytes(content)
    return shell("dump-log", str(path)).error
