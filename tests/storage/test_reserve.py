"""The disk space that a local root reserves."""

import errno
import os
import threading
from types import SimpleNamespace

import pytest

from spark_log.errors import StorageError, StorageFullError
from spark_log.storage import reserve, with_reserve
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from spark_log.storage.reserve import RESERVE_NAME, keep_reserve, release_reserve
from tests.storage.full_disk import SmallDisk


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "reserved"
    path.mkdir()
    return path


def allocated_bytes(path):
    return path.stat().st_blocks * 512


def test_the_reserve_takes_up_space_until_it_is_released(root):
    assert keep_reserve(str(root))
    assert allocated_bytes(root / RESERVE_NAME) >= reserve.RESERVE_BYTES
    assert keep_reserve(str(root))
    assert release_reserve(str(root))
    assert list(root.iterdir()) == []
    assert not release_reserve(str(root))


def test_a_listing_does_not_show_the_reserve(root):
    store = LocalStore(str(root))
    assert store.keep_reserve()
    assert list(store.list("")) == []


def test_a_partial_reserve_is_completed(root):
    (root / RESERVE_NAME).write_bytes(b"x")
    assert keep_reserve(str(root))
    assert allocated_bytes(root / RESERVE_NAME) >= reserve.RESERVE_BYTES


def test_concurrent_processes_may_keep_the_reserve(root):
    begin = threading.Barrier(8)
    failed = []

    def work(number):
        begin.wait()
        for _ in range(50):
            try:
                (keep_reserve if number % 2 else release_reserve)(str(root))
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert keep_reserve(str(root))


def test_without_fallocate_the_reserve_is_written(root, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert keep_reserve(str(root))
    assert (root / RESERVE_NAME).stat().st_size == reserve.RESERVE_BYTES


@pytest.mark.parametrize(
    ("blocks", "free", "is_kept"), [(100, 100, False), (10**6, 3, False), (10**6, 10**5, True)]
)
def test_a_tiny_or_nearly_full_disk_has_no_reserve(root, monkeypatch, blocks, free, is_kept):
    status = SimpleNamespace(f_blocks=blocks, f_frsize=512, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    assert keep_reserve(str(root)) is is_kept
    assert (root / RESERVE_NAME).exists() is is_kept


def test_a_root_that_cannot_be_written_is_an_error(root):
    with pytest.raises(StorageError):
        keep_reserve(str(root / "missing"))


class FullStore(MemoryStore):
    """A store that reports a reserve, or none."""

    def __init__(self, name, clock, reserves):
        super().__init__(name, clock)
        self.reserves = reserves

    def release_reserve(self):
        self.reserves -= 1
        return self.reserves >= 0


def full():
    raise StorageFullError("a/b: No space left on device", path="a/b")


def test_with_free_space_the_reserve_is_not_released(clock):
    store = FullStore("reserve-a", clock, 1)
    assert with_reserve(store, lambda: 5) == 5
    assert store.reserves == 1


def test_on_a_full_disk_the_reserve_is_used(clock):
    attempts: list[int] = []

    def act():
        attempts.append(len(attempts))
        return full() if len(attempts) == 1 else 5

    assert with_reserve(FullStore("reserve-b", clock, 1), act) == 5
    assert attempts == [0, 1]


@pytest.mark.parametrize(("reserves", "said"), [(1, "is used up"), (0, "no space is reserved")])
def test_without_a_reserve_the_error_says_what_to_do(clock, reserves, said):
    with pytest.raises(StorageFullError, match=said) as caught:
        with_reserve(FullStore("reserve-c", clock, reserves), full)
    assert caught.value.message.startswith("a/b: No space left on device")
    assert "delete or move another file" in caught.value.message
    assert caught.value.path == "a/b"


def test_releasing_the_reserve_makes_room_on_a_real_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 2 << 20)
    with SmallDisk(tmp_path / "disk") as disk:
        root = disk.path / "root"
        store = LocalStore(str(root))
        store.create_root()
        assert store.keep_reserve()
        with disk.full_but_for(0):
            with pytest.raises(StorageFullError):
                store.put_if_absent("a", b"x" * 1000)
            with_reserve(store, lambda: store.put_if_absent("a", b"x" * 1000))
            assert not store.keep_reserve()
        assert store.keep_reserve()
