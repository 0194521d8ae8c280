"""``spark-log gateway-users``: the file of users, whose passwords nobody can read."""

import pytest

from spark_log.cluster import Cluster
from spark_log.gateway.security import MetadataUsers, Users, UsersFile


def add(shell, name, password, file="users"):
    return shell("gateway-users", "add", name, "--file", file, stdin=f"{password}\n".encode())


def test_users_are_added_changed_listed_and_deleted(shell, folder):
    file = folder / "users"
    assert add(shell, "bob", "old").status == 0
    assert add(shell, "alice", "secret").status == 0
    assert add(shell, "bob", "new").status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"secret" not in file.read_bytes()
    users = Users(UsersFile(file))
    assert users.accepts("alice", "secret")
    assert users.accepts("bob", "new")
    assert not users.accepts("bob", "old")
    assert shell("gateway-users", "list", "--file", "users").out.split() == ["alice", "bob"]
    assert shell("gateway-users", "delete", "bob", "--file", "users").status == 0
    assert shell("gateway-users", "list", "--file", "users", "--json").document == ["alice"]
    assert users.accepts("alice", "secret")
    assert not users.accepts("bob", "new")
    assert [each.name for each in folder.iterdir() if "users" in each.name] == ["users"]


def test_users_of_a_root_are_added_changed_listed_and_deleted(shell, folder):
    Cluster(folder / "root", create=True).release()
    store = ("--root", "root")
    for name, password in (("bob", "old"), ("alice", "secret"), ("bob", "new"), ("a b:", "c")):
        text = f"{password}\n".encode()
        assert shell("gateway-users", "add", name, *store, stdin=text).status == 0
    users = Users(MetadataUsers(Cluster(folder / "root").image))
    assert users.accepts("alice", "secret")
    assert users.accepts("bob", "new")
    assert not users.accepts("bob", "old")
    listed = shell("gateway-users", "list", *store, "--json")
    assert listed.document == ["a b:", "alice", "bob"]
    outcome = shell("gateway-users", "delete", "bob", *store)
    assert outcome.out == "User bob is deleted from root\n"
    assert not users.accepts("bob", "new")
    assert b"secret" not in b"".join(
        each.read_bytes() for each in (folder / "root").rglob("*") if each.is_file()
    )
    for wrong in (
        shell("gateway-users", "add", "", *store, stdin=b"x"),
        shell("gateway-users", "add", "eve", *store, stdin=b""),
        shell("gateway-users", "delete", "bob", *store),
        shell("gateway-users", "list"),
    ):
        assert wrong.status == 2
        assert wrong.err.count("\n") <= 1
    assert users.names() == ["a b:", "alice"]


def test_comments_stay(shell, folder):
    file = folder / "users"
    file.touch(0o600)
    file.write_text("# the team\n")
    add(shell, "alice", "a")
    add(shell, "alice", "b")
    assert file.read_text().startswith("# the team\n")
    assert file.read_text().count("alice") == 2


def test_mistakes_are_one_error_and_change_nothing(shell, folder):
    add(shell, "alice", "a")
    before = (folder / "users").read_bytes()
    for outcome in (
        add(shell, "a:b", "x"),
        add(shell, "bob", ""),
        shell("gateway-users", "delete", "bob", "--file", "users"),
        shell("gateway-users", "list", "--file", "none"),
        add(shell, "bob", "b", file="no-folder/users"),
    ):
        assert outcome.status == 2
        assert outcome.err.count("\n") <= 1
    assert (folder / "users").read_bytes() == before


@pytest.mark.parametrize("command", ["add", "list"])
def test_a_file_that_others_may_read_is_refused(shell, folder, command):
    add(shell, "alice", "a")
    (folder / "users").chmod(0o644)
    outcome = (
        add(shell, "bob", "b")
        if command == "add"
        else shell("gateway-users", "list", "--file", "users")
    )
    assert outcome.status == 2
    assert "chmod 600" in outcome.error
