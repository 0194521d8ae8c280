"""Hints of what appears in directories; and doing without them."""

import os
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


def make(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


@linux
class TestInotify:
    def test_hints_at_the_directory_in_which_a_file_appears(self, watch, tmp_path):
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

    def test_hints_at_a_link_and_at_a_file_that_is_renamed_into_it(self, watch, tmp_path):
        make(tmp_path / "a/.staged")
        make(tmp_path / "other")
        watch.add("a")
        os.link(tmp_path / "a/.staged", tmp_path / "a/linked")
        assert watch.wait(LONG_MS) == {"a"}
        os.rename(tmp_path / "other", tmp_path / "a/moved")
        assert watch.wait(LONG_MS) == {"a"}

    def test_staged_files_are_no_news(self, watch, tmp_path):
        make(tmp_path / "a/0")
        watch.add("a")
        make(tmp_path / "a/.staged.tmp")
        assert watch.wait(0) == set()

    def test_a_directory_that_does_not_exist_yet_is_watched_from_when_it_does(
        self, watch, tmp_path
    ):
        assert watch.add("topic/partition")
        (tmp_path / "topic").mkdir()
        assert watch.wait(LONG_MS) == {"topic/partition"}
        (tmp_path / "topic/partition").mkdir()
        assert watch.wait(LONG_MS) == {"topic/partition"}
        make(tmp_path / "topic/partition/0")
        assert watch.wait(LONG_MS) == {"topic/partition"}
        make(tmp_path / "elsewhere")
        assert watch.wait(0) == set()

    def test_a_directory_that_is_deleted_and_made_again_is_watched_again(self, watch, tmp_path):
        (tmp_path / "a").mkdir()
        watch.add("a")
        (tmp_path / "a").rmdir()
        assert watch.wait(LONG_MS) == {"a"}
        (tmp_path / "a").mkdir()
        assert watch.wait(LONG_MS) == {"a"}
        make(tmp_path / "a/0")
        assert watch.wait(LONG_MS) == {"a"}

    def test_a_full_queue_hints_at_all(self, watch, tmp_path, monkeypatch):
        for name in ("a", "b"):
            make(tmp_path / name / "0")
            watch.add(name)
        make(tmp_path / "a/1")
        overflow = directory_watch._EVENT.pack(-1, directory_watch._IN_Q_OVERFLOW, 0, 0)
        monkeypatch.setattr(directory_watch.os, "read", lambda *_: overflow)
        assert watch.wait(LONG_MS) == {"a", "b"}

    def test_what_is_removed_hints_no_more(self, watch, tmp_path):
        make(tmp_path / "a/0")
        watch.add("a")
        watch.remove("a")
        watch.remove("never added")
        make(tmp_path / "a/1")
        assert watch.wait(0) == set()

    def test_leaves_no_descriptor_open(self, tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        watch = InotifyWatch(str(tmp_path))
        watch.add("a")
        watch.close()
        watch.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert watch.add("a") is False


class TestEveryWatch:
    def test_is_woken_by_another_thread(self, any_watch):
        threading.Timer(0.02, any_watch.wake).start()
        assert any_watch.wait(LONG_MS) == set()

    def test_is_woken_ahead(self, any_watch):
        any_watch.wake()
        any_watch.wake()
        assert any_watch.wait(LONG_MS) == set()

    def test_returns_when_the_time_is_up(self, any_watch):
        assert any_watch.wait(1) == set()

    def test_may_be_woken_after_it_was_closed(self, any_watch):
        any_watch.close()
        any_watch.wake()


class TestChoosing:
    def test_a_store_in_memory_has_no_hints(self, memory_store):
        assert isinstance(watch_directories(memory_store), SilentWatch)

    @linux
    def test_a_file_system_that_others_write_to_has_none(self, local_store, monkeypatch):
        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "nfs4")
        assert isinstance(watch_directories(local_store), SilentWatch)
        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "ext4")
        watch = watch_directories(local_store)
        assert isinstance(watch, InotifyWatch)
        watch.close()

    @linux
    def test_when_the_system_has_no_watch_left_there_are_none(self, local_store, monkeypatch):
        def none_left(root):
            raise OSError(24, "too many")

        monkeypatch.setattr(directory_watch, "file_system_type", lambda path: "ext4")
        monkeypatch.setattr(directory_watch, "InotifyWatch", none_left)
        assert isinstance(watch_directories(local_store), SilentWatch)
