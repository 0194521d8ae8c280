"""`PowerCut` keeps synced data, and loses unsynced data in every way that POSIX allows."""

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from spark_log.storage.local import LocalStore
from spark_log.testing.power_cut import PowerCut

SEEDS = range(60)


@pytest.fixture
def disk(tmp_path):
    with PowerCut(tmp_path / "disk", tmp_path / "kept") as disk:
        yield disk


@pytest.fixture
def left(disk, tmp_path):
    """The states after power cuts at a moment: path → content, None if lost; for many seeds."""

    def of(moment, *paths):
        found = set()
        for seed in SEEDS:
            target = tmp_path / "after"
            disk.restore(moment, Random(seed), target)
            files = [target / path for path in paths]
            found.add(tuple(file.read_bytes() if file.exists() else None for file in files))
            shutil.rmtree(target)
        return found

    return of


@pytest.fixture
def base(disk, tmp_path):
    return tmp_path / "disk"


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def make(path, content):
    """A file that is written under a temporary name, and then renamed."""
    staged = path.parent / ".staged"
    staged.write_bytes(content)
    os.link(staged, path)
    os.unlink(staged)


class TestFiles:
    def test_what_is_not_synced_is_whole_cut_short_zero_or_not_there(self, disk, base, left):
        make(base / "a", b"abc")
        found = {content for (content,) in left(disk.moment(), "a")}
        assert {None, b"abc", b"", b"\0\0\0"} <= found
        assert found & {b"a", b"ab"}
        assert found & {b"a\0\0", b"ab\0"}

    def test_a_synced_file_may_lose_its_name_and_nothing_else(self, disk, base, left):
        make(base / "a", b"abc")
        sync(base / "a")
        assert left(disk.moment(), "a") == {(None,), (b"abc",)}

    def test_a_synced_directory_keeps_names_of_files_that_may_be_damaged(self, disk, base, left):
        make(base / "a", b"abc")
        sync(base)
        found = {content for (content,) in left(disk.moment(), "a")}
        assert None not in found
        assert len(found) > 2

    def test_what_is_synced_stays_and_is_not_yet_so_at_an_earlier_moment(self, disk, base, left):
        make(base / "a", b"abc")
        sync(base / "a")
        before = disk.moment()
        sync(base)
        assert left(disk.moment(), "a") == {(b"abc",)}
        assert left(before, "a") == {(None,), (b"abc",)}

    def test_names_are_lost_in_any_order(self, disk, base, left):
        for name in ("a", "b"):
            make(base / name, b"x")
            sync(base / name)
        assert left(disk.moment(), "a", "b") == {
            (None, None),
            (b"x", None),
            (None, b"x"),
            (b"x", b"x"),
        }

    def test_a_rename_leaves_the_old_file_or_the_new_one(self, disk, base, left):
        for content in (b"old", b"new"):
            (base / ".staged").write_bytes(content)
            sync(base / ".staged")
            os.replace(base / ".staged", base / "a")
            if content == b"old":
                sync(base)
        assert left(disk.moment(), "a") == {(b"old",), (b"new",)}

    def test_a_deleted_file_may_be_there_again(self, disk, base, left):
        make(base / "a", b"abc")
        sync(base / "a")
        sync(base)
        os.unlink(base / "a")
        assert left(disk.moment(), "a") == {(None,), (b"abc",)}
        sync(base)
        assert left(disk.moment(), "a") == {(None,)}


class TestDirectories:
    def test_a_new_directory_may_take_along_what_is_synced_in_it(self, disk, base, left):
        os.mkdir(base / "d")
        make(base / "d/a", b"abc")
        sync(base / "d/a")
        sync(base / "d")
        assert left(disk.moment(), "d/a") == {(None,), (b"abc",)}
        sync(base)
        assert left(disk.moment(), "d/a") == {(b"abc",)}

    def test_a_directory_that_is_removed_and_made_again_has_nothing_of_the_first(
        self, disk, base, left
    ):
        os.mkdir(base / "d")
        make(base / "d/a", b"abc")
        sync(base / "d/a")
        sync(base / "d")
        shutil.rmtree(base / "d")
        os.mkdir(base / "d")
        sync(base)
        assert left(disk.moment(), "d/a") == {(None,)}

    def test_what_other_libraries_make_and_remove_is_found(self, disk, base, left):
        (base / "d").mkdir()
        (base / "d/a").write_bytes(b"abc")
        disk.scan()
        assert {(None,), (b"abc",)} <= left(disk.moment(), "d/a")
        sync(base / "d/a")
        sync(base / "d")
        sync(base)
        assert left(disk.moment(), "d/a") == {(b"abc",)}
        subprocess.run(["rm", base / "d/a"], check=True)
        disk.scan()
        assert left(disk.moment(), "d/a") == {(None,), (b"abc",)}

    def test_what_lies_elsewhere_is_not_watched(self, disk, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        make(Path(tmp_path / "elsewhere/a"), b"")
        sync(tmp_path / "elsewhere")
        assert disk.moment() == 0


PUTS = [
    lambda store, path: store.put_if_absent(path, b"content"),
    lambda store, path: store.put(path, b"content"),
    lambda store, path: store.put_if_absent(path, b"content", sync=False) or store.sync(path),
    lambda store, path: store.put(path, b"content", sync=False) or store.sync(path),
]


class TestLocalStore:
    """A file that the store reports as durable survives every power cut."""

    @pytest.mark.parametrize("put", PUTS, ids=["put_if_absent", "put", "synced", "synced put"])
    @pytest.mark.parametrize("path", ["a", "x/a", "x/y/z/a"])
    def test_what_was_put_is_durable_on_return(self, disk, base, left, put, path):
        put(LocalStore(f"{base}/new/root"), path)
        assert left(disk.moment(), f"new/root/{path}") == {(b"content",)}

    @pytest.mark.parametrize("put", PUTS, ids=["put_if_absent", "put", "synced", "synced put"])
    def test_also_in_directories_that_another_process_has_made_and_not_synced(
        self, disk, base, left, put
    ):
        os.makedirs(base / "root/x/y")
        store = LocalStore(f"{base}/root")
        store.create_root()
        put(store, "x/y/a")
        assert left(disk.moment(), "root/x/y/a") == {(b"content",)}

    def test_without_sync_it_may_be_lost(self, disk, base, left):
        store = LocalStore(f"{base}/root")
        store.put_if_absent("a", b"content", sync=False)
        store.put("b", b"content", sync=False)
        found = left(disk.moment(), "root/a", "root/b")
        assert len({a for a, _ in found}) > 2
        assert len({b for _, b in found}) > 2
