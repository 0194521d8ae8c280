"""`Users`: the users of a gateway, in a file that is read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.security.scram import (
    DEFAULT_ITERATIONS,
    HASHES,
    MIN_ITERATIONS,
    Credential,
)

_NAME: Final = re.compile(r"[^\s:\x00-\x1f]+")


class Users:
    """The credentials of users, by name. Safe to use from several threads.

    Each line of the file is ``name:mechanism:iterations:salt:stored key:server key``, the last
    three in Base64; `credential_lines` makes them. Empty lines, and those that begin with ``#``,
    are skipped. Only its owner may read or write the file.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            InvalidConfigurationError: it cannot be read, others may read it, or a line is wrong.
        """
        self._path = path
        self._lock = threading.Lock()
        self._secret = os.urandom(32)
        self._version: tuple[int, int, int] | None = None
        self._credentials: Mapping[tuple[str, str], Credential] = {}
        self._refresh()

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted({name for _, name in self._credentials})

    def credential(self, mechanism: str, name: str) -> Credential | None:
        """Return a user's credential for a mechanism; None if there is none.

        Raises:
            InvalidConfigurationError: the file was changed, and is wrong.
        """
        self._refresh()
        return self._credentials.get((mechanism, name))

    def invented(self, mechanism: str, name: str) -> Credential:
        """Return a credential that nobody has: always the same salt for a name.

        A client cannot tell by it which names exist.
        """
        digest = HASHES[mechanism]
        key = hmac.digest(self._secret, f"{mechanism}/{name}".encode("utf-8", "replace"), digest)
        return Credential(mechanism, DEFAULT_ITERATIONS, key[:24], key, key)

    def accepts(self, name: str, password: str) -> bool:
        """Return whether a password is a user's; takes some milliseconds, also without the user.

        Raises:
            InvalidConfigurationError: the file was changed, and is wrong.
        """
        found = [self.credential(mechanism, name) for mechanism in HASHES]
        credential = next((each for each in found if each is not None), None)
        if credential is None:
            self.invented(next(iter(HASHES)), name).accepts(password)
            return False
        return credential.accepts(password)

    def _refresh(self) -> None:
        with self._lock:
            try:
                status = self._path.stat()
                version = (status.st_mtime_ns, status.st_size, status.st_ino)
                if version == self._version:
                    return
                text = self._path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidConfigurationError(
                    f"the users cannot be read from {self._path}: {error}", key="sasl.users.file"
                ) from None
            if status.st_mode & 0o077:
                raise InvalidConfigurationError(
                    f"{self._path} has the passwords' hashes, and others than its owner may read "
                    f"or write it: chmod 600 {self._path}",
                    key="sasl.users.file",
                )
            self._credentials = _parse(self._path, text)
            self._version = version


def credential_lines(
    name: str, password: str, *, iterations: int = DEFAULT_ITERATIONS
) -> list[str]:
    """Return the lines of a user in the file of users, one for each mechanism.

    Args:
        name: the user's name.
        password: the user's password; it is not in the lines.
        iterations: the number of iterations of the salted hash.

    Raises:
        InvalidConfigurationError: the name has a colon or a space, or one of both is empty.
    """
    if not _NAME.fullmatch(name):
        raise InvalidConfigurationError(
            f"a user's name is {name!r}; give one without spaces and colons"
        )
    if not password:
        raise InvalidConfigurationError(f"the password of {name!r} is empty")
    lines = []
    for mechanism in HASHES:
        made = Credential.of_password(mechanism, password, iterations=iterations)
        keys = (made.salt, made.stored_key, made.server_key)
        encoded = ":".join(b64encode(each).decode() for each in keys)
        lines.append(f"{name}:{mechanism}:{iterations}:{encoded}")
    return lines


def _parse(path: Path, text: str) -> dict[tuple[str, str], Credential]:
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, mechanism, iterations, *encoded = line.strip().split(":")
            salt, stored_key, server_key = (b64decode(each, validate=True) for each in encoded)
            size = hashlib.new(HASHES[mechanism]).digest_size
            credential = Credential(mechanism, int(iterations), salt, stored_key, server_key)
            if not name or not salt or {len(stored_key), len(server_key)} != {size}:
                raise ValueError
            if credential.iterations < MIN_ITERATIONS:
                raise ValueError
        except (ValueError, KeyError):
            raise InvalidConfigurationError(
                f"{path}, line {number}: expected name:mechanism:iterations:salt:stored key:server "
                f"key with at least {MIN_ITERATIONS} iterations, as spark-log gateway-users writes",
                key="sasl.users.file",
            ) from None
        found[mechanism, name] = credential
    return found
