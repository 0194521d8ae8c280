#!/bin/sh
# Puts a DuckDB whose own reader of Delta tables is on PyPI into the user's cache, once, for the test
# of the tables of topics. The newest duckdb-extension-delta is for DuckDB 1.5.5, and an extension
# loads in no other version, so this DuckDB lies in a folder of its own: the console is tested with
# the DuckDB of constraints.txt. Prints one line. Without it the test is skipped, so that is not a
# failure. The argument is the Python that runs the tests.

version=1.5.5
python=${1:-python3}
tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)') || exit 0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/spark-log/duckdb-$version-$tag

if [ -e "$folder/duckdb_extension_delta" ]; then
    echo "DuckDB $version with its reader of Delta tables is already there: $folder"
    exit 0
fi
echo "Fetching DuckDB $version with its reader of Delta tables (50 MB), once"
rm -rf "$folder.partial"
mkdir -p "$folder.partial"
if PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install -q --target "$folder.partial" \
    "duckdb==$version" "duckdb-extension-delta==$version" >"$folder.log" 2>&1 &&
    rm -rf "$folder" && mv "$folder.partial" "$folder"; then
    rm "$folder.log"
    exit 0
fi
echo "DuckDB $version could not be fetched: see $folder.log"
