"""`Users`: the users of a gateway, in a file and in the metadata of its root."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from spark_log.metadata import MetadataImage, ScramCredential, scram_credentials
from spark_log.types import ScramMechanism, UserScramCredentialUpsertion

Credentials = Mapping[ScramMechanism, ScramCredential]
"""The credentials of a user, by mechanism."""


class UserSource(Protocol):
    """A place of users."""

    def credentials(self, name: str) -> Credentials:
        """Return a user's credentials; empty if the source does not have the user."""

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""


class MetadataUsers:
    """The users in the metadata of a root. Safe to use from several threads."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        """Return the users of a root; nothing is read yet.

        Args:
            image: returns the metadata, so fresh as a change of a user has to be seen.
        """
        self._image = image

    def credentials(self, name: str) -> Credentials:
        """Return a user's credentials; empty if there is no such user.

        Raises:
            StorageError: the root cannot be read.
        """
        return scram_credentials(self._image(), name)

    def names(self) -> list[str]:
        """Return the names of all users, sorted.

        Raises:
            StorageError: the root cannot be read.
        """
        return sorted(self._image().scram_credentials)


class Users:
    """The credentials of users, by name. Safe to use from several threads.

    The first source that has a user has all of its credentials: a user of the file cannot be
    changed by a change of the metadata.
    """

    def __init__(self, *sources: UserSource) -> None:
        """Return the users of these sources."""
        self._sources = sources
        self._secret = os.urandom(32)

    def names(self) -> list[str]:
        """Return the names of all users, sorted.

        Raises:
            InvalidConfigurationError: the file of users is wrong.
            StorageError: the root cannot be read.
        """
        return sorted({name for source in self._sources for name in source.names()})

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism; None if there is none.

        Raises:
            InvalidConfigurationError: the file of users is wrong.
            StorageError: the root cannot be read.
        """
        return self._credentials(name).get(mechanism)

    def invented(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that nobody has: always the same salt for a name.

        A client cannot tell by it which names exist.
        """
        text = f"{mechanism.mechanism_name}/{name}".encode("utf-8", "replace")
        key = hmac.digest(self._secret, text, mechanism.hash_name)
        iterations = UserScramCredentialUpsertion.DEFAULT_ITERATIONS
        return ScramCredential(mechanism, iterations, key[:24], key, key)

    def accepts(self, name: str, password: str) -> bool:
        """Return whether a password is a user's; takes some milliseconds, also without the user.

        It is compared with the credential for SCRAM-SHA-256 if there is one.

        Raises:
            InvalidConfigurationError: the file of users is wrong.
            StorageError: the root cannot be read.
        """
        found = self._credentials(name)
        if not found:
            self.invented(ScramMechanism.SCRAM_SHA_256, name).accepts(password)
            return False
        return found[min(found)].accepts(password)

    def _credentials(self, name: str) -> Credentials:
        for source in self._sources:
            if found := source.credentials(name):
                return found
        return {}
