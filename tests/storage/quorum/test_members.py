"""The members of a quorum: what a put costs, who counts, and how the members change."""

import os
import shutil
from pathlib import Path

import pytest

from spark_log.errors import (
    AlreadyExistsError,
    AuthorizationError,
    InvalidConfigurationError,
    InvalidRootError,
    NotFoundError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.storage import open_quorum
from spark_log.storage.local import LocalStore
from spark_log.storage.quorum import add_voter, describe_voters, remove_voter
from spark_log.threads.fan_out import FanOut


@pytest.fixture
def roots(tmp_path):
    return [str(tmp_path / name) for name in "abc"]


@pytest.fixture
def store(roots):
    store = open_quorum(roots)
    store.create_root()
    return store


@pytest.fixture
def rounds(monkeypatch):
    """The rounds of calls to several roots at once, of which callers wait for each."""
    counted = []
    ask = FanOut.request

    def counting(self, calls, **kwargs):
        counted.append(len(calls))
        return ask(self, calls, **kwargs)

    monkeypatch.setattr(FanOut, "request", counting)
    return counted


def files(root, directory="topic"):
    return [file.name for file in open_one(root).list(directory)]


def open_one(root):
    return LocalStore(root)


class TestAPut:
    def test_takes_three_rounds_alone(self, store, rounds):
        store.put_if_absent("topic/0", b"first")
        rounds.clear()
        store.put_if_absent("topic/1", b"second")
        cleaning = 1  # of local roots; on object stores nobody waits for it
        assert len(rounds) - cleaning == 3

    def test_takes_four_rounds_without_one_root(self, store, roots, rounds):
        store.put_if_absent("topic/0", b"first")
        shutil.rmtree(roots[1])
        rounds.clear()
        store.put_if_absent("topic/1", b"second")
        assert len(rounds) - 1 == 4

    def test_is_on_all_roots_and_leaves_nothing_else(self, store, roots):
        store.put_if_absent("topic/0", b"first")
        for root in roots:
            assert open_one(root).open_buffer("topic/0").to_pybytes() == b"first"
            assert files(root, "topic/.quorum") == []

    def test_fails_without_a_majority(self, store, roots):
        store.put_if_absent("topic/0", b"first")
        for root in roots[:2]:
            shutil.rmtree(root)
        with pytest.raises(UnknownOutcomeError, match="fewer than 2 of the 3 roots"):
            store.put_if_absent("topic/1", b"second")
        with pytest.raises(StorageUnavailableError, match="has lost its id"):
            store.head("topic/0")

    def test_is_finished_by_the_next_proposer(self, store, roots):
        """A crash after the claims: the bytes may have been chosen."""
        claim = b"0" * 32 + b"\n" + b"of a process that crashed"
        for root in roots:
            open_one(root).put_if_absent("topic/.quorum/0.0.claim", claim)
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("topic/0", b"second")
        assert store.open_buffer("topic/0").to_pybytes() == b"of a process that crashed"


class TestAReader:
    def test_puts_a_file_of_a_minority_on_the_others(self, store, roots):
        store.put_if_absent("topic/0", b"first")
        open_one(roots[2]).put_if_absent("topic/1", b"second")
        assert [file.name for file in store.list("topic")] == ["0", "1"]
        assert [files(root) for root in roots].count(["0", "1"]) >= 2

    def test_reads_from_another_root_when_one_is_lost(self, store, roots):
        store.put_if_absent("topic/0", b"first")
        for root in roots:
            others = open_quorum([root])
            assert others.open_buffer("topic/0").to_pybytes() == b"first"
        shutil.rmtree(roots[0])
        assert store.open_buffer("topic/0").to_pybytes() == b"first"
        with pytest.raises(NotFoundError):
            store.open_buffer("topic/1")


class TestMembers:
    def test_are_created_once(self, store, roots):
        open_quorum([*reversed(roots)]).create_root()
        versions = {(each.version, each.state) for each in describe_voters(store)}
        assert versions == {(1, "current")}

    def test_are_not_made_of_roots_with_files(self, roots):
        open_one(roots[1]).put_if_absent("meta.properties", b"")
        with pytest.raises(InvalidRootError, match="has files already"):
            open_quorum(roots).create_root()

    def test_may_be_disks_with_a_directory_of_their_file_system(self, roots, tmp_path, monkeypatch):
        for root in (*roots, tmp_path / "d"):
            (tmp_path / root / "lost+found").mkdir(parents=True)
        list_directories = LocalStore.list_directories

        def as_a_user(store, directory):
            if "lost+found" in directory:
                raise AuthorizationError("permission denied", path=directory)
            return list_directories(store, directory)

        monkeypatch.setattr(LocalStore, "list_directories", as_a_user)
        store = open_quorum(roots)
        store.create_root()
        store.put_if_absent("topic/0", b"first")
        add_voter(store, str(tmp_path / "d"))
        assert files(tmp_path / "d") == ["0"]

    def test_that_were_wiped_do_not_count_until_they_are_replaced(self, store, roots, tmp_path):
        store.put_if_absent("topic/0", b"first")
        shutil.rmtree(roots[0])
        store.put_if_absent("topic/1", b"second")
        assert [each.state for each in describe_voters(store)] == ["lost", "current", "current"]
        with pytest.raises(InvalidConfigurationError, match="remove it first"):
            add_voter(store, roots[0])
        remove_voter(store, roots[0])
        add_voter(store, str(tmp_path / "d"))
        assert [each.state for each in describe_voters(store)] == ["current"] * 3
        assert files(tmp_path / "d") == ["0", "1"]
        shutil.rmtree(roots[1])
        assert [file.name for file in store.list("topic")] == ["0", "1"]

    def test_that_change_are_noticed_by_who_has_an_old_list(self, store, roots, tmp_path):
        old = open_quorum(roots)
        old.put_if_absent("topic/0", b"first")
        add_voter(store, str(tmp_path / "d"))
        remove_voter(store, roots[0])
        old.put_if_absent("topic/1", b"second")
        assert files(tmp_path / "d") == ["0", "1"]

    def test_may_be_away_while_another_is_added_and_are_copied_to_later(
        self, store, roots, tmp_path
    ):
        (tmp_path / "c").rename(tmp_path / "away")
        store.put_if_absent("topic/0", b"first")
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        (tmp_path / "away").rename(tmp_path / "c")
        add_voter(store, roots[2])
        assert files(roots[2]) == ["0"]

    def test_have_one_left_at_least(self, roots):
        single = open_quorum(roots[:3])
        single.create_root()
        remove_voter(single, roots[0])
        remove_voter(single, roots[2])
        with pytest.raises(InvalidConfigurationError, match="the only member"):
            remove_voter(single, roots[1])
        with pytest.raises(InvalidConfigurationError, match="is no member"):
            remove_voter(single, roots[2])


class TestAWipedMember:
    """Under writers that do not know of it yet."""

    @pytest.mark.parametrize("is_emptied", [False, True], ids=["removed", "emptied"])
    def test_gets_nothing_and_can_be_replaced_in_its_place(self, store, roots, is_emptied):
        writers = [open_quorum(roots) for _ in range(3)]
        for number, writer in enumerate(writers):
            writer.put_if_absent(f"topic/{number}", b"first")
        shutil.rmtree(roots[0])
        if is_emptied:
            Path(roots[0]).mkdir()
        for number, writer in enumerate(writers, len(writers)):
            writer.put_if_absent(f"topic/{number}", b"second")
            writer.put("other/pointer", b"%d" % number)
        assert Path(roots[0]).exists() == is_emptied
        assert not is_emptied or not os.listdir(roots[0])
        remove_voter(store, roots[0])
        add_voter(store, roots[0])
        for number, writer in enumerate(writers, 2 * len(writers)):
            writer.put_if_absent(f"topic/{number}", b"third")
        assert [each.state for each in describe_voters(store)] == ["current"] * 3
        assert files(roots[0]) == sorted(str(number) for number in range(3 * len(writers)))

    def test_with_directories_left_is_added(self, store, roots, tmp_path):
        (tmp_path / "d" / "topic" / ".quorum").mkdir(parents=True)
        add_voter(store, str(tmp_path / "d"))
        assert len(describe_voters(store)) == 4

    def test_that_was_moved_away_counts_again_when_it_is_back(self, store, roots, tmp_path):
        store.put_if_absent("topic/0", b"first")
        Path(roots[0]).rename(tmp_path / "away")
        store.put_if_absent("topic/1", b"second")
        assert not Path(roots[0]).exists()
        (tmp_path / "away").rename(roots[0])
        shutil.rmtree(roots[1])
        store.put_if_absent("topic/2", b"third")
        assert [file.name for file in store.list("topic")] == ["0", "1", "2"]


class TestARemovedMember:
    def test_gets_nothing_from_who_has_an_old_list(self, store, roots):
        old = open_quorum(roots)
        old.put_if_absent("topic/0", b"first")
        remove_voter(store, roots[0])
        before = sorted(Path(roots[0]).rglob("*"))
        old.put_if_absent("topic/1", b"second")
        old.put("other/pointer", b"")
        assert sorted(Path(roots[0]).rglob("*")) == before

    def test_need_not_answer(self, store, roots, monkeypatch):
        def fails(self, path):
            raise StorageUnavailableError(f"{path}: no answer")

        monkeypatch.setattr(LocalStore, "delete", fails)
        assert roots[0] not in remove_voter(store, roots[0]).url.split(",")
