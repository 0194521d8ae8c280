"""Hints about files that appear in directories, and waiting without hints."""

import os
import struct
import sys
import threading

import pytest

from spark_log.storage import directory_watch
from spark_log.storage.directory_watch import InotifyWatch, SilentWatch, watch_directories

LONG_MS = 20_000

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux'")


@pytest.fixture
def watch(tmp_path):
    watch = InotifyWatch(str(tmp_path))
    yield watch
    watch.close()


@pytest.fixture(params=["inotify", "silent"])
def any_watch(request, tmp_path):
    watch = InotifyWatch(str(tmp_path)) if request.param == "inotify" else SilentWatch()
    yield watch
    watch.close()


IN_Q_OVERFLOW = 0x4000
"""Linux: the queue was full, and events are lost."""


def make(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


@linux
class TestInotify:
    def test_a_file_that_appears_gives_a_hint_for_its_directory(self, watch, tmp_path):
        make(tmp_path / "a/0")
        make(tmp_path / "b/0")
        assert watch.add("a")
        assert watch.add("b")
        make(tmp_path / "b/1")
        assert watch.wait(LONG_MS) == {"b"}
        make(tmp_path / "a/1")
        make(tmp_path / "b/2")
        assert watch.wait(LONG_MS) == {"a", "b"}
        assert watch.wait(0) == set()

    def test_a_link_and_a_renamed_file_give_a_hint(self, watch, tmp_path):
        make(tmp_path / "a/.staged")
        make(tmp_path / "other")
        watch.add("a")
        os.link(tmp_path / "a/.staged", tmp_path / "a/linked")
        assert watch.wait(LONG_MS) == {"a"}
        os.rename(tmp_path / "other", tmp_path / "a/moved")
        assert watch.wait(LONG_MS) == {"a"}

    def test_a_staged_file_gives_no_hint(self, watch, tmp_path):
        make(tmp_path / "a/0")
        watch.add("a")
        make(tmp_path / "a/.staged.tmp")
        assert watch.wait(0) == set()

    def test_a_directory_that_does_not_exist_yet_is_watched_once_it_exists(self, watch, tmp_path):
        assert watch.add("topic/partition")
        (tmp_path / "topic").mkdir()
        assert watch.wait(LONG_MS) == {"topic/partition"}
        (tmp_path / "topic/partition").mkdir()
        assert watch.wait(LONG_MS) == {"topic/partition"}
        make(tmp_path / "topic/partition/0")
        assert watch.wait(LONG_MS) == {"topic/partition"}
        make(tmp_path / "elsewhere")
        assert watch.wait(0) == set()

    def test_a_directory_that_is_deleted_and_created_again_is_watched_again(self, watch, tmp_path):
        (tmp_path / "a").mkdir()
        watch.add("a")
        (tmp_path / "a").rmdir()
        assert watch.wait(LONG_MS) == {"a"}
        (tmp_path / "a").mkdir()
        assert watch.wait(LONG_MS) == {"a"}
        make(tmp_path / "a/0")
        assert watch.wait(LONG_MS) == {"a"}

    def test_a_full_queue_gives_hints_for_all_directories(self, watch, tmp_path, monkeypatch):
        for name in ("a", "b"):
            make(tmp_path / name / "0")
            watch.add(name)
        make(tmp_path / "a/1")
        overflow = struct.pack("iIII", -1, IN_Q_OVERFLOW, 0, 0)
        monkeypatch.setattr(os, "read", lambda *_: overflow)
        assert watch.wait(LONG_MS) == {"a", "b"}

    def test_a_removed_directory_gives_no_hints(self, watch, tmp_path):
        make(tmp_path / "a/0")
        watch.add("a")
        watch.remove("a")
        watch.remove("never added")
        make(tmp_path / "a/1")
        assert watch.wait(0) == set()

    def test_a_closed_watch_leaves_no_descriptor_open(self, tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        watch = InotifyWatch(str(tmp_path))
        watch.add("a")
        watch.close()
        watch.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert watch.add("a") is False


class TestEveryWatch:
    def test_a_wait_is_woken_by_another_thread(self, any_watch):
        threading.Timer(0.02, any_watch.wake).start()
        assert any_watch.wait(LONG_MS) == set()

    def test_a_wake_before_the_wait_ends_it(self, any_watch):
        any_watch.wake()
        any_watch.wake()
        assert any_watch.wait(LONG_MS) == set()

    def test_a_wait_returns_when_its_timeout_has_passed(self, any_watch):
        assert any_watch.wait(1) == set()

    def test_a_closed_watch_may_be_woken(self, any_watch):
        any_watch.close()
        any_watch.wake()


class TestChoosing:
    def test_a_store_in_memory_has_no_hints(self, memory_store):
        assert isinstance(watch_directories(memory_store), SilentWatch)

    @linux
    def test_a_shared_file_system_has_no_hints(self, local_store, monkeypatch):
        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "nfs4")
        assert isinstance(watch_directories(local_store), SilentWatch)
        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "ext4")
        watch = watch_directories(local_store)
        assert isinstance(watch, InotifyWatch)
        watch.close()

    @linux
    def test_without_an_inotify_instance_there_are_no_hints(self, local_store, monkeypatch):
        def none_left(root):
            raise OSError(24, "too many")

        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "ext4")
        monkeypatch.setattr(directory_watch, "InotifyWatch", none_left)
        assert isinstance(watch_directories(local_store), SilentWatch)
