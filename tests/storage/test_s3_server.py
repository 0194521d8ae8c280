"""The S3 server of the tests: built with Go if Go is installed, else moto; ends with the tests."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_log.errors import AlreadyExistsError
from spark_log.storage import open_store
from spark_log.testing.servers import s3_server as module
from spark_log.testing.servers.s3_server import run_s3_server, server_name

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "conf/build-store-servers.sh"


def build(*servers, path, cache):
    done = subprocess.run(
        ["sh", str(SCRIPT), *servers],
        env={"PATH": str(path), "XDG_CACHE_HOME": str(cache), "HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def path(tmp_path):
    """A PATH without Go or npm."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "rm", "mv"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


class TestBuilding:
    def test_without_go_the_script_says_so_in_one_line_and_succeeds(self, path, tmp_path):
        status, lines = build("s3", path=path, cache=tmp_path)
        assert status == 0
        assert lines == ["versitygw 1.8.0 was not built: go is not on the PATH"]

    def test_without_go_or_npm_building_the_other_stores_fails(self, path, tmp_path):
        status, lines = build("gcs", "azure", path=path, cache=tmp_path)
        assert status == 1
        assert [line.partition(": ")[2] for line in lines] == [
            "go is not on the PATH",
            "npm is not on the PATH",
        ]

    def test_the_server_is_built_once_where_tests_look_for_it(self, path, tmp_path, monkeypatch):
        go = path / "go"
        go.write_text('#!/bin/sh\necho "$@" > "$GOBIN/versitygw"\n')
        go.chmod(0o755)
        assert build("s3", path=path, cache=tmp_path)[0] == 0
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        built = module.versitygw_binary()
        assert built.read_text().strip().endswith(f"versitygw@v{module.VERSITYGW_VERSION}")
        go.unlink()
        assert build("s3", path=path, cache=tmp_path) == (
            0,
            [f"versitygw {module.VERSITYGW_VERSION} is already built: {built.parent}"],
        )

    def test_a_failed_build_leaves_no_binary(self, path, tmp_path):
        go = path / "go"
        go.write_text("#!/bin/sh\nexit 1\n")
        go.chmod(0o755)
        status, lines = build("s3", path=path, cache=tmp_path)
        assert status == 0
        assert "could not be built" in lines[-1]
        assert not (tmp_path / "spark-log/versitygw-1.8.0").exists()


class TestMoto:
    def test_moto_replaces_a_missing_versitygw(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert re.match(r"moto [\d.]+ behind a lock", server_name())
        with run_s3_server() as server:
            assert server.name == server_name()
            store = open_store(server.new_bucket(), server.storage_options)
            store.create_root()
            store.put_if_absent("a", b"x")
            with pytest.raises(AlreadyExistsError):
                store.put_if_absent("a", b"y")


class TestEnding:
    def test_the_server_ends_with_its_block(self):
        with run_s3_server() as server:
            os.killpg(server.pid, 0)
        with pytest.raises(ProcessLookupError):
            os.killpg(server.pid, 0)

    def test_the_server_ends_with_a_killed_process(self):
        code = (
            "from spark_log.testing.servers.s3_server import run_s3_server\n"
            "with run_s3_server() as server:\n"
            "    print(server.pid, flush=True)\n"
            "    input()\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )
        assert process.stdout is not None
        group = int(process.stdout.readline())
        descriptor = os.pidfd_open(group)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        import select

        readable, _, _ = select.select([descriptor], [], [], 30)
        os.close(descriptor)
        assert readable, "the server outlived us"
