"""JSON from a root: whatever stands there, a parser gives a value or its own error."""

import ast
import json
import math
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_log
from spark_log.coordinator.group import records as group_records
from spark_log.delta.parse import parse_version
from spark_log.errors import CorruptRecordError, SparkLogError
from spark_log.metadata import records as metadata_records
from spark_log.record.leader_change import LEADER_CHANGE_KEY, parse_leader_change
from spark_log.storage.quorum.membership import Membership
from spark_log.transaction import records as transaction_records
from spark_log.util.untrusted_json import MAX_DIGITS, parse_json

PACKAGE = Path(spark_log.__file__).parent

HOSTILE = [
    b"",
    b"\xff\xfe",
    b"nul",
    b"[" * 1_000_000,
    b'{"a":' * 100_000,
    b"NaN",
    b"[Infinity, -Infinity]",
    b"1e999",
    b"9" * 5_000,
    b"-" + b"1" * (MAX_DIGITS + 1),
    b'{"type": "A", "type": "B"}',
    b"{} {}",
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: repr(data[:12]))
def test_what_is_no_plain_json_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)


def test_a_document_that_is_too_large_is_refused_before_it_is_copied():
    data = pa.py_buffer(b"[1, 2, 3]")
    assert parse_json(data, max_bytes=9) == [1, 2, 3]
    with pytest.raises(ValueError, match="it has 9 bytes, more than 8"):
        parse_json(data, max_bytes=8)


numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(values)
def test_plain_json_is_what_python_parses(value):
    text = json.dumps(value)
    assert parse_json(text) == json.loads(text) == value
    assert parse_json(text.encode()) == value


# Objects with the names that the parsers look for, and anything behind them.
RECORD_NAMES = ("type", "version", "data", "name", "topicId", "partitionId", "replicas", "isr")
MORE_NAMES = ("leader", "leaderEpoch", "joining", "voters", "root", "directory.id", "changeId")
ACTIONS = ("add", "remove", "path", "size", "stats", "dataChange", "txn", "metaData", "protocol")
names = st.sampled_from([*RECORD_NAMES, *MORE_NAMES, *ACTIONS])
kinds = st.sampled_from(
    ["TopicRecord", "PartitionRecord", "ConfigRecord", "RegisterBrokerRecord", "ProducerIdsRecord"]
)
named = st.recursive(
    values | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=12,
)
documents = (
    st.binary(max_size=200)
    | named.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda kind, version, data: json.dumps(
            {"type": kind, "version": version, "data": data}
        ).encode(),
        kinds,
        st.integers(-1, 3) | values,
        named,
    )
    | st.sampled_from(HOSTILE)
)


@given(documents)
def test_a_hostile_record_of_the_metadata_is_damage(data):
    with suppress(CorruptRecordError):
        metadata_records.from_json(data)


@given(documents)
def test_a_hostile_record_of_a_group_or_a_transaction_is_damage(data):
    for parse in PARSERS_OF_STATES:
        with suppress(CorruptRecordError):
            parse(data)


PARSERS_OF_STATES = [group_records.from_json, transaction_records.from_json]


@given(documents)
def test_a_hostile_barrier_list_of_voters_or_delta_version_is_damage(data):
    with suppress(ValueError):
        parse_leader_change(LEADER_CHANGE_KEY, data)
    for parse in (
        lambda: Membership.parse(data, "voters"),
        lambda: parse_version("__consumer_offsets", 7, data),
    ):
        with suppress(SparkLogError):
            parse()


@pytest.mark.parametrize(
    ("name", "topic_id"),
    [("", "id"), ("a/../../b", "id"), ("a\x00", "id"), ("a", ""), ("a", "../.."), ("a", "x/y")],
)
def test_a_topic_whose_directory_leads_elsewhere_is_damage(name, topic_id):
    data = {"name": name, "topicId": topic_id}
    document = {"type": "TopicRecord", "version": 0, "data": data}
    with pytest.raises(CorruptRecordError, match="not a metadata record"):
        metadata_records.from_json(json.dumps(document).encode())


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/passwd", "file:///etc/passwd", "a/../../b"])
def test_a_file_of_a_delta_table_that_lies_elsewhere_is_damage(path):
    action = {"add": {"path": path, "size": 1, "dataChange": True}}
    with pytest.raises(SparkLogError, match="leads out of the table"):
        parse_version("__consumer_offsets", 1, json.dumps(action).encode())


READS_ROOTS = ["coordinator", "delta", "log", "metadata", "mirror", "record", "replication"]
READS_ROOTS += ["storage", "transaction"]

OF_THE_USER = {"storage/object/fsspec_options.py"}
"""Parses options that the user gave."""


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_every_part_that_reads_roots_parses_json_in_one_place():
    found = {
        str(path.relative_to(PACKAGE))
        for folder in READS_ROOTS
        for path in (PACKAGE / folder).rglob("*.py")
        if {"json.loads", "json.load"} & set(calls(ast.parse(path.read_text("utf-8"))))
    }
    assert found == OF_THE_USER


GENERATED = {f"gateway/protocol/{name}.py": {"exec"} for name in ("message", "function_generator")}
"""Code that is generated from the schemas of Kafka's messages, which are a file of the package."""


def test_nothing_that_is_read_is_executed():
    refused = {"eval", "exec", "pickle.loads", "pickle.load", "marshal.loads", "yaml.load"}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE)
        if "testing" not in name.parts:
            found = refused & set(calls(ast.parse(path.read_text("utf-8"))))
            assert found == GENERATED.get(name.as_posix(), set()), path
    assert math.isfinite(parse_json("1.5"))
