"""With a flipped bit in any file of a root, reads return right results or an error.

A few flips for each kind of file; ``BIT_FLIPS=1000 pytest -m long`` makes more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

CHECKED = {
    "metadata log",
    "group log",
    "offsets table: rows",
    "rewritten segment",
    "plain segment",
    "index",
    "timeindex",
    "snapshot",
    "generation",
    "start",
    "meta.properties",
    "other",
}
"""Kinds of files in which every flip is detected. Delta's own files, the versions and checkpoints
of the offsets table, are JSON and Parquet without a checksum."""

UNCHECKED = {"offsets table: version", "offsets table: checkpoint"}


def flip(tmp_path, flips, seed):
    command = [sys.executable, "-m", "tests.faults.bit_flip_campaign", tmp_path, flips, seed]
    done = subprocess.run(
        [str(each) for each in command], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    last = tmp_path / "progress"
    where = last.read_text().strip() if last.exists() else "nothing"
    assert done.returncode == 0, f"died with {done.returncode} on {where}: {done.stderr[-900:]}"
    return json.loads(done.stdout)


def check(report):
    assert report.keys() == CHECKED | UNCHECKED, "a root with all kinds of files"
    assert [each for kind in CHECKED for each in report[kind]["found"]] == []
    refused = {kind for kind in report if report[kind]["counts"].get("refused")}
    assert {"plain segment", "rewritten segment"} <= refused


def test_bits_flipped_in_each_kind_of_file_are_noticed(tmp_path):
    check(flip(tmp_path, 3, 1))


@pytest.mark.long
def test_bits_flipped_in_each_kind_of_file_are_noticed_at_length(tmp_path):
    check(flip(tmp_path, int(os.environ.get("BIT_FLIPS", "20")), 2))
