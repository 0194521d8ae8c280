"""DescribeClientQuotas and AlterClientQuotas."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from tests.gateway.data_client import TOPIC, client_batch, produce_fields

_Alter = message_class("AlterClientQuotasRequest")
_Component = message_class("DescribeClientQuotasRequest").ComponentData

EXACT, DEFAULT, ANY = range(3)


def entry(name, *operations, entity_type="client-id"):
    return _Alter.EntryData(
        entity=[_Alter.EntityData(entity_type=entity_type, entity_name=name)],
        ops=[
            _Alter.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in operations
        ],
    )


def alter(client, *entries, version=1, validate_only=False):
    answer = client.ask(
        "AlterClientQuotas", version, entries=list(entries), validate_only=validate_only
    )
    return [(each.entity[0].entity_name, each.error_code) for each in answer.entries]


def describe(client, *components, strict=False, version=1):
    return client.ask(
        "DescribeClientQuotas",
        version,
        components=[
            _Component(entity_type=entity_type, match_type=match_type, match=match)
            for entity_type, match_type, match in components
        ],
        strict=strict,
    )


def quotas(answer):
    assert answer.error_code == 0
    return {
        each.entity[0].entity_name: {value.key: value.value for value in each.values}
        for each in answer.entries
    }


@pytest.fixture
def admin(tmp_path, gateway):
    return Admin(tmp_path / "root")


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_set_and_removed_each_client_id_by_itself(client, admin, version):
    answered = alter(
        client,
        entry("a", ("producer_byte_rate", 1024.0), ("consumer_byte_rate", 5.0)),
        entry(None, ("consumer_byte_rate", 7.0)),
        entry("b", ("request_percentage", 50.0)),
        entry("c", ("producer_byte_rate", 0.5)),
        version=version,
    )
    refused = ErrorCode.INVALID_REQUEST
    assert answered == [("a", 0), (None, 0), ("b", refused), ("c", refused)]
    assert admin.describe_client_quotas() == {
        None: {"consumer_byte_rate": 7},
        "a": {"consumer_byte_rate": 5, "producer_byte_rate": 1024},
    }
    alter(client, entry("a", ("producer_byte_rate", None)), version=version)
    assert admin.describe_client_quotas(["a"]) == {"a": {"consumer_byte_rate": 5}}
    alter(client, entry("a", ("consumer_byte_rate", None)), version=version)
    assert admin.describe_client_quotas() == {None: {"consumer_byte_rate": 7}}


def test_nothing_is_changed_to_validate(client, admin):
    entries = [entry("a", ("producer_byte_rate", 5.0)), entry("b", ("producer_byte_rat", 5.0))]
    answered = alter(client, *entries, validate_only=True)
    assert answered == [("a", 0), ("b", ErrorCode.INVALID_REQUEST)]
    assert admin.describe_client_quotas() == {}


@pytest.mark.parametrize("value", [-1.0, 1.5, float("nan"), float("inf"), 2.0**63])
def test_values_that_are_no_whole_number_above_0_are_refused(client, admin, value):
    assert alter(client, entry("a", ("producer_byte_rate", value))) == [
        ("a", ErrorCode.INVALID_REQUEST)
    ]
    assert admin.describe_client_quotas() == {}


@pytest.mark.parametrize(
    "refused",
    [
        entry("alice", ("producer_byte_rate", 5.0), entity_type="user"),
        entry("127.0.0.1", ("connection_creation_rate", 5.0), entity_type="ip"),
        entry("", ("producer_byte_rate", 5.0)),
    ],
)
def test_entities_that_have_no_quotas_are_refused(client, admin, refused):
    assert [code for _, code in alter(client, refused)] == [ErrorCode.INVALID_REQUEST]
    assert admin.describe_client_quotas() == {}


@pytest.mark.parametrize("version", range(2))
def test_a_filter_selects_quotas(client, admin, version):
    admin.alter_client_quotas(
        {
            None: {"producer_byte_rate": 1},
            "a": {"producer_byte_rate": 2},
            "b": {"consumer_byte_rate": 3},
        }
    )
    everything = {
        None: {"producer_byte_rate": 1.0},
        "a": {"producer_byte_rate": 2.0},
        "b": {"consumer_byte_rate": 3.0},
    }

    def found(*components, strict=False):
        return quotas(describe(client, *components, strict=strict, version=version))

    assert found() == everything
    assert found(strict=True) == {}
    for strict in (True, False):
        assert found(("client-id", ANY, None), strict=strict) == everything
    assert found(("client-id", EXACT, "a")) == {"a": everything["a"]}
    assert found(("client-id", EXACT, "none")) == {}
    assert found(("client-id", DEFAULT, None)) == {None: everything[None]}
    assert found(("user", ANY, None)) == {}
    assert found(("client-id", ANY, None), ("user", EXACT, "alice")) == {}
    assert found(("ip", DEFAULT, None)) == {}


@pytest.mark.parametrize(
    "components",
    [
        [("", ANY, None)],
        [("client-id", ANY, None), ("client-id", EXACT, "a")],
        [("client-id", EXACT, None)],
        [("client-id", DEFAULT, "a")],
        [("client-id", 3, None)],
        [("client-id", ANY, None), ("ip", ANY, None)],
    ],
)
def test_a_filter_that_means_nothing_is_refused(client, components):
    answer = describe(client, *components)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert answer.entries is None


def test_a_quota_that_is_set_by_a_request_has_effect(client, admin):
    alter(client, entry("a-test", ("producer_byte_rate", 1.0)))
    admin.create_topics([NewTopic(TOPIC)])
    fields = produce_fields(client_batch(count=100))
    pauses = [client.ask("Produce", 9, **fields).throttle_time_ms for _ in range(2)]
    assert pauses[-1] > 1000
