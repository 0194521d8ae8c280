"""`Admin` on the users of gateways."""

import pytest

from spark_log import (
    Admin,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from spark_log.errors import InvalidConfigurationError, ResourceNotFoundError

SHA_256, SHA_512 = ScramMechanism


@pytest.fixture(autouse=True)
def a_root(admin):
    admin.create_topics([NewTopic("a")])


def upsertion(user, mechanism=SHA_256, iterations=4096):
    return UserScramCredentialUpsertion.of_password(user, mechanism, "x", iterations=iterations)


def test_users_are_added_and_deleted_and_others_see_it(admin, root):
    assert admin.describe_user_scram_credentials() == {}
    admin.alter_user_scram_credentials(
        [upsertion("bob"), upsertion("alice"), upsertion("alice", SHA_512, iterations=8192)]
    )
    other = Admin(root)
    assert other.describe_user_scram_credentials() == {
        "alice": (ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 8192)),
        "bob": (ScramCredentialInfo(SHA_256, 4096),),
    }
    other.alter_user_scram_credentials([UserScramCredentialDeletion("bob", SHA_256)])
    assert list(admin.describe_user_scram_credentials()) == ["alice"]
    assert list(admin.describe_user_scram_credentials(["alice"])) == ["alice"]
    with pytest.raises(ResourceNotFoundError, match="no user 'bob'"):
        admin.describe_user_scram_credentials(["alice", "bob"])


def test_all_changes_are_made_or_none(admin):
    with pytest.raises(ResourceNotFoundError):
        admin.alter_user_scram_credentials(
            [upsertion("alice"), UserScramCredentialDeletion("bob", SHA_256)]
        )
    assert admin.describe_user_scram_credentials() == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("alice", "got str"),
        (UserScramCredentialDeletion(1, SHA_256), "user is a string"),  # type: ignore[arg-type]
        (UserScramCredentialDeletion("alice", 7), "mechanism one of"),  # type: ignore[arg-type]
    ],
)
def test_an_element_that_is_no_alteration_is_refused(admin, wrong, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        admin.alter_user_scram_credentials([upsertion("alice"), wrong])
    assert admin.describe_user_scram_credentials() == {}
