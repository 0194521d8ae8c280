"""A DuckDB whose own reader of Delta tables can be loaded, in a process of its own.

An extension loads in one version of DuckDB only, and PyPI has it for a version that is older than
the one of the console. ``conf/fetch-duckdb.sh`` puts both into a folder of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

VERSION = "1.5.5"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
FOLDER = CACHE / f"spark-log/duckdb-{VERSION}-{sys.implementation.cache_tag}"
EXTENSION = FOLDER / f"duckdb_extension_delta/extensions/v{VERSION}/delta.duckdb_extension"

PROGRAM = f"""
import sys, duckdb, pyarrow
assert duckdb.__version__ == {VERSION!r}
connection = duckdb.connect(config=dict(allow_unsigned_extensions="true"))
connection.execute("LOAD '{EXTENSION}'")
found = connection.execute(sys.argv[1]).to_arrow_table()
with pyarrow.ipc.new_stream(sys.stdout.buffer, found.schema) as stream:
    stream.write_table(found)
"""


def query(sql):
    """Return the rows of a query as an Arrow table; without this DuckDB the test is skipped.

    Raises:
        RuntimeError: the query failed; the message is DuckDB's.
    """
    if not EXTENSION.exists():
        pytest.skip(f"{EXTENSION} is missing: make duckdb fetches it")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, sql],
        env=os.environ | {"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return pa.ipc.open_stream(done.stdout).read_all()
