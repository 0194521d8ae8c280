"""Command lines of benchmarks: the options of all benchmarks."""

import argparse
from pathlib import Path


def base_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--directory``.

    Args:
        module: the name of the benchmark's module in this package.
        description: the module's docstring, which ``--help`` shows unchanged.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--directory",
        type=_directory,
        help="existing directory for temporary files ($TMPDIR)",
    )
    return parser


def positive(text: str) -> int:
    """Parse an integer of at least 1: a ``type`` of argparse."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return int(text)


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a directory")
    return Path(text)
