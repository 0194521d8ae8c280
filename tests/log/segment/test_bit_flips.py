"""A flipped bit of a segment: each read and rewrite raises an error or has the correct records.

These tests flip some bits of each kind of segment; ``BIT_FLIP_STEP=1 pytest -m long`` flips all of
them (some hours: a quarter of a million flips, 17 reads each).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.segment.bit_flips import SAMPLES

PROJECT = Path(__file__).parents[3]


def flip(tmp_path, sample, step, way):
    """Flip bits in a process of its own, which may crash, and return its report."""
    progress = tmp_path / "progress"
    command = [
        sys.executable,
        "-m",
        "tests.log.segment.bit_flips",
        sample,
        str(step),
        str(progress),
        way,
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    last = progress.read_text() if progress.exists() else "nothing"
    assert done.returncode == 0, f"died with {done.returncode} on {last}: {done.stderr[-900:]}"
    report = json.loads(done.stdout)
    assert report["counts"]["flips"] > 30, "there was something to flip"
    assert report["counts"].keys() & {"refused by some", "refused by all"}, "damage was noticed"
    return report["found"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_bit_that_flips_anywhere_is_noticed_or_changes_nothing(tmp_path, sample):
    assert flip(tmp_path, sample, 797, "mapped") == []


@pytest.mark.parametrize(
    ("sample", "step", "way"),
    [
        pytest.param("with gaps", 41, "headers", marks=pytest.mark.long),
        ("merged", 47, "headers"),
        pytest.param("with gaps", 11, "offsets", marks=pytest.mark.long),
        pytest.param("without gaps", 5, "offsets", marks=pytest.mark.long),
        ("older", 11, "offsets"),
        ("with gaps", 997, "in ranges"),
        ("parquet", 997, "in ranges"),
        ("small", 211, "by template"),
    ],
)
def test_in_what_tells_a_reader_where_records_are(tmp_path, sample, step, way):
    assert flip(tmp_path, sample, step, way) == []


@pytest.mark.long
@pytest.mark.parametrize("way", ["mapped", "in ranges"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_every_bit_that_flips_is_noticed_or_changes_nothing(tmp_path, sample, way):
    assert flip(tmp_path, sample, int(os.environ.get("BIT_FLIP_STEP", "401")), way) == []
