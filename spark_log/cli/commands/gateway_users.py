"""``spark-log gateway-users``: the users of gateways, in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_text
from spark_log.cli.options import with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.gateway import delete_user, set_password, user_names

app = typer.Typer(rich_markup_mode=None)

UsersFile = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="File of the users: sasl.users.file.")
]
UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@app.command("add")
@with_examples("echo secret | spark-log gateway-users add alice --file users")
@with_option_groups
def add(output: Output, name: UserName, file: UsersFile) -> None:
    """Add a user, or give it another password.

    The password is asked for, or read from stdin. The file has salted hashes of it (SCRAM-SHA-256
    and SCRAM-SHA-512), and only its owner may read it. Running gateways see the change at once.
    """
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    set_password(file, name, password)
    _print_done(output, name, f"User {name} is in {file}")


@app.command("list")
@with_examples("spark-log gateway-users list --file users")
@with_option_groups
def list_users(output: Output, file: UsersFile) -> None:
    """List the names of the users."""
    names = user_names(file)
    if output.is_json:
        print_json(names)
    else:
        print_text("\n".join(names))


@app.command("delete")
@with_examples("spark-log gateway-users delete alice --file users")
@with_option_groups
def delete(output: Output, name: UserName, file: UsersFile) -> None:
    """Delete a user.

    Its open connections stay until they end.
    """
    delete_user(file, name)
    _print_done(output, name, f"User {name} is deleted from {file}")


def _print_done(output: Output, name: str, sentence: str) -> None:
    if output.is_json:
        print_json({"name": name})
    else:
        print_text(sentence)
