"""Bytes that wait for their upload: no other user can read them, and no file is left."""

import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

from spark_log.errors import StorageError
from spark_log.storage import open_store
from spark_log.storage.object.location import ObjectLocation
from spark_log.storage.object.object_store import ObjectStore
from spark_log.storage.unlinked_file import UnlinkedFile
from spark_log.testing.servers.faulty_proxy import FaultyProxy

SECRET = b"a record's value"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Use an empty temporary directory, also in child processes."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield directory
    tempfile.tempdir = None


def test_the_file_has_no_name_and_only_its_owner_may_read_it(temporary):
    mask = os.umask(0)
    try:
        with UnlinkedFile() as staged:
            staged.sink.write(SECRET)
            assert list(temporary.iterdir()) == []
            with staged.open() as file:
                status = os.fstat(file.fileno())
    finally:
        os.umask(mask)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0


@pytest.mark.parametrize("content", [b"", SECRET, os.urandom(200_000)])
def test_written_bytes_can_be_read_after_a_discard(temporary, content):
    with UnlinkedFile() as staged:
        staged.sink.write(content)
        assert staged.size_bytes == len(content)
        buffer = staged.read_back()
        assert staged.size_bytes == len(content)
        for _ in range(2):
            with staged.open() as file:
                assert file.read() == content
    assert buffer.to_pybytes() == content


def test_discarding_twice_closes_no_other_file(temporary):
    staged = UnlinkedFile()
    staged.discard()
    with open(os.devnull) as other:
        staged.discard()
        assert os.fstat(other.fileno())


def test_a_directory_that_cannot_be_written_is_named(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(StorageError, match="missing"):
        UnlinkedFile()


def test_the_staged_file_of_an_object_store_has_no_name(s3_server, temporary):
    store = open_store(s3_server.new_bucket(), s3_server.storage_options)
    with store.stage("topic") as staged:
        staged.sink.write(SECRET)
        staged.seal()
        assert list(temporary.iterdir()) == []
        store.put_if_absent("topic/0.log", staged)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("multipart_bytes", [1, 1 << 30])
def test_a_process_killed_during_an_upload_leaves_no_local_file(
    s3_server, temporary, multipart_bytes
):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        options = {**s3_server.storage_options, "endpoint_url": proxy.url}
        location = ObjectLocation.parse(s3_server.new_bucket(), options)
        store = ObjectStore(location, multipart_bytes=multipart_bytes)
        uploader = f"""
import pickle
store = pickle.loads({pickle.dumps(store)!r})
with store.stage("topic") as staged:
    staged.sink.write({SECRET!r} * 1_000_000)
    store.put_if_absent("topic/0.log", staged)
"""
        process = subprocess.Popen([sys.executable, "-c", uploader])
        left, is_killed = [], threading.Event()

        def kill_in_mid_upload(request):
            if SECRET in request.body:
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=60)
                left.extend(temporary.iterdir())
                is_killed.set()
                return "lose request"
            return "pass"

        proxy.rule = kill_in_mid_upload
        assert process.wait(timeout=60) == -signal.SIGKILL
        assert is_killed.wait(timeout=60)
    assert left == []
    assert list(temporary.iterdir()) == []
