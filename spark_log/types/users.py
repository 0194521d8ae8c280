"""SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Self


class ScramMechanism(IntEnum):
    """A mechanism of SCRAM, with Kafka's number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def of_name(cls, name: str) -> ScramMechanism:
        """Return the mechanism with a name in SASL.

        Raises:
            ValueError: there is no such mechanism of SCRAM.
        """
        for each in cls:
            if each.mechanism_name == name:
                return each
        raise ValueError(f"{name} is no mechanism of SCRAM")

    @property
    def mechanism_name(self) -> str:
        """The mechanism's name in SASL, such as ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the mechanism's hash function, such as ``sha256``."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """The part of a credential that everybody who may describe it sees.

    Attributes:
        mechanism: the mechanism.
        iterations: the number of iterations of the salted hash.
    """

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """The deletion of a user's credential for one mechanism.

    Attributes:
        user: the user's name.
        mechanism: the mechanism.
    """

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A new credential of a user for one mechanism, or one that replaces it.

    Attributes:
        user: the user's name.
        mechanism: the mechanism.
        iterations: the number of iterations of the salted hash, 4,096 to 16,384.
        salt: the salt; never shown.
        salted_password: the salted hash of the password; never shown, and never stored: the
            credential has two keys that are derived from it.
    """

    DEFAULT_ITERATIONS: ClassVar[int] = 16_384

    user: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)

    @classmethod
    def of_password(
        cls,
        user: str,
        mechanism: ScramMechanism,
        password: str,
        *,
        iterations: int = DEFAULT_ITERATIONS,
        salt: bytes | None = None,
    ) -> Self:
        """Return the upsertion for a password; takes some milliseconds.

        Args:
            user: the user's name.
            mechanism: the mechanism.
            password: the password; the result does not have it.
            iterations: the number of iterations of the salted hash.
            salt: the salt; None for a random one.
        """
        salt = os.urandom(24) if salt is None else salt
        hashed = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls(user, mechanism, iterations, salt, hashed)
