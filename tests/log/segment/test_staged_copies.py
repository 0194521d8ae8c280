"""Copies of a segment on other roots, which are made while it is written."""

import errno
import os

import pytest

from spark_log.log.segment import StagedCopies
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from tests.log.support import DIRECTORY
from tests.waiting import wait_until

PIECE = os.urandom(1 << 20)


@pytest.fixture
def leader(tmp_path):
    return LocalStore(str(tmp_path / "leader"))


@pytest.fixture
def follower(tmp_path):
    store = LocalStore(str(tmp_path / "follower"))
    store.make_directory(DIRECTORY)
    return store


def test_no_copy_is_made_in_a_directory_that_is_missing(leader, tmp_path):
    follower = LocalStore(str(tmp_path / "empty"))
    copies = StagedCopies([(follower, DIRECTORY)], sync=True)
    with leader.stage(DIRECTORY) as staged:
        write(copies, staged, PIECE)
        complete(copies, staged)
    assert copies.take(f"{follower.url}/{DIRECTORY}") is None
    assert not (tmp_path / "empty").exists()


def temporary_bytes(store):
    return [file.size_bytes for file in store.list_hidden(DIRECTORY)]


def write(copies, staged, data):
    staged.sink.write(data)
    copies.on_written(staged)


def complete(copies, staged):
    staged.seal()
    copies.on_complete(staged)


def taken(copies, store):
    with copies.take(f"{store.url}/{DIRECTORY}") as copy:
        return copy.read_back().to_pybytes()


def is_full(*_):
    raise OSError(errno.ENOSPC, "no space")


class TestStagedCopies:
    @pytest.mark.parametrize("pieces", [[b"short"], [PIECE], [PIECE, b"1", PIECE, b"23"]])
    def test_have_the_bytes_of_the_segment(self, leader, follower, pieces):
        copies = StagedCopies([(follower, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            for piece in pieces:
                write(copies, staged, piece)
            complete(copies, staged)
        assert taken(copies, follower) == b"".join(pieces)
        assert temporary_bytes(follower) == []

    def test_begin_while_a_long_segment_is_written(self, leader, follower):
        copies = StagedCopies([(follower, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            write(copies, staged, b"short")
            assert temporary_bytes(follower) == []
            write(copies, staged, PIECE)
            wait_until(lambda: temporary_bytes(follower) == [len(PIECE) + 5])
            copies.discard()
        wait_until(lambda: temporary_bytes(follower) == [])

    def test_of_a_segment_that_is_discarded_go_with_it(self, leader, follower):
        copies = StagedCopies([(follower, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            write(copies, staged, PIECE)
            complete(copies, staged)
        copies.discard()
        wait_until(lambda: temporary_bytes(follower) == [])
        assert copies.take(f"{follower.url}/{DIRECTORY}") is None

    def test_that_fail_do_not_exist_and_the_others_do(self, leader, follower, tmp_path):
        (tmp_path / "lost").write_text("a file where the root was")
        lost = LocalStore(str(tmp_path / "lost"))
        copies = StagedCopies([(lost, DIRECTORY), (follower, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            write(copies, staged, PIECE)
            complete(copies, staged)
        assert copies.take(f"{lost.url}/{DIRECTORY}") is None
        assert taken(copies, follower) == PIECE

    def test_that_fail_half_way_leave_nothing(self, leader, follower, monkeypatch):
        copies = StagedCopies([(follower, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            write(copies, staged, PIECE)
            wait_until(lambda: temporary_bytes(follower) == [len(PIECE)])
            monkeypatch.setattr(os, "sendfile", is_full)
            write(copies, staged, PIECE)
            complete(copies, staged)
        assert copies.take(f"{follower.url}/{DIRECTORY}") is None
        assert temporary_bytes(follower) == []

    def test_are_not_made_on_a_store_whose_put_writes_the_bytes_anyhow(self, leader):
        memory = MemoryStore("staged-copies")
        copies = StagedCopies([(memory, DIRECTORY)], sync=True)
        with leader.stage(DIRECTORY) as staged:
            write(copies, staged, PIECE)
            complete(copies, staged)
        assert copies.take(f"{memory.url}/{DIRECTORY}") is None

    def test_of_a_segment_that_can_only_be_read_back_begin_when_it_is_complete(self, follower):
        copies = StagedCopies([(follower, DIRECTORY)], sync=True)
        with MemoryStore("staged-copies").stage(DIRECTORY) as staged:
            write(copies, staged, PIECE)
            complete(copies, staged)
            assert taken(copies, follower) == PIECE
