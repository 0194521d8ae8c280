"""The local store: the conformance suite, the order of disk operations, and errors."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    SparkLogError,
    StorageError,
    StorageFullError,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from spark_log.storage import StagedBytes
from spark_log.storage.local import LocalStore
from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite
from spark_log.util.suppressed import IN_PROCESS
from tests.storage.full_disk import DISKS

PROJECT = Path(__file__).parents[2]


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(str(tmp_path / "root"))


class LocalStoreMachine(StoreStateMachine):
    def make_store(self):
        self.directory = tempfile.mkdtemp()
        return LocalStore(self.directory)

    def close_store(self):
        shutil.rmtree(self.directory)


TestLocalStoreStateful = LocalStoreMachine.TestCase
TestLocalStoreStateful.settings = settings(max_examples=25, stateful_step_count=40)


@pytest.fixture
def store(local_store):
    return local_store


def everything_below(store):
    """Return all files below the root, also temporary ones, relative to it."""
    root = Path(store.url)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


# --- what reaches the disk -----------------------------------------------------------------------


@pytest.fixture
def disk_calls(monkeypatch):
    """Record the calls that change the disk, in order; a synced file is named by its inode."""
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "mkdir", "unlink")}

    def fsync(descriptor):
        status = os.fstat(descriptor)
        of = (
            os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
            if stat.S_ISDIR(status.st_mode)
            else status.st_ino
        )
        calls.append(("fsync", of))
        real["fsync"](descriptor)

    def named(call):
        def record(path, *args, **kwargs):
            real[call](path, *args, **kwargs)
            target = args[0] if call == "link" else path
            if not os.path.basename(target).startswith("."):
                calls.append((call, os.path.basename(target)))

        return record

    monkeypatch.setattr(os, "fsync", fsync)
    for call in ("link", "mkdir", "unlink"):
        monkeypatch.setattr(os, call, named(call))
    return calls


class TestSync:
    @pytest.mark.parametrize("staged", [True, False])
    def test_a_synced_put_syncs_the_file_then_links_it_then_syncs_the_directory(
        self, store, disk_calls, staged
    ):
        store.put_if_absent("topic/first", b"")
        disk_calls.clear()
        if staged:
            with store.stage("topic") as file:
                file.sink.write(b"content")
                store.put_if_absent("topic/0.log", file)
        else:
            store.put_if_absent("topic/0.log", b"content")
        inode = os.stat(f"{store.url}/topic/0.log").st_ino
        assert disk_calls == [("fsync", inode), ("link", "0.log"), ("fsync", "topic")]

    def test_a_put_without_sync_syncs_nothing(self, store, disk_calls):
        store.put_if_absent("topic/first", b"")
        disk_calls.clear()
        store.put_if_absent("topic/0.log", b"content", sync=False)
        with store.stage("topic") as file:
            file.sink.write(b"content")
            store.put_if_absent("topic/1.log", file, sync=False)
        assert disk_calls == [("link", "0.log"), ("link", "1.log")]

    def test_the_bytes_are_synced_once_however_many_names_are_tried(self, store, disk_calls):
        store.put_if_absent("topic/0.log", b"taken")
        store.put_if_absent("topic/1.log", b"taken")
        disk_calls.clear()
        with store.stage("topic") as file:
            file.sink.write(b"content")
            for name in ("0.log", "1.log"):
                with pytest.raises(AlreadyExistsError):
                    store.put_if_absent(f"topic/{name}", file)
            store.put_if_absent("topic/2.log", file)
        assert [call for call, of in disk_calls if of != "topic"] == ["fsync", "link"]

    def test_new_directories_are_durable_before_anything_is_in_them(self, store, disk_calls):
        store.put_if_absent("flights.id/flights-0/0.log", b"content")
        inode = os.stat(f"{store.url}/flights.id/flights-0/0.log").st_ino
        assert disk_calls == [
            ("mkdir", "flights.id"),
            ("fsync", "root"),
            ("mkdir", "flights-0"),
            ("fsync", "flights.id"),
            ("fsync", inode),
            ("link", "0.log"),
            ("fsync", "flights-0"),
        ]

    def test_a_file_that_cannot_be_synced_does_not_become_visible(self, store, monkeypatch):
        store.put_if_absent("topic/first", b"")
        monkeypatch.setattr(os, "fsync", failing_with(errno.EIO))
        with pytest.raises(StorageError) as caught:
            store.put_if_absent("topic/0.log", b"content")
        assert not isinstance(caught.value, UnknownOutcomeError)
        assert everything_below(store) == ["topic/first"]

    def test_bytes_whose_sync_failed_once_are_never_put_under_a_name(self, store, monkeypatch):
        """After a failed fsync Linux forgets the error, and the next fsync of the file succeeds."""
        store.put_if_absent("topic/first", b"")
        with store.stage("topic") as file:
            file.sink.write(b"content")
            with monkeypatch.context() as broken:
                broken.setattr(os, "fsync", failing_with(errno.EIO))
                with pytest.raises(StorageError):
                    store.put_if_absent("topic/0.log", file)
            with pytest.raises(StorageError):
                store.put_if_absent("topic/0.log", file)
        assert everything_below(store) == ["topic/first"]

    def test_a_directory_that_cannot_be_synced_leaves_an_unknown_outcome(self, store, monkeypatch):
        store.put_if_absent("topic/first", b"")
        real = os.fsync

        def fsync(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, "broken")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(UnknownOutcomeError) as caught:
            store.put_if_absent("topic/0.log", b"content")
        assert caught.value.path == "topic/0.log"
        assert everything_below(store) == ["topic/0.log", "topic/first"]


# --- crashes -------------------------------------------------------------------------------------

DIE_AT = """
import os, signal, sys
from spark_log.storage import local
from spark_log.storage import StagedBytes
from spark_log.storage.local import LocalStore
from spark_log.util.suppressed import IN_PROCESS

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, sys.argv[2], die)
store = LocalStore(sys.argv[1])
with store.stage("topic") as file:
    file.sink.write(b"x" * 100_000)
    store.put_if_absent("topic/0.log", file)
"""


class TestCrash:
    @pytest.mark.parametrize("call", ["fsync", "link"])
    def test_before_the_link_nothing_is_visible_and_the_name_is_free(self, store, call):
        store.put_if_absent("topic/first", b"")
        assert self.die_at(store, call) == -signal.SIGKILL
        assert [file.name for file in store.list("topic")] == ["first"]
        assert len(everything_below(store)) == 2, "the temporary file is what a crash leaves"
        store.put_if_absent("topic/0.log", b"the next writer's")
        assert store.read_tail("topic/0.log", 20).to_pybytes() == b"the next writer's"

    def test_after_the_link_the_whole_file_is_visible(self, store):
        store.put_if_absent("topic/first", b"")
        assert self.die_at(store, "unlink") == -signal.SIGKILL
        assert [file.name for file in store.list("topic")] == ["0.log", "first"]
        assert store.open_buffer("topic/0.log").to_pybytes() == b"x" * 100_000

    def die_at(self, store, call):
        command = [sys.executable, "-c", DIE_AT, store.url, call]
        done = subprocess.run(command, cwd=PROJECT, timeout=60, check=False)
        return done.returncode


# --- file systems that answer otherwise ----------------------------------------------------------


def failing_with(number):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


class TestLinkAnswers:
    @pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV])
    def test_a_file_system_without_hard_links_is_refused_by_name(
        self, tmp_path, monkeypatch, number
    ):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        types = {fields[2] for fields in mounts if str(tmp_path).startswith(fields[1])}
        monkeypatch.setattr(os, "link", failing_with(number))
        store = LocalStore(str(tmp_path / "root"))
        for attempt in (store.create_root, lambda: store.put_if_absent("topic/0.log", b"content")):
            with pytest.raises(UnsupportedStoreError) as caught:
                attempt()
            assert store.url in caught.value.message
            assert os.strerror(number) in caught.value.message
            assert any(f"of type {name}," in caught.value.message for name in types)
            assert everything_below(store) == []

    def test_a_file_system_whose_link_overwrites_is_refused(self, tmp_path, monkeypatch):
        def overwrite(source, target):
            shutil.copy(source, target)

        monkeypatch.setattr(os, "link", overwrite)
        store = LocalStore(str(tmp_path / "root"))
        with pytest.raises(UnsupportedStoreError, match="two writers could create the same file"):
            store.create_root()
        assert everything_below(store) == []

    @pytest.mark.parametrize("staged", [True, False])
    def test_a_link_that_exists_already_by_this_put_is_success(self, store, monkeypatch, staged):
        """NFS repeats a request whose answer was lost, and then finds its own link."""
        real = os.link

        def link_and_lose_the_answer(source, target):
            real(source, target)
            raise FileExistsError(errno.EEXIST, "exists")

        monkeypatch.setattr(os, "link", link_and_lose_the_answer)
        if staged:
            with store.stage("topic") as file:
                file.sink.write(b"mine")
                store.put_if_absent("topic/0.log", file)
        else:
            store.put_if_absent("topic/0.log", b"mine")
        assert everything_below(store) == ["topic/0.log"]
        monkeypatch.undo()
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("topic/0.log", b"another's")

    def test_a_taken_name_whose_file_is_deleted_meanwhile_is_still_taken(self, store, monkeypatch):
        store.put_if_absent("topic/0.log", b"the winner")
        real = os.link

        def link(source, target):
            try:
                real(source, target)
            except FileExistsError:
                os.unlink(target)
                raise

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("topic/0.log", b"content")
        assert everything_below(store) == []

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
    def test_a_link_that_failed_but_took_effect_is_not_a_failure(
        self, store, monkeypatch, disk_calls, number
    ):
        real = os.link

        def link_and_fail(source, target):
            real(source, target)
            raise OSError(number, os.strerror(number))

        store.put_if_absent("topic/first", b"")
        monkeypatch.setattr(os, "link", link_and_fail)
        disk_calls.clear()
        try:
            store.put_if_absent("topic/0.log", b"content")
        except UnknownOutcomeError:
            return
        assert disk_calls[-1] == ("fsync", "topic"), "success is durable, or it is none"

    def test_a_temporary_file_that_cannot_be_deleted_does_not_fail_a_put(self, store, monkeypatch):
        monkeypatch.setattr(os, "unlink", failing_with(errno.EACCES))
        store.put_if_absent("topic/0.log", b"content")
        assert [file.name for file in store.list("topic")] == ["0.log"]


# --- roots ---------------------------------------------------------------------------------------


class TestTemporaryFiles:
    def test_no_temporary_file_is_left_after_a_put_or_a_discard(self, store):
        put, lost, unused = (store.stage("topic") for _ in range(3))
        assert len(everything_below(store)) == 3
        for file in (put, lost):
            file.sink.write(b"content")
        store.put_if_absent("topic/0.log", put)
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("topic/0.log", lost)
        for file in (put, lost, unused):
            file.discard()
        assert everything_below(store) == ["topic/0.log"]

    def test_temporary_files_are_in_the_target_directory_and_not_listed(self, store):
        with store.stage("topic/partition") as file:
            (name,) = everything_below(store)
            assert name.startswith("topic/partition/.")
            assert list(store.list("topic/partition")) == []
            assert file.size_bytes == 0


class TestTimes:
    def test_a_file_that_was_written_long_before_it_got_its_name_is_new(self, store):
        """Cleaners free names by the time at which a covering file appeared, not by its writing."""
        with store.stage("a") as staged:
            staged.sink.write(b"x")
            staged.seal()
            os.utime(staged.path, (1_600_000_000, 1_600_000_000))
            store.put("a/now", b"")
            store.put_if_absent("a/file", staged)
            assert store.head("a/file").modified_us >= store.head("a/now").modified_us
        times = {file.name: file.modified_us for file in store.list("a")}
        assert times["file"] >= times["now"]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="tells what is in memory")
def test_released_memory_is_not_resident(tmp_path):
    store = LocalStore(str(tmp_path))
    store.put("large", bytes(4_194_304))
    buffer = store.open_buffer("large")

    def resident_kib():
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        return sum(
            int(next(line for line in lines if line.startswith("Rss")).split()[1])
            for line in lines
            if line.endswith("/large")
        )

    assert buffer.to_pybytes() == bytes(4_194_304)
    assert resident_kib() == 4096
    store.release_memory(buffer)
    assert resident_kib() == 0


class TestRoots:
    @pytest.mark.parametrize("below", ["", "/below", "/below/deeper"])
    def test_a_root_that_is_a_file_is_invalid(self, tmp_path, below):
        (tmp_path / "file").write_bytes(b"content")
        store = LocalStore(f"{tmp_path}/file{below}")
        with pytest.raises(InvalidRootError) as caught:
            store.create_root()
        assert caught.value.path == store.url
        assert (tmp_path / "file").read_bytes() == b"content"

    @pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
    def test_a_root_that_cannot_be_made_says_why(self, tmp_path, monkeypatch, number):
        monkeypatch.setattr(os, "mkdir", failing_with(number))
        with pytest.raises(InvalidRootError, match=os.strerror(number)):
            LocalStore(str(tmp_path / "root")).create_root()

    def test_a_full_disk_does_not_make_a_root_invalid(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "mkdir", failing_with(errno.ENOSPC))
        with pytest.raises(StorageFullError):
            LocalStore(str(tmp_path / "root")).create_root()

    def test_creating_a_root_makes_its_parents(self, tmp_path):
        store = LocalStore(str(tmp_path / "a/b/root"))
        store.create_root()
        assert everything_below(store) == []
        assert os.path.isdir(store.url)

    def test_a_root_may_be_a_link_to_a_directory(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        store = LocalStore(str(tmp_path / "link"))
        store.create_root()
        store.put_if_absent("topic/0.log", b"content")
        assert (tmp_path / "real/topic/0.log").read_bytes() == b"content"

    def test_nothing_of_the_probe_is_ever_listed(self, tmp_path, monkeypatch):
        listed: list[str] = []
        real = os.link

        def link(source, target):
            real(source, target)
            listed.extend(file.name for file in LocalStore(str(tmp_path / "root")).list(""))

        monkeypatch.setattr(os, "link", link)
        LocalStore(str(tmp_path / "root")).create_root()
        assert listed == []

    def test_two_handles_that_spell_one_root_differently_have_one_url(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        urls = {LocalStore(root).url for root in ("root", "./root/", f"{tmp_path}/x/../root")}
        assert urls == {str(tmp_path / "root")}


class TestOwnErrors:
    """Errors of the operating system reach the caller as errors of this package."""

    @pytest.mark.parametrize(
        "operation",
        [
            lambda store: store.put_if_absent("file/0.log", b""),
            lambda store: store.put("file/0.index", b""),
            lambda store: store.stage("file"),
            lambda store: store.read("file/0.log", 0, 1),
            lambda store: store.read_tail("file/0.log", 1),
            lambda store: store.open_buffer("file/0.log"),
            lambda store: store.head("file/0.log"),
            lambda store: list(store.list("file")),
        ],
        ids=["put_if_absent", "put", "stage", "read", "tail", "open", "head", "list"],
    )
    def test_a_file_in_the_place_of_a_directory_is_a_storage_error(self, store, operation):
        store.put_if_absent("file", b"")
        with pytest.raises(SparkLogError):
            operation(store)

    def test_a_directory_that_cannot_be_read_is_a_storage_error(self, store, monkeypatch):
        monkeypatch.setattr(os, "scandir", failing_with(errno.EACCES))
        with pytest.raises(StorageError):
            list(store.list("topic"))

    def test_a_directory_deleted_while_a_file_is_staged_is_a_storage_error(self, store):
        with store.stage("topic") as file:
            file.sink.write(b"content")
            store.delete_directory("topic")
            with pytest.raises(StorageError):
                store.put_if_absent("topic/0.log", file)


# --- a full disk ---------------------------------------------------------------------------------


@pytest.fixture(params=DISKS)
def disk(request, tmp_path):
    with request.param(tmp_path / "disk") as disk:
        yield disk


class TestStagedBytes:
    def test_a_file_that_lost_a_race_is_put_under_the_next_name_without_being_written_again(
        self, tmp_path
    ):
        store = LocalStore(str(tmp_path))
        store.put_if_absent("topic/0.log", b"theirs")
        with StagedBytes(b"ours") as staged:
            with pytest.raises(AlreadyExistsError):
                store.put_if_absent("topic/0.log", staged)
            (hidden,) = store.list_hidden("topic")
            inode = os.stat(tmp_path / hidden.path).st_ino
            store.put_if_absent("topic/3.log", staged)
            assert os.stat(tmp_path / "topic/3.log").st_ino == inode
            assert not list(store.list_hidden("topic"))
        assert store.open_buffer("topic/3.log").to_pybytes() == b"ours"

    def test_a_file_whose_name_was_taken_is_deleted_when_the_bytes_are_discarded(self, tmp_path):
        store = LocalStore(str(tmp_path))
        store.put_if_absent("topic/0.log", b"theirs")
        with StagedBytes(b"ours") as staged, pytest.raises(AlreadyExistsError):
            store.put_if_absent("topic/0.log", staged)
        assert everything_below(store) == ["topic/0.log"]

    def test_discarded_bytes_are_not_put(self, tmp_path):
        staged = StagedBytes(b"ours")
        staged.discard()
        with pytest.raises(StorageError, match="discarded"):
            LocalStore(str(tmp_path)).put_if_absent("topic/0.log", staged)


class TestFullDisk:
    def test_put_if_absent_makes_nothing_visible_and_leaves_nothing(self, disk):
        store = LocalStore(str(disk.path))
        store.put_if_absent("topic/first", b"")
        with disk.full_but_for(100_000):
            with pytest.raises(StorageFullError) as caught:
                store.put_if_absent("topic/0.log", b"x" * 200_000)
            assert caught.value.path == "topic/0.log"
            assert caught.value.retriable
            assert everything_below(store) == [*disk.ballast, "topic/first"]
        store.put_if_absent("topic/0.log", b"x" * 200_000)
        assert store.head("topic/0.log").size_bytes == 200_000

    def test_put_keeps_what_was_there(self, disk):
        store = LocalStore(str(disk.path))
        store.put("checkpoint", b"old")
        with disk.full_but_for(100_000):
            with pytest.raises(StorageFullError):
                store.put("checkpoint", b"x" * 200_000)
            assert store.open_buffer("checkpoint").to_pybytes() == b"old"
            assert everything_below(store) == sorted([*disk.ballast, "checkpoint"])
        store.put("checkpoint", b"x" * 200_000)
        assert store.head("checkpoint").size_bytes == 200_000


class TestSuppressedErrors:
    def test_without_failures_nothing_is_counted(self, local_store):
        before = IN_PROCESS.counts()
        local_store.put("a/b", b"x")
        local_store.put("a/b", b"y")
        local_store.put_if_absent("a/c", b"x")
        with pytest.raises(AlreadyExistsError):
            local_store.put_if_absent("a/c", b"x")
        local_store.delete("a/b")
        local_store.delete_directory("a")
        local_store.delete_directory("a")
        assert IN_PROCESS.counts() == before

    def test_a_temporary_file_that_cannot_be_deleted_is_counted(self, local_store, monkeypatch):
        def refuse(path):
            raise PermissionError(errno.EACCES, "no")

        before = IN_PROCESS.counts().get("deletion of a temporary file", 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            local_store.put_if_absent("a/c", b"x")
        assert IN_PROCESS.counts()["deletion of a temporary file"] == before + 1

    def test_a_directory_that_cannot_be_deleted_is_counted(self, local_store, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError(errno.EACCES, "no")

        local_store.put("a/b", b"x")
        before = IN_PROCESS.counts().get("deletion of a directory", 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            local_store.delete_directory("a")
        assert IN_PROCESS.counts()["deletion of a directory"] > before
