"""Errors as codes of the protocol."""

import pytest

from spark_log import errors
from spark_log.gateway.errors import ErrorCode, error_code

_OLD_NAMES = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
    "INVALID_REGULAR_EXPRESSION": "UNKNOWN",
}

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.SparkLogError)
]


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind):
    error = kind.__new__(kind)
    known_as_unknown = {"ClockSkewError", "NotRepeatableError", "IllegalStateError"}
    is_unknown = error_code(error) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert is_unknown == (kind.__name__ in known_as_unknown)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_codes_are_kafkas():
    from kafka import errors as kafka_errors

    for code in ErrorCode:
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):
            found = kafka_errors.for_code(code)
            assert found.errno == code
            theirs = found.message.replace("_ERROR", "").replace("_EXCEPTION", "")
            ours = code.name.replace("_ERROR", "").replace("_EXCEPTION", "")
            assert theirs in (ours, _OLD_NAMES.get(ours)) or found is kafka_errors.UnknownError


def test_an_error_of_python_is_unknown():
    assert error_code(ZeroDivisionError()) is ErrorCode.UNKNOWN_SERVER_ERROR
