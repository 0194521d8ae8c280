"""``spark-log quorum``: describe the members of the cluster root, add one, remove one."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_table, print_text
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.cluster import check_new_voter
from spark_log.errors import InvalidConfigurationError
from spark_log.storage import (
    Membership,
    QuorumStore,
    Store,
    add_voter,
    describe_voters,
    find_quorum,
    found_from_root,
    open_quorum,
    open_store,
    remove_voter,
)

app = typer.Typer(rich_markup_mode=None)

MemberArgument = Annotated[
    str, typer.Argument(metavar="URL", help="Root: a path or a URL, without credentials.")
]


@app.command("describe")
@with_examples("spark-log quorum describe")
@with_option_groups
def describe_quorum(root: Root, output: Output) -> None:
    """Describe the members: roots, ids, and whether they count.

    A member counts if it still has its id. A root that was wiped, replaced by hand, or is not
    mounted has no id; mount it again, or remove it and add an empty root.
    """
    # This works even if too few members answer to open the cluster.
    opened = find_quorum(open_store(root.url, root.storage_options), root.storage_options)
    store = _quorum(opened, root)
    membership = store.reload().membership
    voters = describe_voters(store)
    if output.is_json:
        documents = [
            {
                "root": each.root,
                "directory_id": each.directory_id,
                "version": each.version,
                "state": each.state,
            }
            for each in voters
        ]
        print_json({"version": membership.version, "voters": documents})
        return
    print_text(f"Version: {membership.version}  Majority: {membership.majority}")
    print_table(
        ["Root", "DirectoryId", "Version", "State"],
        [[each.root, each.directory_id, each.version, each.state] for each in voters],
    )


@app.command("add")
@with_examples("spark-log quorum add disk2")
@with_option_groups
def add_member(member: MemberArgument, root: Root, output: Output) -> None:
    """Add an empty root, which gets a copy of all files. Run it again if it was interrupted.

    The first call makes a quorum of a single root. End all clients of that root first: they would
    continue to write to that root alone.
    """
    cluster = root.cluster()
    store = cluster.store
    is_single = not isinstance(store, QuorumStore)
    if not isinstance(store, QuorumStore):
        store = open_quorum([store.url], root.storage_options)
    added = _url_of(store, member)
    check_new_voter(cluster, added)
    if is_single:
        found_from_root(store)
    _answer(output, f"Added {added}.", add_voter(store, added))


@app.command("remove")
@with_examples("spark-log quorum remove disk2")
@with_option_groups
def remove_member(member: MemberArgument, root: Root, output: Output) -> None:
    """Remove a member, even if it does not answer. Its files stay."""
    store = _quorum(root.cluster().store, root)
    removed = _url_of(store, member)
    _answer(output, f"Removed {removed}.", remove_voter(store, removed))


def _quorum(store: Store, root: Root) -> QuorumStore:
    if not isinstance(store, QuorumStore):
        url = root.cluster().root  # an error if there is no root
        raise InvalidConfigurationError(
            f"{url} is a single root; make a quorum of it: spark-log quorum add OTHER", key="root"
        )
    return store


def _url_of(store: QuorumStore, member: str) -> str:
    """Return the URL of a root that a user gave."""
    if not member.strip() or "," in member:
        raise InvalidConfigurationError(
            f"the member is {member!r}; give one path or URL, without a comma", key="quorum"
        )
    return store.open_member(os.path.expanduser(member)).url


def _answer(output: Output, done: str, membership: Membership) -> None:
    roots = [voter.root for voter in membership.voters]
    advice = (
        ""
        if len(roots) % 2
        else " Add or remove a member: an even number survives no more losses than one less."
    )
    output.answer(
        f"{done} Members: {', '.join(roots)}.{advice}",
        {"version": membership.version, "voters": roots},
    )
