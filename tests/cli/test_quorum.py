"""``spark-log quorum``: a root becomes one of several, of which any may be lost."""

import shutil
from pathlib import Path

import pytest

from spark_log import Admin
from spark_log.storage import QuorumStore, open_store
from tests.docs.blocks import block


@pytest.fixture
def disks(tmp_path):
    return [str(tmp_path / name) for name in ("disk2", "disk3")]


@pytest.fixture
def quorum(shell, root, disks):
    """The root and two more, which are its quorum."""
    for disk in disks:
        assert shell("quorum", "add", disk).status == 0
    return [str(root), *disks]


def test_a_root_gets_members_one_at_a_time(shell, root, disks):
    first = shell("quorum", "add", disks[0])
    assert first.out == (
        f"Added {disks[0]}. Members: {root}, {disks[0]}. "
        f"Add or remove a member: an even number survives no more losses than one less.\n"
    )
    second = shell("quorum", "add", disks[1], "--json").document
    assert second == {"version": 3, "voters": [str(root), *disks]}


def test_each_member_alone_opens_the_quorum(quorum):
    for member in quorum:
        store = open_store(member)
        assert isinstance(store, QuorumStore)
        assert [voter.root for voter in store.members().membership.voters] == quorum
        assert Admin(member).list_topics() == ["flights", "weather"]


def test_members_are_described(shell, quorum):
    shutil.rmtree(quorum[2])
    lines = [line.split() for line in shell("quorum", "describe").out.splitlines()]
    assert lines[0] == ["Version:", "3", "Majority:", "2"]
    assert [(line[0], line[-1]) for line in lines[2:]] == [
        (quorum[0], "current"),
        (quorum[1], "current"),
        (quorum[2], "lost"),
    ]
    voters = shell("quorum", "describe", "--json").document["voters"]
    assert [voter["state"] for voter in voters] == ["current", "current", "lost"]


def test_a_member_that_lost_its_files_is_removed_and_added_again(shell, quorum):
    shutil.rmtree(quorum[0])
    root = ("--root", ",".join(quorum))
    assert shell("topics", "create", "later", *root).status == 0
    refused = shell("quorum", "add", quorum[0], *root)
    assert refused.error.startswith(f"{quorum[0]} is a member of the quorum and has lost its files")
    assert shell("quorum", "remove", quorum[0], *root).status == 0
    assert not Path(quorum[0]).exists(), "nothing is made in its place"
    assert shell("quorum", "add", quorum[0], *root).status == 0
    shutil.rmtree(quorum[1])
    assert Admin(quorum[0]).list_topics() == ["flights", "later", "weather"]


def test_a_single_root_has_no_members(shell, root):
    assert "is a single root" in shell("quorum", "describe").error
    assert "is a single root" in shell("quorum", "remove", "disk2").error


@pytest.mark.parametrize("argv", [("topics", "list"), ("topics", "create", "later")])
def test_a_single_root_is_not_given_beside_others(shell, root, disks, argv):
    roots = ",".join([str(root), *disks])
    assert shell(*argv, "--root", roots).error == (
        f"{root} has files already, and is no member of a quorum; give it alone, give empty roots, "
        f"or make the quorum from this root: spark-log quorum add OTHER --root {root}"
    )
    assert Admin(root).list_topics() == ["flights", "weather"]


def test_an_even_number_of_roots_is_no_quorum(shell, disks):
    outcome = shell("topics", "create", "t", "--root", ",".join(disks))
    assert outcome.status == 2
    assert outcome.error == (
        "a quorum of 2 roots survives no more losses than one of 1: give an odd number of roots, "
        "such as 3"
    )


@pytest.mark.parametrize("argv", [("quorum", "add", "memory://x"), ("topics", "create", "t")])
def test_the_memory_of_a_process_is_no_member(shell, root, disks, argv):
    roots = ",".join(["memory://x", *disks])
    outcome = shell(*argv) if argv[0] == "quorum" else shell(*argv, "--root", roots)
    assert outcome.status == 2
    assert outcome.error == (
        "memory://x cannot be a member of a quorum: it ends with this process, and counts as lost "
        "from then on; give a path or the URL of an object store"
    )
    assert Admin(root).list_topics() == ["flights", "weather"]


def test_a_root_with_files_is_not_added(shell, root, disks):
    open_store(disks[0]).put_if_absent("kept", b"")
    assert "has files already" in shell("quorum", "add", disks[0]).error


def test_members_are_described_when_too_few_are_left(shell, quorum, tmp_path):
    for lost in quorum[:2]:
        shutil.rmtree(lost)
    voters = shell("quorum", "describe", "--json", "--root", quorum[2]).document["voters"]
    assert [voter["state"] for voter in voters] == ["lost", "lost", "current"]
    settings = tmp_path / "impatient.properties"
    settings.write_text("default.api.timeout.ms=300\n")
    root = ("--root", quorum[2], "--config", str(settings))
    refused = shell("quorum", "remove", quorum[0], *root)
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "fewer than 2 of the 3 roots of the quorum answer" in refused.error


class TestWrongInput:
    """One line tells it, and nothing is changed."""

    @pytest.fixture
    def refused(self, shell, root):
        def run(*arguments):
            before = sorted(root.rglob("*"))
            outcome = shell("quorum", *arguments)
            assert (outcome.status, outcome.out) == (2, "")
            assert outcome.err.count("\n") == 1
            assert sorted(root.rglob("*")) == before
            return outcome.error

        return run

    @pytest.mark.parametrize("command", ["add", "remove"])
    def test_no_root_or_several(self, refused, quorum, command):
        assert "Missing argument" in refused(command)
        for member in ("", " ", "disk4,disk5"):
            assert "give one path or URL" in refused(command, member)

    @pytest.mark.parametrize("command", ["add", "remove"])
    def test_a_root_that_cannot_be_one(self, refused, quorum, command):
        assert "cannot be a root" in refused(command, "ftp://server/log")
        assert "names no bucket" in refused(command, "s3://user:secret@bucket/log")

    def test_a_root_that_is_no_member(self, refused, quorum):
        assert "is no member of the quorum" in refused("remove", "elsewhere")

    def test_a_file(self, refused, tmp_path, quorum):
        (tmp_path / "file").write_bytes(b"")
        assert "is a file" in refused("add", str(tmp_path / "file"))

    def test_the_root_itself(self, refused, root):
        assert "the root of broker 0" in refused("add", str(root))

    def test_a_root_that_shares_files_with_another(self, refused, shell, root, tmp_path):
        assert "is inside of" in refused("add", str(root / "sub"))
        assert "is around" in refused("add", str(root.parent))
        assert shell("brokers", "register", "1", str(tmp_path / "b1")).status == 0
        assert "the root of broker 1" in refused("add", str(tmp_path / "b1" / "sub"))

    def test_an_argument_too_many(self, refused):
        assert "unexpected extra argument" in refused("describe", "more")

    def test_roots_of_a_new_quorum(self, shell, tmp_path):
        one = tmp_path / "one"
        for roots, error in (
            (f"{one},{one}", "is given twice"),
            (f"{one},{one}/a", "is inside of"),
        ):
            refused = shell("topics", "create", "flights", "--root", roots)
            assert (refused.status, refused.err.count("\n")) == (2, 1)
            assert error in refused.error
        assert not one.exists()


class TestTheDocumentation:
    def test_creates_a_quorum(self, shell, folder):
        self.run(shell, block("docs/quorum.md", "disk1/log,disk2/log"))
        self.check(folder, ("disk1", "disk2", "disk3"), "flights")

    def test_makes_one_of_a_root(self, shell, folder):
        self.run(shell, block("docs/quorum.md", "quorum add new2/log"))
        self.check(folder, ("old", "new2", "new3"), "weather")

    def run(self, shell, lines):
        for line in lines.splitlines():
            outcome = shell(*line.split()[1:])
            assert outcome.status == 0, outcome.err

    def check(self, folder, members, topic):
        for member in members:
            assert Admin(folder / member / "log").list_topics() == [topic]
