"""One rule for the permissions of all that is made in a root, whatever a process's umask is."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spark_log.errors import AuthorizationError, StorageFullError
from spark_log.storage import reserve, with_reserve
from spark_log.storage.local import LocalStore
from spark_log.storage.reserve import RESERVE_NAME, keep_reserve
from tests.cli.support import environment

GROUP = 24_101
MODES = {"shared": 0o2770, "read by all": 0o2775, "private": 0o700, "usual": 0o755, "open": 0o1777}
MAKER = [sys.executable, "-m", "tests.security.root_maker"]


def wrong_ones(root):
    """Return what the rule forbids: of a directory other permissions than those of its parent; of
    a file that not all may read it who may read its directory, or others write to it."""
    for path in root.rglob("*"):
        here, above = path.stat(), path.parent.stat()
        mode, parent = stat.S_IMODE(here.st_mode), stat.S_IMODE(above.st_mode)
        said = f"{path.relative_to(root)}: {mode:o} in {parent:o}"
        if path.is_dir():
            if (mode ^ parent) & 0o2777:
                yield said
        elif parent & 0o444 & ~mode or mode & 0o022 & ~parent:
            yield said
        if parent & stat.S_ISGID and here.st_gid != above.st_gid:
            yield f"{said}, of group {here.st_gid}"


@pytest.mark.parametrize(
    "umask",
    [
        0o000,
        *(pytest.param(each, marks=pytest.mark.long) for each in (0o002, 0o022, 0o027)),
        0o077,
    ],
    ids="{:03o}".format,
)
def test_what_is_made_has_the_permissions_of_its_directory(tmp_path, umask):
    roots = []
    for name, mode in MODES.items():
        for suffix in ("", "-1", "-a", "-b", "-c"):
            root = tmp_path / f"{name.replace(' ', '_')}{suffix}"
            root.mkdir()
            if os.geteuid() == 0:
                os.chown(root, -1, GROUP)
            root.chmod(mode)
            roots.append(root)
    given = [str(root) for root in roots if "-" not in root.name]
    subprocess.run([*MAKER, *given], check=True, umask=umask, env=environment())
    assert not [said for root in roots for said in wrong_ones(root)]

    for root in map(Path, given):
        made = {path.name for path in root.rglob("*")}
        assert {RESERVE_NAME, "_last_checkpoint", "meta.properties"} <= made


def test_a_short_reserve_of_another_user_is_replaced(tmp_path, monkeypatch):
    reserve_file = tmp_path / RESERVE_NAME
    reserve_file.write_bytes(b"short")
    reserve_file.chmod(0o444)
    first = reserve_file.stat().st_ino
    real = os.open
    refused: list[object] = []

    def refuse_the_first(path, *args, **kwargs):  # root is refused nothing
        if path == reserve_file and not refused:
            refused.append(path)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse_the_first)
    os.link(reserve_file, tmp_path / "first")
    assert keep_reserve(str(tmp_path))
    assert reserve_file.stat().st_ino != first
    assert reserve_file.stat().st_size == reserve.RESERVE_BYTES


def test_a_reserve_that_cannot_be_deleted_leaves_the_error_of_the_full_disk(tmp_path, monkeypatch):
    def full():
        raise StorageFullError("a/b: No space left on device", path="a/b")

    def refuse(_):
        raise AuthorizationError("Operation not permitted", path=RESERVE_NAME)

    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(LocalStore, "release_reserve", refuse)
    with pytest.raises(StorageFullError, match="no space is reserved"):
        with_reserve(store, full)
