"""produce, consume and replay through ``spark-submit``."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.testing.servers.standalone import StandaloneCluster
from tests.jobs.conftest import Submit, report
from tests.record.samples import numbered

pytestmark = [pytest.mark.spark, pytest.mark.long]


def write_lines(path: Path, count: int) -> Path:
    path.write_text(
        "".join(
            json.dumps({"id": n, "name": f"n{n % 7}", "at": f"2013-07-04T00:{n % 60:02}:00Z"})
            + "\n"
            for n in range(count)
        )
    )
    return path


def test_a_standalone_cluster_runs_them_all(submit: Submit, tmp_path: Path) -> None:
    source, root, out = write_lines(tmp_path / "in.json", 300), tmp_path / "log", tmp_path / "out"
    target = ("--root", root, "--json")
    with StandaloneCluster() as cluster:
        produced = report(
            submit(
                "produce.py",
                source,
                "--format",
                "json",
                "--topic",
                "t",
                "--partitions",
                3,
                "--key",
                "name",
                "--timestamp",
                "at",
                "--header",
                "id",
                *target,
                master=cluster.url,
            )
        )
        consumed = report(
            submit(
                "consume.py",
                "t",
                "--group",
                "g",
                "--to",
                "delta",
                "--path",
                out,
                *target,
                master=cluster.url,
            )
        )

    assert (produced["records_written"], produced["partitions"]) == (300, 3)
    assert consumed["records_written"] == 300
    table = DeltaTable(str(out)).to_pyarrow_table()
    assert sorted(json.loads(value)["id"] for value in table["value"].to_pylist()) == list(
        range(300)
    )
    topic = Cluster(root).topic("t")
    batch = Cluster(root).partition_log(topic, 0).read(0)[0][0].records.slice(0, 1).to_pylist()[0]
    assert batch["headers"] == [
        {"key": "id", "value": str(json.loads(batch["value"])["id"]).encode()}
    ]


def test_a_group_continues_where_it_stands(submit: Submit, tmp_path: Path) -> None:
    root, out = tmp_path / "log", tmp_path / "out.parquet"
    consume = ("consume.py", "t", "--group", "g", "--to", "parquet", "--path", out, "--root", root)
    Admin(root).create_topics([NewTopic("t", num_partitions=2)])
    cluster = Cluster(root)
    for count in (30, 12):
        for partition in (0, 1):
            log = cluster.partition_log(cluster.topic("t"), partition)
            log.append(numbered(0, count // 2, mark=f"{count}"))
        again = report(submit(*consume, "--json"))
        assert again["records_written"] == count

    assert pq.read_table(out).num_rows == 42
    assert sum(json.loads(again["committed"])["t"].values()) == 42


def test_delta_tables_and_single_columns_are_produced(submit: Submit, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "source"), pa.table({"k": ["a", "b"], "v": ["1", "2"]}))

    done = submit(
        "produce.py",
        tmp_path / "source",
        "--format",
        "delta",
        "--topic",
        "t",
        "--partitions",
        1,
        "--key",
        "k",
        "--value",
        "v",
        "--no-shuffle",
        "--root",
        tmp_path / "log",
    )

    assert done.returncode == 0, done.stderr
    assert "produced" in done.stdout
    cluster = Cluster(tmp_path / "log")
    rows = [
        (row["key"], row["value"])
        for batch in cluster.partition_log(cluster.topic("t"), 0).scan(0)
        for row in batch.records.to_pylist()
    ]
    assert sorted(rows) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("produce.py", "{in}", "--topic", "nope"), "there is no topic 'nope'; existing topics: t"),
        (("produce.py", "{in}", "--topic", "t", "--key", "nmae"), "did you mean 'name'?"),
        (("produce.py", "{in}", "--topic", "a b", "--partitions", "1"), "illegal topic name 'a b'"),
        (("consume.py", "t", "--group", "g", "--to", "parquet"), "--to parquet needs --path"),
        (("consume.py", "tt", "--group", "g"), "there is no topic 'tt'; did you mean t?"),
        (
            ("replay.py", "t", "--from-offset", "1"),
            "starts at offset 1 and ends at",
        ),
        (("replay.py", "t", "--from-time", "noon"), "--from-time is 'noon', expected ISO 8601"),
        (("replay.py", "t", "--partition", "9"), "topic 't' has no partition 9; it has 1"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    submit: Submit, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    root = str(tmp_path / "log")
    Admin(root).create_topics([NewTopic("t")])
    source = write_lines(tmp_path / "in.json", 3)
    filled = [argument.replace("{in}", str(source)) for argument in arguments]
    if filled[0] == "produce.py":
        filled += ["--format", "json"]

    done = submit(*filled, "--root", root)

    assert done.returncode == 2
    # spark-submit combines stdout and stderr of its Python: the output is this one line.
    assert done.stdout.startswith(f"{arguments[0]}: error: ")
    assert message in done.stdout
    assert done.stdout.count("\n") == 1
