"""``spark-log version``."""

import platform

import pyarrow as pa

from spark_log import __version__


def test_text_names_program_format_python_and_pyarrow(shell):
    outcome = shell("version")
    assert (outcome.status, outcome.err) == (0, "")
    assert [line.split() for line in outcome.lines] == [
        ["spark-log", __version__],
        ["format", "1"],
        ["python", platform.python_version()],
        ["pyarrow", pa.__version__],
    ]


def test_json_says_the_same(shell):
    assert shell("version", "--json").document == {
        "spark_log": __version__,
        "format": "1",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }


def test_version_needs_no_root(shell):
    assert shell("version").status == 0
