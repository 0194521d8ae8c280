"""Control records: the two markers of a transaction, with Kafka's keys."""

import pytest

from spark_log.record.control_record import ControlRecordType


def test_keys_are_kafkas():
    assert ControlRecordType.ABORT.key == b"\0\0\0\0"
    assert ControlRecordType.COMMIT.key == b"\0\0\0\1"


@pytest.mark.parametrize("kind", ControlRecordType)
@pytest.mark.parametrize("version", [b"\0\0", b"\0\1"])
def test_markers_are_recognised_by_their_type_in_any_version(kind, version):
    assert ControlRecordType.of_key(version + kind.key[2:] + b"more") is kind


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\0\0\0\2", b"\xff\xff\0\1", b"text"])
def test_a_key_that_is_not_a_marker_gives_none(key):
    assert ControlRecordType.of_key(key) is None
