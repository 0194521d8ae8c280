"""``spark-log version``: versions of the program and of its format."""

from __future__ import annotations

import platform

import pyarrow as pa

from spark_log import __version__
from spark_log.cli.format import Output
from spark_log.cli.options import with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.record import FORMAT_VERSION


@with_examples("spark-log version --json")
@with_option_groups
def version(output: Output) -> None:
    """Show versions: program, format, Python and Arrow."""
    versions = {
        "spark_log": __version__,
        "format": FORMAT_VERSION,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }
    text = "\n".join(f"{name.replace('_', '-'):<10} {value}" for name, value in versions.items())
    output.answer(text, versions)
