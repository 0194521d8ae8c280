"""Trino reads a topic's table row for row, on a disk and on an S3 server, and may not change it."""

import base64

import pytest

from spark_log.util.clock import SystemClock
from tests.docs.blocks import block
from tests.table.support import new_table
from tests.table.trino import TrinoError, run_trino

pytestmark = pytest.mark.long

CATALOG = """connector.name=delta_lake
hive.metastore=file
hive.metastore.catalog.dir=local:///catalog
fs.native-local.enabled=true
local.location={directory}
delta.register-table-procedure.enabled=true
delta.enable-non-concurrent-writes=true
"""
S3 = """fs.native-s3.enabled=true
s3.endpoint={endpoint_url}
s3.region={region}
s3.aws-access-key={key}
s3.aws-secret-key={secret}
s3.path-style-access=true
"""
WRITES = (
    "INSERT INTO {table} SELECT * FROM {table}",
    'DELETE FROM {table} WHERE "offset" < 5',
    "UPDATE {table} SET value = key",
    "TRUNCATE TABLE {table}",
    "ALTER TABLE {table} EXECUTE optimize",
    "ALTER TABLE {table} ADD COLUMN n BIGINT",
    "COMMENT ON TABLE {table} IS 'theirs'",
    "CALL delta.system.vacuum('default', '{table}', '7d')",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("trino")


@pytest.fixture(scope="module")
def trino(directory, s3_server):
    (directory / "data").mkdir()
    lines = CATALOG.format(directory=directory) + S3.format(**s3_server.storage_options)
    with run_trino(directory / "server", {"delta": lines}) as server:
        server.query("CREATE SCHEMA delta.default")
        yield server


@pytest.fixture(scope="module")
def on_disk(directory):
    return filled(new_table(directory / "root", SystemClock(), partitions=2, retention_ms=-1))


@pytest.fixture(scope="module")
def on_s3(s3_server):
    url, options = s3_server.new_bucket(), s3_server.storage_options
    return filled(
        new_table(url, SystemClock(), storage_options=options, partitions=2, retention_ms=-1)
    )


def filled(root):
    for _ in range(11):  # past a checkpoint
        root.fill_with_all_kinds(5, 0)
        root.fill_with_all_kinds(3, 1)
        root.clean()
    return root


def trino_rows(trino, table):
    """Return the rows of a table as `whole_rows` has them, but times in milliseconds."""
    rows = trino.query(
        'SELECT "partition", "offset", CAST(to_unixtime("timestamp") * 1000 AS BIGINT), '
        f'key, value, headers FROM {table} ORDER BY "partition", "offset"'
    )
    return [
        (*numbers, binary(key), binary(value), headers and [(k, binary(v)) for k, v in headers])
        for *numbers, key, value, headers in rows
    ]


def log_rows(root):
    """Return the rows of the log with times as Trino has them: rounded to milliseconds."""
    return [
        (
            *numbers,
            (time_us + 500) // 1000,
            key,
            value,
            headers and [tuple(each.values()) for each in headers],
        )
        for *numbers, time_us, key, value, headers in root.log_of_the_table()
    ]


def binary(text):
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("place", ["on_disk", "on_s3"])
def test_trino_has_the_rows_of_the_log(trino, place, request, directory):
    root = request.getfixturevalue(place)
    location = f"{root.url}/{root.topic.directory}".replace(str(directory), "local://")
    register, query = block("docs/table.md", "register_table").strip().splitlines()
    register = register.replace("'s3://bucket/log/flights.bHk2'", f"'{location}'")
    trino.query(register.replace("'flights'", f"'{place}'"))
    per_partition = trino.query(query.replace("delta.default.flights", place))
    ends = root.newest.ends()
    assert {number: newest + 1 for number, newest in per_partition} == ends
    rows = trino_rows(trino, place)
    assert len(rows) > 200
    assert rows == log_rows(root)
    old = trino.query(f"SELECT count(*) FROM {place} FOR VERSION AS OF 1")
    version = root.table.at(1)
    assert old == [[sum(version.ends().values())]]


@pytest.mark.parametrize("statement", WRITES)
def test_trino_is_refused(trino, on_s3, statement):
    tables = [name for (name,) in trino.query("SHOW TABLES FROM delta.default")]
    assert "on_s3" in tables
    version = on_s3.newest.number
    with pytest.raises(TrinoError, match="sparkLog"):
        trino.query(statement.format(table="on_s3"))
    assert on_s3.newest.number == version
    assert on_s3.findings(0) == on_s3.findings(1) == []
