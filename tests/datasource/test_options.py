"""The options of ``format("spark_log")``."""

import pytest

from spark_log import InvalidOptionError, TopicPartition, UnsupportedStoreError
from spark_log.datasource.options import parse_read_options, parse_write_options


def test_a_relative_root_is_made_absolute_on_the_driver(tmp_path, monkeypatch):
    """Tasks of a cluster have working directories of their own."""
    monkeypatch.chdir(tmp_path)
    for options in (
        parse_read_options({"path": "log", "subscribe": "t"}),
        parse_write_options({"path": "log"}),
    ):
        assert options.root == str(tmp_path / "log")


def test_names_are_case_insensitive_and_storage_options_keep_their_case():
    options = parse_read_options(
        {"PATH": "/r", "Subscribe": "a,b , a", "INCLUDEHEADERS": "TRUE", "storage.Key": "v"}
    )
    assert options.topics == ("a", "b")
    assert options.include_headers
    assert options.storage_options == {"Key": "v"}


def test_assign_names_partitions_and_their_topics():
    options = parse_read_options({"path": "/r", "assign": '{"b":[2],"a":[0,1]}'})
    assert options.topics == ("a", "b")
    assert options.assigned == {
        TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "option 'path' is missing: the cluster root"),
        ({"path": "/r"}, "give exactly one of the options 'subscribe'"),
        ({"path": "/r", "subscribe": " , "}, "give exactly one of the options 'subscribe'"),
        ({"path": "/r", "assign": "[0]"}, "expected partitions to read, as JSON"),
        (
            {"path": "/r", "subscribe": "t", "kafka.group.id": "x"},
            "unknown option 'kafka.group.id'",
        ),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidOptionError) as raised:
        parse_read_options(options)
    assert message in str(raised.value)


def test_a_root_without_put_if_absent_is_refused_by_name():
    with pytest.raises(UnsupportedStoreError, match="ftp:// cannot be a root"):
        parse_write_options({"path": "ftp://host/log"})
