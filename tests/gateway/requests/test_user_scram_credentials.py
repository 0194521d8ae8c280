"""DescribeUserScramCredentials and AlterUserScramCredentials, as Kafka answers them (KIP-554)."""

import hashlib

import pytest

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.types import ScramMechanism, UserScramCredentialUpsertion
from tests.gateway.support import running_gateway

SHA_256, SHA_512 = 1, 2

_Alter = message_class("AlterUserScramCredentialsRequest")
_Describe = message_class("DescribeUserScramCredentialsRequest")


@pytest.fixture
def gateway(tmp_path):
    with running_gateway(tmp_path / "root", **{"super.users": "User:ANONYMOUS"}) as running:
        yield running


def upsertion(name, mechanism=SHA_256, *, iterations=4096, salt=b"salt", size=None):
    size = {SHA_256: 32, SHA_512: 64}.get(mechanism, 32) if size is None else size
    return _Alter.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.shake_128(b"password").digest(size),
    )


def deletion(name, mechanism=SHA_256):
    return _Alter.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(client, *, upsertions=(), deletions=()):
    """Return the name of the error of each user."""
    answer = client.ask(
        "AlterUserScramCredentials", 0, deletions=list(deletions), upsertions=list(upsertions)
    )
    assert len({each.user for each in answer.results}) == len(answer.results)
    assert all(bool(each.error_message) == bool(each.error_code) for each in answer.results)
    return {each.user: ErrorCode(each.error_code).name for each in answer.results}


def describe(client, *names):
    """Return the mechanisms and iterations of each user, or the name of the error."""
    users = [_Describe.UserName(name=name) for name in names]
    answer = client.ask("DescribeUserScramCredentials", 0, users=users or None)
    assert answer.error_code == 0
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        if not each.error_code
        else ErrorCode(each.error_code).name
        for each in answer.results
    }


def test_users_are_added_changed_and_deleted(client):
    assert describe(client) == {}
    both = [upsertion("alice"), upsertion("alice", SHA_512, iterations=8192)]
    assert alter(client, upsertions=[*both, upsertion("bob")]) == {"alice": "NONE", "bob": "NONE"}
    assert describe(client) == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}
    changes = alter(
        client, upsertions=[upsertion("alice", iterations=5000)], deletions=[deletion("bob")]
    )
    assert changes == {"alice": "NONE", "bob": "NONE"}
    assert describe(client) == {"alice": [(1, 5000), (2, 8192)]}


def test_a_user_that_is_missing_or_asked_for_twice_has_an_error_of_its_own(client):
    alter(client, upsertions=[upsertion("alice"), upsertion("bob")])
    assert describe(client, "alice", "carol", "bob", "bob") == {
        "alice": [(1, 4096)],
        "carol": "RESOURCE_NOT_FOUND",
        "bob": "DUPLICATE_RESOURCE",
    }


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"upsertions": [upsertion("eve", iterations=4095)]}, "UNACCEPTABLE_CREDENTIAL"),
        ({"upsertions": [upsertion("eve", iterations=16385)]}, "UNACCEPTABLE_CREDENTIAL"),
        ({"upsertions": [upsertion("eve", salt=b"")]}, "UNACCEPTABLE_CREDENTIAL"),
        ({"upsertions": [upsertion("eve", size=0)]}, "UNACCEPTABLE_CREDENTIAL"),
        ({"upsertions": [upsertion("eve", 0)]}, "UNSUPPORTED_SASL_MECHANISM"),
        ({"deletions": [deletion("eve", 3)]}, "UNSUPPORTED_SASL_MECHANISM"),
        ({"deletions": [deletion("eve")]}, "RESOURCE_NOT_FOUND"),
        ({"upsertions": [upsertion("eve"), upsertion("eve")]}, "DUPLICATE_RESOURCE"),
        (
            {"upsertions": [upsertion("eve", SHA_512), upsertion("eve", iterations=1)]},
            "UNACCEPTABLE_CREDENTIAL",
        ),
    ],
)
def test_a_wrong_change_of_one_user_does_not_stop_that_of_another(client, request_, error):
    request_ = {"upsertions": [], **request_}
    request_["upsertions"] = [upsertion("alice"), *request_["upsertions"], upsertion("bob")]
    assert alter(client, **request_) == {"alice": "NONE", "eve": error, "bob": "NONE"}
    assert list(describe(client)) == ["alice", "bob"]


def test_a_salted_password_of_any_size_is_a_key_as_in_kafka(client):
    assert alter(client, upsertions=[upsertion("alice", size=18)]) == {"alice": "NONE"}


def test_a_user_without_a_name_is_refused(client):
    assert alter(client, upsertions=[upsertion("")]) == {"": "UNACCEPTABLE_CREDENTIAL"}


@pytest.mark.parametrize("super_users", ["", "User:alice", "User:anonymous;User:ANONYMOU"])
def test_nobody_else_than_a_super_user_may(tmp_path, super_users):
    config = {"super.users": super_users}
    with running_gateway(tmp_path / "closed", **config) as gateway, gateway.client() as client:
        answer = client.ask("DescribeUserScramCredentials", 0, users=None)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "super.users" in answer.error_message
        assert answer.results == []
        changes = alter(
            client, upsertions=[upsertion("alice"), upsertion("bob")], deletions=[deletion("bob")]
        )
        assert changes == dict.fromkeys(("alice", "bob"), "CLUSTER_AUTHORIZATION_FAILED")
        assert gateway.server.gateway.admin.describe_user_scram_credentials() == {}


def test_confluent_kafka_changes_users(gateway):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin import ScramCredentialInfo as Info
    from confluent_kafka.admin import ScramMechanism as Mechanism
    from confluent_kafka.admin import UserScramCredentialDeletion as Deletion
    from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

    admin = AdminClient({"bootstrap.servers": gateway.address})
    info = Info(Mechanism.SCRAM_SHA_256, 10_000)
    futures = admin.alter_user_scram_credentials([Upsertion("alice", info, b"secret", b"salt")])
    assert futures["alice"].result(30) is None
    described = admin.describe_user_scram_credentials().result(30)
    assert [each.iterations for each in described["alice"].scram_credential_infos] == [10_000]
    known = gateway.server.gateway.cluster.image().scram_credentials["alice"][1]
    made = UserScramCredentialUpsertion.of_password(
        "alice", ScramMechanism.SCRAM_SHA_256, "secret", iterations=10_000, salt=known.salt
    )
    gateway.server.gateway.admin.alter_user_scram_credentials([made])
    assert gateway.server.gateway.cluster.image().scram_credentials["alice"][1] == known
    deleted = admin.alter_user_scram_credentials([Deletion("alice", Mechanism.SCRAM_SHA_256)])
    assert deleted["alice"].result(30) is None
    again = admin.alter_user_scram_credentials([Deletion("alice", Mechanism.SCRAM_SHA_256)])
    with pytest.raises(KafkaException, match="no credential for SCRAM-SHA-256"):
        again["alice"].result(30)
