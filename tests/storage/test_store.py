"""Opening a store by its URL, and translating errors of the operating system."""

import errno
from pathlib import Path

import pytest

from spark_log.errors import (
    AlreadyExistsError,
    AuthorizationError,
    NotFoundError,
    StorageError,
    StorageFullError,
    UnsupportedStoreError,
)
from spark_log.storage import FileInfo, open_store
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from spark_log.storage.os_errors import storage_errors


class TestOpenStore:
    @pytest.mark.parametrize("prefix", ["", "file://", "local://"])
    def test_a_path_and_a_file_url_are_a_local_directory(self, prefix, tmp_path):
        store = open_store(f"{prefix}{tmp_path}/a root")
        assert isinstance(store, LocalStore)
        assert store.url == f"{tmp_path}/a root"

    def test_a_path_object_is_accepted(self, tmp_path):
        assert open_store(tmp_path / "root").url == str(tmp_path / "root")

    def test_a_relative_path_is_made_absolute_at_once(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        store = open_store(Path("root"))
        monkeypatch.chdir("/")
        store.put_if_absent("file", b"here")
        assert (tmp_path / "root/file").read_bytes() == b"here"

    def test_opening_touches_nothing(self, tmp_path):
        open_store(tmp_path / "root")
        assert list(tmp_path.iterdir()) == []

    def test_memory_is_a_store_by_name(self):
        store = open_store("memory://by-name")
        assert isinstance(store, MemoryStore)
        assert store.url == "memory://by-name"

    @pytest.mark.parametrize("scheme", ["http", "ftp", "sftp", "hdfs", "github", "nosuch"])
    def test_storage_without_put_if_absent_is_refused_by_name(self, scheme):
        with pytest.raises(UnsupportedStoreError, match=f"^{scheme}:// cannot be a root"):
            open_store(f"{scheme}://host/path")

    def test_a_refusal_shows_no_credentials(self):
        with pytest.raises(UnsupportedStoreError) as caught:
            open_store("ftp://user:pa55word@host/path", {"password": "pa55word"})
        assert "pa55word" not in f"{caught.value!r} {vars(caught.value)}"


class TestFileInfo:
    @pytest.mark.parametrize(("path", "name"), [("a/b/0.log", "0.log"), ("0.log", "0.log")])
    def test_the_name_is_the_last_component_of_the_path(self, path, name):
        assert FileInfo(path, 0, 0).name == name


class TestStorageErrors:
    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (errno.ENOENT, NotFoundError),
            (errno.ENOSPC, StorageFullError),
            (errno.EDQUOT, StorageFullError),
            (errno.EFBIG, StorageFullError),
            (errno.EACCES, AuthorizationError),
            (errno.EIO, StorageError),
            (errno.EROFS, StorageError),
            (errno.ENOTDIR, StorageError),
        ],
    )
    def test_an_errno_becomes_the_error_that_says_what_to_do(self, number, expected):
        with pytest.raises(StorageError) as caught, storage_errors("topic/0.log"):
            raise OSError(number, "what the system says")
        assert type(caught.value) is expected
        assert caught.value.path == "topic/0.log"
        assert caught.value.message.startswith("topic/0.log: ")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == number

    def test_arrow_errors_without_an_errno_keep_their_message(self):
        with pytest.raises(StorageError, match=r"^topic/0\.log: what Arrow says$"):  # noqa: SIM117
            with storage_errors("topic/0.log"):
                raise OSError("what Arrow says")

    def test_other_errors_are_not_translated(self):
        ours = AlreadyExistsError("taken", path="a")
        with pytest.raises(AlreadyExistsError) as caught, storage_errors("b"):
            raise ours
        assert caught.value is ours
        with pytest.raises(ZeroDivisionError), storage_errors("b"):
            raise ZeroDivisionError
