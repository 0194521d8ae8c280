"""``spark-log gateway-users``: the users of gateways, in a root or in a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_text
from spark_log.cli.options import (
    ConfigFileOption,
    Root,
    RootOption,
    StorageOption,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError
from spark_log.gateway import delete_user, set_password, user_names
from spark_log.types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

app = typer.Typer(rich_markup_mode=None)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@dataclass(frozen=True, slots=True)
class UserStore:
    """The place of the users of a command line.

    Attributes:
        file: the file; None if the users are in the metadata of a root.
        root: the root; None if the users are in a file.
    """

    file: Path | None
    root: Root | None

    @classmethod
    def from_options(
        cls,
        file: Annotated[
            Path | None,
            typer.Option(
                "--file",
                metavar="FILE",
                help="File of users, for sasl.users.file, instead of the root.",
            ),
        ] = None,
        root: RootOption = None,
        config: ConfigFileOption = None,
        storage_option: StorageOption = None,
    ) -> UserStore:
        """Return the place that the user gave, without accessing it.

        Raises:
            InvalidConfigurationError: neither a file nor a root was given, or the properties file
                has an error.
        """
        if file is not None:
            return cls(file, None)
        return cls(None, Root.from_options(root, config, storage_option))

    def __str__(self) -> str:
        return str(self.file) if self.root is None else self.root.url

    def names(self) -> list[str]:
        """Return the names of the users, sorted."""
        if self.root is None:
            assert self.file is not None
            return user_names(self.file)
        return list(self.root.admin().describe_user_scram_credentials())

    def set_password(self, name: str, password: str) -> None:
        """Add a user, or give it another password."""
        if self.root is None:
            assert self.file is not None
            set_password(self.file, name, password)
            return
        if not password:
            raise InvalidConfigurationError(f"the password of {name!r} is empty")
        self.root.admin().alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion.of_password(name, mechanism, password)
                for mechanism in ScramMechanism
            ]
        )

    def delete(self, name: str) -> None:
        """Delete a user."""
        if self.root is None:
            assert self.file is not None
            delete_user(self.file, name)
            return
        admin = self.root.admin()
        infos = admin.describe_user_scram_credentials([name])[name]
        admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion(name, each.mechanism) for each in infos]
        )


@app.command("add")
@with_examples(
    "echo secret | spark-log gateway-users add alice",
    "echo secret | spark-log gateway-users add alice --file users",
)
@with_option_groups
def add(output: Output, name: UserName, store: UserStore) -> None:
    """Add a user, or give it another password.

    The password is asked for, or read from stdin. Stored are salted hashes of it (SCRAM-SHA-256 and
    SCRAM-SHA-512). Everybody who may read the root can read them; a file has mode 600. Running
    gateways see the change.
    """
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    store.set_password(name, password)
    _print_done(output, name, f"User {name} is in {store}")


@app.command("list")
@with_examples("spark-log gateway-users list", "spark-log gateway-users list --file users")
@with_option_groups
def list_users(output: Output, store: UserStore) -> None:
    """List the names of the users."""
    names = store.names()
    if output.is_json:
        print_json(names)
    else:
        print_text("\n".join(names))


@app.command("delete")
@with_examples(
    "spark-log gateway-users delete alice",
    "spark-log gateway-users delete alice --file users",
)
@with_option_groups
def delete(output: Output, name: UserName, store: UserStore) -> None:
    """Delete a user.

    Its open connections stay until they end, or until the gateway asks them to authenticate again
    (connections.max.reauth.ms).
    """
    store.delete(name)
    _print_done(output, name, f"User {name} is deleted from {store}")


def _print_done(output: Output, name: str, sentence: str) -> None:
    if output.is_json:
        print_json({"name": name})
    else:
        print_text(sentence)
