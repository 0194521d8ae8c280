"""A guarded store does nothing where its root does not lie."""

import os
import pickle
import shutil
from functools import partial

import pytest

from spark_log.errors import (
    AlreadyExistsError,
    InvalidRootError,
    NotFoundError,
    StorageUnavailableError,
)
from spark_log.storage import StagedFileLostError, Store
from spark_log.storage.local import LocalStore

MARKER = "whose"


def check_is_mine(store: Store, name: bytes) -> None:
    """Raise unless the marker of a root has this name."""
    try:
        found = store.open_buffer(MARKER).to_pybytes()
    except NotFoundError:
        raise StorageUnavailableError(f"{store.url} has no marker", path=store.url) from None
    if found != name:
        raise InvalidRootError(f"{store.url} is {found!r}", path=store.url)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / MARKER).write_bytes(b"mine")
    return tmp_path / "root"


@pytest.fixture
def store(root):
    """Return a guarded store that has read and written already."""
    store = LocalStore(str(root)).guarded(MARKER, partial(check_is_mine, name=b"mine"))
    store.put_if_absent("a/file", b"content")
    return store


def moved_away(root):
    root.rename(root.with_name("gone"))


def emptied(root):
    moved_away(root)
    root.mkdir()


def without_marker(root):
    (root / MARKER).unlink()


def another(root):
    moved_away(root)
    (root / "a").mkdir(parents=True)
    (root / MARKER).write_bytes(b"yours")


OPERATIONS = {
    "put_if_absent": lambda store: store.put_if_absent("a/new", b""),
    "put_if_absent in a new directory": lambda store: store.put_if_absent("b/c/new", b""),
    "put": lambda store: store.put("a/file", b"other"),
    "stage": lambda store: store.stage("d"),
    "make_directory": lambda store: store.make_directory("a"),
    "delete": lambda store: store.delete("a/file"),
    "delete_directory": lambda store: store.delete_directory("a"),
    "keep_reserve": lambda store: store.keep_reserve(),
    "release_reserve": lambda store: store.release_reserve(),
    "list": lambda store: list(store.list("a")),
    "list_hidden": lambda store: list(store.list_hidden("a")),
    "list_directories": lambda store: list(store.list_directories("")),
    "read": lambda store: store.read("a/file", 0, 1),
    "read_tail": lambda store: store.read_tail("a/file", 1),
    "open_buffer": lambda store: store.open_buffer("a/file"),
    "head": lambda store: store.head("a/file"),
}


def below(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("take_away", [moved_away, emptied, without_marker, another])
def test_nothing_is_done_where_the_root_does_not_lie(root, store, take_away, operation):
    take_away(root)
    before = below(root)
    kind = InvalidRootError if take_away is another else StorageUnavailableError
    with pytest.raises(kind, match=str(root)):
        operation(store)
    assert below(root) == before
    assert root.exists() == (take_away is not moved_away)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_root_that_comes_back_is_used_again(root, store, operation):
    moved_away(root)
    with pytest.raises(StorageUnavailableError):
        operation(store)
    root.with_name("gone").rename(root)
    operation(store)


def test_a_copy_of_the_root_is_the_root(root, store):
    moved_away(root)
    shutil.copytree(root.with_name("gone"), root)
    store.put_if_absent("a/new", b"")
    assert below(root) == ["a", "a/file", "a/new", MARKER]


def test_a_marker_that_is_written_over_in_its_place_is_read_again(root, store):
    (root / MARKER).write_bytes(b"yours")
    with pytest.raises(InvalidRootError):
        store.put("a/file", b"")


def test_the_marker_is_read_only_when_it_has_changed(root):
    reads = []

    def check(store):
        reads.append(store.url)

    store = LocalStore(str(root)).guarded(MARKER, check)
    for number in range(10):
        store.put_if_absent(f"a/{number}", b"")
        list(store.list("a"))
    assert len(reads) == 1


def test_it_works_in_another_process(root, store):
    again = pickle.loads(pickle.dumps(store))
    again.put("a/file", b"other")
    another(root)
    with pytest.raises(InvalidRootError):
        again.put("a/file", b"third")


@pytest.mark.parametrize("call", ["link", "replace"])
def test_a_root_that_is_exchanged_at_the_last_moment_gets_nothing(root, store, monkeypatch, call):
    real = getattr(os, call)

    def exchange(source, target):
        monkeypatch.setattr(os, call, real)
        another(root)
        real(source, target)

    monkeypatch.setattr(os, call, exchange)
    with pytest.raises(InvalidRootError):
        store.put("a/new", b"") if call == "replace" else store.put_if_absent("a/new", b"")
    assert below(root) == ["a", MARKER]


def test_a_root_that_is_exchanged_before_a_directory_is_made_gets_none(root, store, monkeypatch):
    real = os.open

    def exchange(path, flags, *args, **options):
        if path == str(root):
            monkeypatch.setattr(os, "open", real)
            another(root)
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(InvalidRootError):
        store.put_if_absent("b/new", b"")
    assert below(root) == ["a", MARKER]


class TestDirectory:
    def test_that_someone_has_removed_is_not_made_again(self, root, store):
        shutil.rmtree(root / "a")
        for put in (store.put_if_absent, store.put):
            with pytest.raises(NotFoundError):
                put("a/file", b"")
        assert not (root / "a").exists()

    def test_that_is_removed_behind_a_staged_file_is_told(self, root, store):
        with store.stage("a") as staged:
            staged.sink.write(b"content")
            shutil.rmtree(root / "a")
            with pytest.raises(NotFoundError):
                store.put_if_absent("a/new", staged)
        assert not (root / "a").exists()

    def test_that_is_exchanged_behind_a_staged_file_is_told(self, root, store):
        with store.stage("a") as staged:
            staged.sink.write(b"content")
            shutil.rmtree(root / "a")
            (root / "a").mkdir()
            with pytest.raises(StagedFileLostError, match="moved or exchanged"):
                store.put_if_absent("a/new", staged)
        assert not os.listdir(root / "a")

    def test_that_comes_back_is_used_again(self, root, store):
        (root / "a").rename(root / "away")
        with pytest.raises(NotFoundError):
            store.put("a/file", b"")
        (root / "away").rename(root / "a")
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("a/file", b"")

    def test_that_this_store_has_deleted_is_made_again(self, root, store):
        store.delete_directory("a")
        store.put_if_absent("a/file", b"")
        assert below(root) == ["a", "a/file", MARKER]

    def test_is_made_by_what_repairs(self, root, store):
        shutil.rmtree(root / "a")
        store.make_directory("a")
        store.put_if_absent("a/file", b"")

    @pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
    def test_has_the_permissions_of_the_one_above_it(self, root, store, umask):
        root.chmod(0o775)
        before = os.umask(umask)
        try:
            store.put_if_absent("b/c/file", b"")
        finally:
            os.umask(before)
        modes = {oct((root / each).stat().st_mode & 0o777) for each in ("b", "b/c")}
        assert modes == {"0o775"}
