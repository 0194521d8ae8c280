"""docs/replication.md: every command and program of the page runs, in its order."""

import json
import shlex
import subprocess

import pytest

from tests.docs.blocks import blocks

ROOT = "/mnt/disk0/log"
QUORUM = f"{ROOT},/mnt/disk4/log,/mnt/disk5/log"


@pytest.mark.long
@pytest.mark.parametrize("root", [ROOT, QUORUM])
def test_the_page_can_be_followed_from_its_beginning(shell, folder, tmp_path, capsys, root):
    for block in blocks("docs/replication.md"):
        code = block.code.replace(ROOT, root).replace("/mnt/", f"{tmp_path}/")
        if block.language == "properties":
            (folder / "spark-log.properties").write_text(code)
        elif block.language == "json":
            name = "topics.json" if "topics" in json.loads(code) else "plan.json"
            (folder / name).write_text(code)
        elif block.language == "python":
            exec(compile(code, str(block), "exec"), {})
            assert len(capsys.readouterr().out.splitlines()) == 3
        else:
            for line in code.splitlines():
                run(shell, line)
    assert (tmp_path / "disk3/log/meta.properties").exists()


def run(shell, line):
    typed, _, command = line.rpartition(" | ")
    stdin = subprocess.run(["sh", "-c", typed or ":"], capture_output=True, check=True).stdout
    program, *argv = shlex.split(command)
    assert program == "spark-log"
    outcome = shell(*argv, stdin=stdin)
    assert outcome.status == 0, outcome.err
    if "-partitions" in argv[-1]:
        assert outcome.out == "", "all is well"
