"""The file of users: a gateway reads it; each change replaces it as a whole."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.security.users import Credentials
from spark_log.metadata import MIN_ITERATIONS, ScramCredential
from spark_log.types import ScramMechanism, UserScramCredentialUpsertion

_NAME: Final = re.compile(r"[^\s:\x00-\x1f]+")


class UsersFile:
    """The users in a file, which is read again when it changes. Safe to use from several threads.

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
        self._version: tuple[int, int, int] | None = None
        self._credentials: Mapping[str, Credentials] = {}
        self._refresh()

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted(self._credentials)

    def credentials(self, name: str) -> Credentials:
        """Return a user's credentials; empty if the file does not have the user.

        Raises:
            InvalidConfigurationError: the file was changed, and is wrong.
        """
        self._refresh()
        return self._credentials.get(name, {})

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


def user_names(path: Path) -> list[str]:
    """Return the names of the users in a file, sorted.

    Raises:
        InvalidConfigurationError: the file cannot be read, others may read it, or a line is wrong.
    """
    return UsersFile(path).names()


def set_password(path: Path, name: str, password: str) -> None:
    """Add a user, or give it another password; the file is created if it does not exist.

    Raises:
        InvalidConfigurationError: the name or the password is not possible, or the file is wrong.
    """
    made = credential_lines(name, password)
    lines = _lines(path) if path.exists() else []
    _replace(path, [*_without(lines, name), *made])


def delete_user(path: Path, name: str) -> None:
    """Delete a user; its open connections stay for at most ``connections.max.reauth.ms``.

    Raises:
        InvalidConfigurationError: there is no such user, or the file is wrong.
    """
    lines = _lines(path)
    kept = _without(lines, name)
    if kept == lines:
        raise InvalidConfigurationError(
            f"{path} has no user {name!r}; it has {', '.join(user_names(path)) or 'none'}"
        )
    _replace(path, kept)


def credential_lines(
    name: str,
    password: str,
    *,
    iterations: int = UserScramCredentialUpsertion.DEFAULT_ITERATIONS,
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
    for mechanism in ScramMechanism:
        made = ScramCredential.of_upsertion(
            UserScramCredentialUpsertion.of_password(
                name, mechanism, password, iterations=iterations
            )
        )
        keys = (made.salt, made.stored_key, made.server_key)
        encoded = ":".join(b64encode(each).decode() for each in keys)
        lines.append(f"{name}:{mechanism.mechanism_name}:{iterations}:{encoded}")
    return lines


def _lines(path: Path) -> list[str]:
    UsersFile(path)  # a file that a gateway would refuse is refused here, too
    return path.read_text(encoding="utf-8").splitlines()


def _without(lines: Sequence[str], name: str) -> list[str]:
    return [line for line in lines if line.partition(":")[0].strip() != name]


def _replace(path: Path, lines: Sequence[str]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InvalidConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _parse(path: Path, text: str) -> dict[str, Credentials]:
    found: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, mechanism_name, iterations, *encoded = line.strip().split(":")
            mechanism = ScramMechanism.of_name(mechanism_name)
            salt, stored_key, server_key = (b64decode(each, validate=True) for each in encoded)
            size = hashlib.new(mechanism.hash_name).digest_size
            credential = ScramCredential(mechanism, int(iterations), salt, stored_key, server_key)
            if not name or not salt or {len(stored_key), len(server_key)} != {size}:
                raise ValueError
            if credential.iterations < MIN_ITERATIONS:
                raise ValueError
        except ValueError:
            raise InvalidConfigurationError(
                f"{path}, line {number}: expected name:mechanism:iterations:salt:stored key:server "
                f"key with at least {MIN_ITERATIONS} iterations, as spark-log gateway-users writes",
                key="sasl.users.file",
            ) from None
        found.setdefault(name, {})[mechanism] = credential
    return dict(found)
