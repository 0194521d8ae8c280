"""``spark-log init``."""

from tests.cli.support import PROJECT

NAMES = ["log4j2.properties", "spark-defaults.conf", "spark-env.sh", "spark-log.properties"]


def test_writes_the_configuration_that_is_shipped(shell, folder):
    outcome = shell("init")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.lines == [f"wrote conf/{name}" for name in NAMES]
    for name in NAMES:
        assert (folder / "conf" / name).read_bytes() == (PROJECT / "conf" / name).read_bytes()


def test_json_lists_the_files(shell, folder):
    assert shell("init", "settings/spark", "--json").document == {
        "files": [f"settings/spark/{name}" for name in NAMES]
    }


def test_what_exists_is_not_overwritten(shell, folder):
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-env.sh").write_text("mine")
    outcome = shell("init")
    assert outcome.status == 2
    assert "conf has spark-env.sh already, and nothing was written" in outcome.error
    assert [each.name for each in (folder / "conf").iterdir()] == ["spark-env.sh"]
    assert (folder / "conf" / "spark-env.sh").read_text() == "mine"
