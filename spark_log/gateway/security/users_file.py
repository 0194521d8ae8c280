"""Changes of the file of users, each as a whole: a gateway reads the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.security.users import Users, credential_lines


def user_names(path: Path) -> list[str]:
    """Return the names of the users in a file, sorted.

    Raises:
        InvalidConfigurationError: the file cannot be read, others may read it, or a line is wrong.
    """
    return Users(path).names()


def set_password(path: Path, name: str, password: str) -> None:
    """Add a user, or give it another password; the file is created if it does not exist.

    Raises:
        InvalidConfigurationError: the name or the password is not possible, or the file is wrong.
    """
    made = credential_lines(name, password)
    lines = _lines(path) if path.exists() else []
    _replace(path, [*_without(lines, name), *made])


def delete_user(path: Path, name: str) -> None:
    """Delete a user; a connection that it has already stays.

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


def _lines(path: Path) -> list[str]:
    Users(path)  # a file that a gateway would refuse is refused here, too
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
