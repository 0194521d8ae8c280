"""Runs all benchmarks of the partition log, or the ones named, one after the other.

    python -m benchmarks.log_all
    python -m benchmarks.log_all append_latency lookup --json
    python -m benchmarks.log_lookup --segments 100 --lookups 50

Each is a process of its own. Further options are passed to all of them; options that only one of
them has work if it is run alone.
"""

import argparse
import subprocess
import sys

BENCHMARKS = (
    "append_latency",
    "tail_latency",
    "contention",
    "throughput",
    "lookup",
    "memory",
)


def main() -> None:
    """Run the named benchmarks, and pass all other options to each of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.log_all",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)} (all)")
    chosen, options = parser.parse_known_args()
    unknown = sorted(set(chosen.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}, expected one of {', '.join(BENCHMARKS)}")
    failed = [name for name in chosen.names or BENCHMARKS if not _run(name, options)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _run(name: str, options: list[str]) -> bool:
    command = [sys.executable, "-m", f"benchmarks.log_{name}", *options]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    main()
