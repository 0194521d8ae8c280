"""ApiVersions: the first request of every client."""

import struct

import pytest

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import decode_response
from spark_log.gateway.requests import HANDLERS
from tests.gateway.support import frame


@pytest.mark.parametrize("version", range(5))
def test_each_version_lists_what_is_answered(client, version):
    answer = client.ask(
        "ApiVersions",
        version,
        client_software_name="a-library",
        client_software_version="1.2.3",
    )
    assert answer.error_code == ErrorCode.NONE
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [
        (api.key, api.first_advertised, api.max_version)
        for api in sorted((each.api for each in HANDLERS.values()), key=lambda api: api.key)
    ]


@pytest.mark.parametrize(
    ("version", "supported"), [(3, []), (4, [("group.version", 0), ("transaction.version", 0)])]
)
def test_old_clients_are_not_told_of_a_feature_from_level_0_on(client, version, supported):
    """Java's clients before 3.9 fail at it (KAFKA-17011)."""
    answer = client.ask(
        "ApiVersions",
        version,
        client_software_name="a-library",
        client_software_version="1.2.3",
    )
    assert [(each.name, each.min_version) for each in answer.supported_features] == supported
    assert [each.name for each in answer.finalized_features] == [
        "group.version",
        "transaction.version",
    ]


def test_an_unknown_version_is_answered_in_version_0_with_those_that_exist(client):
    client.send_bytes(frame(struct.pack(">hhih", 18, 999, 7, 0) + b"\x00whatever"))
    correlation_id, answer = decode_response("ApiVersions", 0, memoryview(client.receive_frame()))
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 4)]
    assert client.ask("ApiVersions", 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-a", "a b", "a-", "ä"])
def test_a_software_name_that_kafka_would_refuse_is_refused(client, name):
    answer = client.ask(
        "ApiVersions", 3, client_software_name=name, client_software_version="1.2.3"
    )
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "key", [55, 57, 64], ids=["DescribeQuorum", "UpdateFeatures", "Unregister"]
)
def test_requests_to_controllers_are_not_advertised(client, key):
    """Kafka's tools then say that the node does not support them: docs/limits.md."""
    assert key not in {each.api_key for each in client.ask("ApiVersions", 0).api_keys}
