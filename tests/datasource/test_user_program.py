"""Output of a user's program, run by the Python of an environment that is not activated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from tests.spark_output import without_lost_workers

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the program's event log."""
    return tmp_path_factory.mktemp("program") / "events"


@pytest.fixture(scope="module")
def printed(events: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The output of ``user_program.py`` to stdout and stderr, by section."""
    root = str(events.with_name("root"))
    configs = {"flush.on.append": "false"}
    Admin(root).create_topics([NewTopic(name, topic_configs=configs) for name in ("t", "u")])
    keep = {"HOME", "JAVA_HOME", "LANG", "TMPDIR", "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("user_program.py"), root, str(events)],
        env={name: value for name, value in os.environ.items() if name in keep}
        | {"PATH": "/usr/bin:/bin", "SPARK_CONF_DIR": str(PROJECT / "conf")},
        cwd=events.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sections(done.stdout), sections(without_lost_workers(done.stderr))


def sections(text: str) -> dict[str, str]:
    found = re.split(r"^--- (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_a_python_that_is_not_on_the_path_finds_the_format(printed) -> None:
    out, _ = printed
    assert out["show"].count("3 1 rows") == 4
    assert out["shown"].strip() == "300000"


def test_a_read_that_spark_ends_early_prints_nothing(printed) -> None:
    _, errors = printed
    quiet = [errors[name] for name in ("write", "show", "explain", "view")]
    assert quiet == [""] * 4, quiet


def test_one_bad_record_is_one_cause_and_told_last(printed) -> None:
    out, errors = printed
    cause = "column 'partition' contains 7, but topic 't' has 1 partitions"
    assert cause in out["bad record"].strip().splitlines()[-1]
    assert out["bad record"].count("Traceback") == 1, "the program's own"
    assert "spark_log/datasource" not in out["bad record"] + errors["bad record"]
    assert len(errors["bad record"].splitlines()) <= 15
    assert "Traceback" not in errors["bad record"]


def test_one_bad_option_is_one_line(printed) -> None:
    out, errors = printed
    assert out["bad option"].count("Traceback") == 1, "the program's own"
    assert "did you mean 'startingOffsets'?" in out["bad option"]
    assert errors["bad option"] == ""


def test_options_without_effect_are_named_once_for_each_query(printed) -> None:
    out, errors = printed
    assert out["ignored"].split() == ["300000", "2", "batches"]
    named = re.findall(r"IgnoredOptionWarning: format spark_log ignores (.*)", errors["ignored"])
    # Spark writes some names in lower case.
    named = sorted(each.lower() for each in named)
    assert named == ["encoding, subscribe", *["inferschema, truncate"] * 3]


def test_a_write_without_a_mode_is_told_which_there_are(printed) -> None:
    out, _ = printed
    assert 'use either the "Append" or "Overwrite" mode' in out["mode"]


def test_a_table_is_refused_with_what_to_do_instead(printed) -> None:
    out, _ = printed
    assert out["table"].count("a table USING spark_log could not be read or written") == 2
    assert out["table"].count("CREATE TEMPORARY VIEW name (key STRING") == 2
    assert "unknown option" not in out["table"]


def test_options_for_the_file_system_are_shown_nowhere(printed, events: Path) -> None:
    out, errors = printed
    logged = "".join(file.read_text() for file in events.rglob("events_*"))
    for plan in ("CreateTempViewUsing", "AppendData"):
        assert re.search(rf"{plan}.*?storage\.account_key(=| -> )\*+\(redacted", logged), plan
    assert "unseen-" not in logged + "".join(out.values()) + "".join(errors.values())


def test_options_that_the_session_would_show_are_warned_of(printed) -> None:
    _, errors = printed
    assert errors["shown"].count("ShownSecretWarning") == 1
    assert "storage.account_key, storage.connection_string, storage.key in plans" in errors["shown"]
    for name in ("write", "show", "explain"):
        assert "ShownSecretWarning" not in errors[name]
