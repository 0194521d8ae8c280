"""SCRAM credentials of users, and changes of them as records of the metadata log (KIP-554)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_log.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from spark_log.types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

MIN_ITERATIONS: Final = 4_096
"""The minimum of RFC 7677, and of Kafka."""

MAX_ITERATIONS: Final = 16_384
"""Kafka's maximum: a larger number would make each authentication take long."""

Alteration = UserScramCredentialDeletion | UserScramCredentialUpsertion


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The part of a password that a server keeps.

    Attributes:
        mechanism: the mechanism.
        iterations: the number of iterations of the salted hash.
        salt: the salt.
        stored_key: the hash of the client's key.
        server_key: the key by which the server proves that it has the credential.
    """

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_upsertion(cls, upsertion: UserScramCredentialUpsertion) -> ScramCredential:
        """Return the credential of a salted password."""
        name = upsertion.mechanism.hash_name
        client_key = hmac.digest(upsertion.salted_password, b"Client Key", name)
        return cls(
            upsertion.mechanism,
            upsertion.iterations,
            upsertion.salt,
            hashlib.new(name, client_key).digest(),
            hmac.digest(upsertion.salted_password, b"Server Key", name),
        )

    def accepts(self, password: str) -> bool:
        """Return whether a password is the right one; takes some milliseconds."""
        found = ScramCredential.of_upsertion(
            UserScramCredentialUpsertion.of_password(
                "", self.mechanism, password, salt=self.salt, iterations=self.iterations
            )
        )
        return hmac.compare_digest(found.stored_key, self.stored_key)


def scram_credentials(image: MetadataImage, user: str) -> dict[ScramMechanism, ScramCredential]:
    """Return the credentials of a user; empty if there is no such user.

    A mechanism that a newer version added is left out.
    """
    return {
        mechanism: ScramCredential(
            mechanism, found.iterations, found.salt, found.stored_key, found.server_key
        )
        for mechanism in ScramMechanism
        if (found := image.scram_credentials.get(user, _NONE).get(mechanism)) is not None
    }


_NONE: Final[Mapping[int, UserScramCredentialRecord]] = {}


def alter_scram_credential_records(
    image: MetadataImage, alterations: Sequence[Alteration]
) -> list[MetadataRecord]:
    """Return the records that change credentials of users.

    Raises:
        DuplicateResourceError: a user's credential for one mechanism is changed twice.
        ResourceNotFoundError: a credential that is to be deleted does not exist.
        UnacceptableCredentialError: a name is empty, or a credential breaks a rule.
    """
    seen: set[tuple[str, ScramMechanism]] = set()
    records: list[MetadataRecord] = []
    for each in alterations:
        if not each.user:
            raise UnacceptableCredentialError("the name of a user is empty; give one")
        if (each.user, each.mechanism) in seen:
            raise DuplicateResourceError(
                f"user {each.user!r}: the credential for {each.mechanism.mechanism_name} is "
                f"changed twice; give one change"
            )
        seen.add((each.user, each.mechanism))
        if isinstance(each, UserScramCredentialUpsertion):
            _check(each)
            records.append(_record(each))
        elif each.mechanism in image.scram_credentials.get(each.user, _NONE):
            records.append(
                RemoveUserScramCredentialRecord(name=each.user, mechanism=each.mechanism)
            )
        else:
            raise ResourceNotFoundError(
                f"user {each.user!r} has no credential for {each.mechanism.mechanism_name}"
            )
    return records


def _check(upsertion: UserScramCredentialUpsertion) -> None:
    problem = None
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        problem = (
            f"{upsertion.iterations} iterations; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    elif not upsertion.salt:
        problem = "the salt is empty"
    elif not upsertion.salted_password:
        problem = "the salted password is empty"
    if problem is not None:
        raise UnacceptableCredentialError(f"user {upsertion.user!r}: {problem}")


def _record(upsertion: UserScramCredentialUpsertion) -> UserScramCredentialRecord:
    made = ScramCredential.of_upsertion(upsertion)
    return UserScramCredentialRecord(
        name=upsertion.user,
        mechanism=made.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )
