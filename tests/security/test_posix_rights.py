"""What users may do on a root that ``conf/policies/posix/make-root.sh`` has made."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic, Producer
from tests.cli.support import Outcome, environment
from tests.security.policies import POLICIES

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can run processes as other users",
)

ADMIN = 24_001
READERS, CONSUMERS, WRITERS, NOBODY = 24_101, 24_102, 24_103, 24_104
USERS = {
    "admin": (ADMIN, [READERS, CONSUMERS, WRITERS], 0o002),
    "reader": (24_002, [READERS], 0o022),
    "consumer": (24_003, [READERS, CONSUMERS], 0o002),
    "writer": (24_004, [READERS, WRITERS], 0o002),
    "other writer": (24_005, [READERS, WRITERS], 0o002),
    "secretive writer": (24_006, [READERS, WRITERS], 0o077),
    "stranger": (24_007, [NOBODY], 0o022),
}


class Users:
    """A process that runs commands with the rights of users."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.security.posix_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def run(self, name, line, typed):
        uid, groups, umask = USERS[name]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps([uid, groups, umask, line.split(), typed])
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self):
        self._process.communicate()


@pytest.fixture(scope="module")
def users():
    users = Users()
    yield users
    users.close()


@pytest.fixture(scope="module")
def root(users):
    """A root with the topic ``t``, whose first commit an admin has made."""
    # Not below pytest's own directory, which only root can enter.
    folder = Path(tempfile.mkdtemp(prefix="spark-log-rights-"))
    folder.chmod(0o755)
    script = POLICIES / "posix" / "make-root.sh"
    words = [str(word) for word in (folder / "logs", ADMIN, READERS, CONSUMERS, WRITERS)]
    subprocess.run(["sh", str(script), *words], check=True)
    root = folder / "logs" / "log"
    for line in (
        "topics create t",
        "groups reset-offsets first --topic t --to-earliest --execute",
    ):
        done = users.run("admin", f"{line} --root {root}", "")
        assert done.status == 0, done.err
    done = users.run("writer", f"console-producer t --root {root}", "before\n")
    assert done.status == 0, done.err
    yield root
    shutil.rmtree(folder)


@pytest.fixture
def run(users, root):
    return lambda name, line, typed="a line\n": users.run(name, f"{line} --root {root}", typed)


def files(root):
    """Path → size and time of everything that lasts below the root."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and path.suffix != ".snapshot":
            status = path.stat()
            found[str(path.relative_to(root))] = status.st_size, status.st_mtime_ns, status.st_uid
    return found


LOOKS = [
    "topics list",
    "topics describe t",
    "offsets list t",
    "groups describe first",
    "console-consumer t --from-beginning --max-messages 1",
    "verify",
]
CONSUMES = ["console-consumer t --group g --from-beginning --max-messages 1"]
WRITES = ["console-producer t"]
CHANGES = ["topics create u", "topics alter t --partitions 2"]
DELETES = ["topics delete t --yes", "delete-records t --partition 0 --before-offset 1 --yes"]

MAY_NOT = {
    "reader": [*CONSUMES, *WRITES, *CHANGES, *DELETES],
    "consumer": [*WRITES, *CHANGES, *DELETES],
    # A writer may write to all directories of a topic, and so delete in them.
    "writer": [*CONSUMES, DELETES[0]],
    "stranger": [*LOOKS, *CONSUMES, *WRITES, *CHANGES, *DELETES],
}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("reader", LOOKS),
        ("consumer", [*LOOKS, *CONSUMES]),
        ("writer", [*LOOKS, *WRITES]),
        ("other writer", WRITES),
    ],
)
def test_a_user_can_do_what_the_role_is_for(run, name, lines):
    for line in lines:
        done = run(name, line)
        assert done.status == 0, (line, done.err)
        assert "ermission" not in done.err, line


@pytest.mark.parametrize("name", MAY_NOT)
def test_what_a_user_must_not_do_is_refused_and_changes_nothing(run, root, name):
    before = files(root)
    for line in MAY_NOT[name]:
        done = run(name, line)
        assert done.status != 0, (line, done)
        assert done.err.count("\n") == 1, (line, done)
        assert "Permission denied" in done.err, (line, done)
        assert f"user {USERS[name][0]} is not permitted" in done.err, (line, done)
    assert files(root) == before


def test_what_a_writer_with_a_closed_umask_makes_is_open_to_the_roles(run, root):
    """Else its record of a producer id would keep everyone from reading the metadata."""
    assert run("admin", "topics create closed").status == 0
    for name in ("secretive writer", "other writer", "secretive writer"):
        assert run(name, "console-producer closed").status == 0, name
    line = "console-consumer closed --from-beginning --max-messages 3"
    assert run("reader", line).out == "a line\n" * 3
    (partition,) = root.glob("closed.*/closed-0")
    owners = {file.stat().st_uid for file in partition.iterdir()}
    assert owners == {USERS[name][0] for name in ("secretive writer", "other writer")}
    for path in (partition.parent, partition):
        assert stat.S_IMODE(path.stat().st_mode) == 0o2775
    assert run("stranger", line).status != 0


def test_a_root_without_rights_of_others_stays_closed(tmp_path):
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    Admin(root).create_topics([NewTopic("t")])
    with Producer(root) as producer:
        producer.send("t", b"x")
    made = [path for path in root.rglob("*") if path.name != ".reserve"]
    assert len(made) > 4
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o022 for path in made)
