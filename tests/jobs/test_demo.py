"""``make demo``, and the commands of the README and the docs with the demo's root."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.docs.blocks import block, blocks, cells
from tests.docs.notebooks import plotted_lag, run_notebook
from tests.jobs.conftest import BIN, ENVIRONMENT, HOME

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of the demo, and its output."""
    directory = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, HOME / "jobs" / "demo.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory, done.stdout


def test_every_flight_comes_out_once(demo: tuple[Path, str]) -> None:
    directory, printed = demo
    flights = pyarrow.csv.read_csv(directory / ".demo/flights.csv")
    assert flights.num_rows == 336_776

    out = pq.read_table(directory / ".demo/flights.parquet", columns=["key", "partition", "offset"])

    assert out.num_rows == 336_776
    assert out.group_by(["partition", "offset"]).aggregate([]).num_rows == 336_776
    by_carrier = {
        row["values"]: row["counts"] for row in flights["carrier"].value_counts().to_pylist()
    }
    assert {
        row["values"]: row["counts"] for row in out["key"].value_counts().to_pylist()
    } == by_carrier
    assert re.search(r"out, run again\s*│\s*0 │", printed)


def test_one_day_by_event_time_is_exactly_that_day(demo: tuple[Path, str]) -> None:
    directory, _ = demo
    flights = pyarrow.csv.read_csv(directory / ".demo/flights.csv")
    day = pc.strftime(flights["time_hour"], "%Y-%m-%d")
    expected = pc.sum(pc.equal(day, "2013-07-04")).as_py()

    replayed = pq.read_table(directory / ".demo/one-day.parquet")

    assert replayed.num_rows == expected > 0
    assert set(pc.strftime(replayed["timestamp"], "%Y-%m-%d").to_pylist()) == {"2013-07-04"}


def test_an_offset_range_is_exactly_that_range(demo: tuple[Path, str]) -> None:
    directory, _ = demo
    lines = [
        line
        for part in (directory / ".demo/range.jsonl").glob("*.json")
        for line in part.read_text().splitlines()
    ]
    offsets = sorted(int(re.search(r'"offset":(\d+)', line)[1]) for line in lines)  # type: ignore[index]
    assert offsets == list(range(1000, 2000))


def test_the_commands_to_try_next_work(demo: tuple[Path, str]) -> None:
    directory, printed = demo
    commands = [line.split()[1:] for line in printed.splitlines() if ".venv/bin/spark-log" in line]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            [BIN / "spark-log", *command],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def readme_commands() -> list[str]:
    # The README's commands only read; docs/shell.md creates what some of them show.
    shell = [*blocks("docs/shell.md", "sh"), *blocks("README.md", "sh")]
    shell += blocks("docs/jobs.md", "sh")
    text = "".join(each.code for each in shell if "pip install" not in each.code)
    text = text.replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def delayed_flights_of_summer(directory: Path) -> int:
    """What ``by_carrier`` of docs/jobs.md finds: late by more than an hour, from June to August."""
    missing = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    flights = pyarrow.csv.read_csv(directory / ".demo/flights.csv", convert_options=missing)
    month = pc.strftime(flights["time_hour"], "%Y-%m")
    is_summer = pc.and_(pc.greater_equal(month, "2013-06"), pc.less(month, "2013-09"))
    return int(pc.sum(pc.and_(is_summer, pc.greater(flights["dep_delay"], 60))).as_py())


def flights_of_summer(directory: Path) -> int:
    month = pc.strftime(pyarrow.csv.read_csv(directory / ".demo/flights.csv")["time_hour"], "%Y-%m")
    return int(
        pc.sum(pc.and_(pc.greater_equal(month, "2013-06"), pc.less(month, "2013-09"))).as_py()
    )


def counts(read: object, written: object) -> str:
    """Return the expected report of a job, by number of records."""
    numbers = [f"{each:,}" if isinstance(each, int) else str(each) for each in (read, written)]
    rows = r".*records read +│ {} +│\n.*records written +│ {} +│\n".format(*numbers)
    return rf"(.*\n)*{rows}(.*\n)*"


BOTH_ALL = counts(336_776, 336_776)
FOUR_PARTITIONS = "".join(rf".*\bflights +{number}\b.*\n" for number in range(4))
EXPECTED = {
    "topics create events": r"Created topic events with 4 partitions in \.demo/log\.\n",
    "topics list": r"events\nflights\n(spark-log-canary\n)?",
    "topics describe flights": r"Topic: flights .*PartitionCount: 4 .*retention\.ms=-1\n(.*\n){5}",
    "console-producer events": "",
    "console-consumer events": r"(alice\t1\nbob\t2|bob\t2\nalice\t1)\n",
    "console-consumer flights --partition": r'(\{"year":2013,.*"dep_delay":-?\d+,.*\}\n){3}',
    "console-consumer flights --from-time": r'(.*"time_hour":"2013-12-25T12:00:00\.000Z"\}\n){46}',
    "console-consumer flights --offset": r"(\d@\d+ [A-Z0-9]{2}\n){3}",
    "topics alter events": r"Topic events has 6 partitions\.\n",
    "configs alter events": r"Altered events\.\n",
    "configs describe events": r"(.*\n)*events +compression\.type +zstd (.*\n)*",
    "offsets list flights": rf".*OFFSET.*\n{FOUR_PARTITIONS}",
    "delete-records events": r"TOPIC +PARTITION +LOW WATERMARK\nevents +0 +\d+\n",
    "producer-perf": r"(.*\n)*100000 records sent, .*\n",
    "consumer-perf": r"start\.time, .*\n.*, 100\d{3}, .*\n",
    "groups describe demo": r"GROUP .* LAG .*\n(demo +flights +[0-3] +(\d+) +\2 +0 .*\n){4}",
    "groups reset-offsets demo": r"GROUP .*\n(demo +flights +[0-3] +\d+\n){4}",
    "exporter --once": r"(#.*\n)+spark_log_exporter_up 1\.0\n(.*\n)*",
    "canary --once": r"offset 0: produce .* ms, roundtrip .* ms, commit .* ms\n",
    "top --sort": r"\S+Z  2 topics, .*\n(.*\n)*flights +0\.0 +0 +336776 +336776 .*\n(.*\n)*",
    "log-dirs": r"Broker 0: \S+/\.demo/log\n(.*\n)*Total: partitions 11, .*\n",
    "clean --all-topics": r"(.*\n)*.*\bflights\b.*\n(.*\n)*",
    "verify": r"(.*\n)*Verified 12 partitions: .*\n",
    "doctor": r"\d+ checks done, 11 partitions: healthy\.\n",
    "version": r"spark-log +\d.*\n(.*\n)*",
    "jobs/produce.py": BOTH_ALL,
    "jobs/consume.py": BOTH_ALL,
    "jobs/replay.py": r'(\{"key": .*2013-07-04T12:00:00.*\}\n){5}' + counts(56, 5),
    "jobs/clean.py": r"cleaned +\n.*\n.*dry run +│ False .*\n.*partitions +│ 15 .*\n(.*\n)*",
    "topics create late": r"Created topic late with 4 partitions in \.demo/log\.\n",
    "jobs/transform.py": counts(336_776, r"\d\d,\d{3}"),
    "jobs/reprocess.py": counts("{read}", "{written}"),
}
"""What each command of the README prints: its beginning, and the whole of stdout."""


def expected(command: str) -> str:
    (pattern,) = (EXPECTED[each] for each in EXPECTED if each in command)
    return pattern


@pytest.mark.parametrize("command", readme_commands())
def test_the_readmes_commands_work(demo: tuple[Path, str], command: str) -> None:
    directory, _ = demo
    for name in ("jobs", "conf"):
        if not (directory / name).exists():
            (directory / name).symlink_to(HOME / name)
    (directory / "delays.py").write_text(block("docs/jobs.md", "def by_carrier"))
    pipeline = f"set -o pipefail; {command}"
    done = subprocess.run(
        ["bash", "-c", pipeline],
        cwd=directory,
        env=ENVIRONMENT | {"PATH": f"{BIN}:{ENVIRONMENT['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, shlex.join([command]) + done.stderr
    pattern = expected(command)
    if "{read}" in pattern:
        read, written = flights_of_summer(directory), delayed_flights_of_summer(directory)
        pattern = counts(read, written)
        rows = DeltaTable(directory / ".demo/delays").to_pyarrow_table()
        assert rows.num_rows == written > 0
        assert min(rows["dep_delay"].to_pylist()) > 60
    assert re.fullmatch(pattern, done.stdout), done.stdout


def test_each_command_of_the_readme_has_an_expectation_and_each_expectation_a_command() -> None:
    commands = readme_commands()
    for command in commands:
        expected(command)
    for beginning in EXPECTED:
        assert any(beginning in command for command in commands), beginning


def test_the_notebook_shows_the_lag_of_the_demos_group(
    demo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = demo
    monkeypatch.chdir(directory)
    for name in ("SPARK_LOG_ROOT", "SPARK_LOG_GROUP"):
        monkeypatch.delenv(name, raising=False)

    lag = plotted_lag(cells("notebooks/group_lag.ipynb"))

    assert sorted(lag) == [f"flights-{number}" for number in range(4)]
    for behind in lag.values():
        assert behind[0] > 0
        assert behind == sorted(behind, reverse=True)
        assert behind[-1] == 0


@pytest.fixture
def flights(demo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """The flights of the demo; the test runs in the demo's directory, as its user's notebook.

    Spark has run before in another directory, and takes relative paths from there.
    """
    directory, _ = demo
    monkeypatch.chdir(directory)
    monkeypatch.setenv("SPARK_LOG_ROOT", str(directory / ".demo/log"))
    monkeypatch.setenv("SPARK_LOG_RESULTS", str(directory / ".demo/results"))
    options = pyarrow.csv.ConvertOptions(null_values=["NA"])
    return pyarrow.csv.read_csv(directory / ".demo/flights.csv", convert_options=options)


def test_the_notebook_replays_the_worst_hour_by_time_and_by_offset(
    flights: pa.Table, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    try:
        names = run_notebook(cells("notebooks/replay_by_time.ipynb"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)

    day = pc.strftime(flights["time_hour"], "%Y-%m-%d")
    days = flights.append_column("date", day).group_by("date").aggregate([("dep_delay", "mean")])
    worst = days.sort_by([("dep_delay_mean", "descending")])["date"][0].as_py()
    assert f"{names['worst_day']:%Y-%m-%d}" == worst
    hour = pc.strftime(flights["time_hour"], "%Y-%m-%d %H")
    count = pc.sum(pc.equal(hour, f"{names['worst_hour']:%Y-%m-%d %H}")).as_py()
    printed = capsys.readouterr().out
    assert f"{count} records by event time, {count} by offset" in printed
    assert "only by event time: 0, only by offset: 0" in printed


def test_the_notebook_makes_the_changed_result_beside_the_old_one(
    flights: pa.Table, spark: SparkSession
) -> None:
    names = run_notebook(cells("notebooks/reprocess_history.ipynb"))

    delay = pc.fill_null(flights["dep_delay"].cast(pa.float64()), 180.0)
    expected = flights.append_column("delay", delay).group_by(["carrier", "month"])
    expected = expected.aggregate([("delay", "mean"), ("dep_delay", "mean")]).to_pandas()
    expected = expected.set_index(["carrier", "month"]).sort_index()
    compared = names["compared"].set_index(["carrier", "month"]).sort_index()  # type: ignore[attr-defined]
    assert list(compared.index) == list(expected.index)
    assert compared["new"].to_numpy() == pytest.approx(expected["delay_mean"].to_numpy())
    assert compared["old"].to_numpy() == pytest.approx(
        expected["dep_delay_mean"].to_numpy(), nan_ok=True
    )


def test_the_notebook_makes_features_of_every_flight(flights: pa.Table) -> None:
    features = run_notebook(cells("notebooks/topic_to_features.ipynb"))["features"]

    expected = flights.group_by(["origin", "hour"])
    expected = expected.aggregate([("dep_delay", "mean"), ("hour", "count")]).to_pandas()
    expected = expected.set_index(["origin", "hour"]).sort_index()
    assert features["flights"].tolist() == expected["hour_count"].tolist()  # type: ignore[index]
    assert features["delay"].to_numpy() == pytest.approx(  # type: ignore[index]
        expected["dep_delay_mean"].to_numpy(), nan_ok=True
    )


def test_the_notebook_reads_one_topic_as_a_stream_and_as_a_table(
    flights: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    run_notebook(cells("notebooks/stream_and_table.ipynb"))

    month = pc.strftime(flights["time_hour"], "%Y-%m")
    of_january = pc.equal(month, "2013-01")
    january = pc.sum(of_january).as_py()
    both = january + pc.sum(pc.equal(month, "2013-02")).as_py()
    late = pc.sum(pc.and_(of_january, pc.greater(flights["dep_delay"], 60))).as_py()
    printed = capsys.readouterr().out
    assert f"version 1: {late:,} flights left more than an hour late" in printed
    assert f"stream {both:,}, table {january:,}, both as one {both:,} flights" in printed
    assert f"version 1: {january:,} flights, version 2: {both:,}" in printed
