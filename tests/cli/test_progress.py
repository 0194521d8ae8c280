"""Bars on a terminal: seen while a command works, gone afterwards, and never in an answer."""

import os
import pty
import re
import subprocess
import termios

import pytest

from spark_log import Admin, ConfigResource
from tests.cli.support import COMMAND, append, environment, segment_files
from tests.replication.support import Disks


@pytest.fixture
def screen(root, folder):
    """Runs a command on one terminal for stdout and stderr: all that is written to it."""
    for topic in ("flights", "weather"):
        for _ in range(3):
            append(root, topic, *[b"x" * 1000] * 500)

    def show(*argv, stdout=None):
        primary, secondary = pty.openpty()
        termios.tcsetwinsize(secondary, (24, 400))
        process = subprocess.Popen(
            [*COMMAND, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=stdout or secondary,
            stderr=secondary,
            cwd=folder,
            env=environment(TERM="xterm", SPARK_LOG_ROOT=str(root)),
        )
        os.close(secondary)
        shown = b""
        while data := _read(primary):
            shown += data
        os.close(primary)
        assert process.wait(timeout=60) == 0, shown
        return re.sub(r"\x1b\[[0-9;?]*[mlh]", "", shown.decode()).replace("\r\n", "\n")

    return show


def lines_in_the_end(shown):
    """What stands on the screen when all is written, of a terminal that scrolls far enough."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+", shown):
        if part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part == "\x1b[1A":
            assert lines.pop() == ""
            column = 0
        else:
            assert part[0] != "\x1b", part
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
            column += len(part)
    return lines


def test_verify_shows_how_far_it_is(screen):
    shown = screen("verify")
    assert re.search(r"Verifying .*\d+(\.\d+)?/\d", shown)
    assert lines_in_the_end(shown)[0].startswith("Verified ")


def test_dump_log_shows_how_far_it_is_and_its_lines_stay_whole(screen, root):
    segment = segment_files(root, "weather")[0]
    plain = subprocess.run(
        [*COMMAND, "dump-log", str(segment), "--print-data-log"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    ).stdout.splitlines()

    shown = screen("dump-log", segment, "--print-data-log")

    assert re.search(r"Checking 0+\.log .*\d+(\.\d+)?/\d", shown)
    seen = [line for line in lines_in_the_end(shown) if line]
    assert "\n".join(seen)[:5000] == "\n".join(plain)[:5000]
    assert len(seen) == len(plain)


def test_table_convert_shows_how_many_offsets_are_converted(screen, root):
    configs = {"table.format": "delta", "retention.ms": "-1"}  # the records are old
    Admin(str(root)).alter_configs([ConfigResource("topic", "flights", configs)])
    shown = screen("table", "convert", "flights")
    assert re.search(r"Converting .*\d+/1500", shown)
    assert "1,500 of 1,500 offsets (100.0%) are in Parquet files" in lines_in_the_end(shown)


def test_replicate_shows_replicas_and_bytes(screen, tmp_path):
    disks = Disks(tmp_path)
    disks.create(partitions=2)
    disks.send(b"x" * 3000, b"y" * 3000)
    disks.wipe(2)
    shown = screen("replicate", "--root", disks.root)
    assert re.search(r"Replicating .*2/2", shown)
    assert re.search(r"t-0-2 .*12\.5 kB/12\.5 kB", shown)
    assert [line.split()[:3] for line in lines_in_the_end(shown) if line][2:] == [
        ["t", "0", "2"],
        ["t", "1", "2"],
    ]


def test_an_answer_in_a_file_has_no_bar(screen, folder, root):
    with (folder / "answer").open("wb") as answer:
        shown = screen("verify", stdout=answer)
    assert "Verifying" in shown
    (line,) = (folder / "answer").read_text().splitlines()
    assert line.startswith("Verified ")


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other side was closed
        return b""
