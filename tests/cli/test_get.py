"""``spark-log get``: the newest record of a key, as text and as JSON."""

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.log.files import SegmentName
from spark_log.log.key_index import KeyIndexWriter
from spark_log.record import OFFSET_DELTA_FIELD
from spark_log.storage import open_store
from tests.record.samples import header_of, record_batch, row


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
    name = SegmentName(0, 1, 1_000_001, is_parquet=True)
    writer = KeyIndexWriter(store, "airports-0", name, min_records=0)
    rows = [row(b"new", key=b"JFK"), row(b"new", key=b"LGA")]
    deltas = pa.array([0, 1], pa.int32())
    records = record_batch(rows).append_column(OFFSET_DELTA_FIELD, deltas)
    writer.add(records, [header_of(rows)])
    writer.put("append id")
    path = tmp_path / "airports-0" / name.key_index
    entries = shell("dump-log", str(path), "--json").document["entries"]
    assert sorted(each["offset"] for each in entries) == [0, 1]
    assert all(each["is_valid"] for each in entries)
    path.write_bytes(b"damaged")
    assert "Delete the file" in shell("dump-log", str(path)).error
