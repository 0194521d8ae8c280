"""SCRAM credentials of users: how a change becomes records, and what the image has of them."""

import hashlib
import hmac

import pytest

from spark_log.errors import (
    CorruptRecordError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)
from spark_log.metadata.checkpoint import MetadataCheckpoint
from spark_log.metadata.features import SCRAM_VERSION, with_features
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from spark_log.metadata.scram import (
    ScramCredential,
    alter_scram_credential_records,
    scram_credentials,
)
from spark_log.types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

SHA_256, SHA_512 = ScramMechanism


def upsertion(user="alice", mechanism=SHA_256, password="secret", **given):
    return UserScramCredentialUpsertion.of_password(
        user, mechanism, password, **({"iterations": 4096} | given)
    )


def raw(mechanism=SHA_256, *, iterations=4096, salt=b"salt", salted=b"x" * 32):
    return UserScramCredentialUpsertion("alice", mechanism, iterations, salt, salted)


def image_with(*alterations, image=None):
    image = MetadataImage() if image is None else image
    for record in alter_scram_credential_records(image, alterations):
        image.replay(record)
    return image


def test_a_credential_has_the_keys_of_rfc_5802_and_no_password():
    (record,) = alter_scram_credential_records(MetadataImage(), [upsertion(salt=b"salt")])
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert record == UserScramCredentialRecord(
        name="alice",
        mechanism=1,
        salt=b"salt",
        stored_key=hashlib.sha256(client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", "sha256"),
        iterations=4096,
    )
    assert salted not in record.to_json()
    for shown in (record, upsertion(salt=b"sugar"), scram_credentials(image_with(raw()), "alice")):
        assert not any(part in repr(shown) for part in ("key", "salt", "sugar", "password"))


def test_the_image_has_the_last_credential_of_each_user_and_mechanism():
    image = image_with(upsertion(password="old"), upsertion(mechanism=SHA_512), upsertion("bob"))
    image_with(upsertion(password="new"), image=image)
    found = scram_credentials(image, "alice")
    assert list(found) == [SHA_256, SHA_512]
    assert found[SHA_256].accepts("new")
    assert not found[SHA_256].accepts("old")
    assert found[SHA_512].accepts("secret")
    image_with(UserScramCredentialDeletion("alice", SHA_256), image=image)
    assert list(scram_credentials(image, "alice")) == [SHA_512]
    image_with(UserScramCredentialDeletion("alice", SHA_512), image=image)
    assert scram_credentials(image, "alice") == {}
    assert list(image.scram_credentials) == ["bob"]


def test_a_copy_and_a_checkpoint_keep_the_credentials():
    image = image_with(upsertion(), upsertion(mechanism=SHA_512))
    checkpoint = MetadataCheckpoint.of_image(image, 2, 0, "cluster")
    assert checkpoint is not None
    expected = scram_credentials(image, "alice")
    copied = image.copy()
    image_with(UserScramCredentialDeletion("alice", SHA_256), image=image)
    for same in (copied, checkpoint.image()):
        assert scram_credentials(same, "alice") == expected


def test_the_first_credential_finalizes_the_feature():
    records = alter_scram_credential_records(MetadataImage(), [upsertion()])
    assert with_features({}, records) == [SCRAM_VERSION.record(1), *records]
    assert with_features({SCRAM_VERSION.name: SCRAM_VERSION.record(1)}, records) == records


def test_a_mechanism_that_a_newer_version_added_is_kept_and_not_used():
    image = MetadataImage()
    later = UserScramCredentialRecord(
        name="alice", mechanism=3, salt=b"s", stored_key=b"k", server_key=b"k", iterations=1
    )
    image.replay(later)
    assert scram_credentials(image, "alice") == {}
    assert list(image.records()) == [later]


@pytest.mark.parametrize(
    ("alterations", "error", "message"),
    [
        ([upsertion(user="")], UnacceptableCredentialError, "name of a user is empty"),
        ([raw(iterations=4095)], UnacceptableCredentialError, "4095 iterations; expected 4096"),
        ([raw(iterations=16385)], UnacceptableCredentialError, "to 16384"),
        ([raw(salt=b"")], UnacceptableCredentialError, "the salt is empty"),
        ([raw(salted=b"")], UnacceptableCredentialError, "salted password is empty"),
        ([upsertion(), upsertion()], DuplicateResourceError, "SCRAM-SHA-256 is changed twice"),
        (
            [UserScramCredentialDeletion("alice", SHA_256), upsertion()],
            DuplicateResourceError,
            "changed twice",
        ),
        (
            [UserScramCredentialDeletion("bob", SHA_256)],
            ResourceNotFoundError,
            "user 'bob' has no credential for SCRAM-SHA-256",
        ),
        (
            [UserScramCredentialDeletion("alice", SHA_512)],
            ResourceNotFoundError,
            "no credential for SCRAM-SHA-512",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused(alterations, error, message):
    image = image_with(upsertion())
    with pytest.raises(error, match=message):
        alter_scram_credential_records(image, alterations)


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_least_and_the_most_iterations_are_possible(iterations):
    found = scram_credentials(image_with(upsertion(iterations=iterations)), "alice")[SHA_256]
    assert isinstance(found, ScramCredential)
    assert (found.iterations, found.accepts("secret")) == (iterations, True)


def test_the_removal_of_a_credential_that_no_record_made_is_damage():
    with pytest.raises(CorruptRecordError, match="removes a credential of user 'alice'"):
        MetadataImage().replay(RemoveUserScramCredentialRecord(name="alice", mechanism=1))
