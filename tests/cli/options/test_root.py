"""Which root a command works on: the flag, the environment, a properties file."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cli.options.root import Root


@pytest.fixture
def roots(tmp_path):
    """Roots that tell which they are: the one at ``roots(name)`` has a topic of that name."""

    def make(name):
        path = tmp_path / name
        Admin(path).create_topics([NewTopic(name)])
        return path

    return make


def topics(shell, *argv):
    outcome = shell("topics", "list", *argv)
    assert outcome.status == 0, outcome.err
    return outcome.lines


class TestPrecedence:
    def test_the_flag_goes_before_all_else(self, shell, folder, roots, monkeypatch):
        monkeypatch.setenv("SPARK_LOG_ROOT", str(roots("environment")))
        (folder / "spark-log.properties").write_text(f"root={roots('file')}\n")
        assert topics(shell, "--root", roots("flag")) == ["flag"]

    def test_the_environment_goes_before_the_file(self, shell, folder, roots, monkeypatch):
        monkeypatch.setenv("SPARK_LOG_ROOT", str(roots("environment")))
        (folder / "spark-log.properties").write_text(f"root={roots('file')}\n")
        assert topics(shell) == ["environment"]

    def test_an_empty_variable_is_none(self, shell, folder, roots, monkeypatch):
        monkeypatch.setenv("SPARK_LOG_ROOT", "")
        (folder / "spark-log.properties").write_text(f"root={roots('file')}\n")
        assert topics(shell) == ["file"]

    def test_the_folder_itself_goes_before_its_conf(self, shell, folder, roots):
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-log.properties").write_text(f"root={roots('conf')}\n")
        assert topics(shell) == ["conf"]
        (folder / "spark-log.properties").write_text(f"root={roots('here')}\n")
        assert topics(shell) == ["here"]

    @pytest.mark.parametrize("flag", ["--config", "--command-config"])
    def test_a_named_file_goes_before_those_that_are_looked_for(self, shell, folder, roots, flag):
        (folder / "spark-log.properties").write_text(f"root={roots('here')}\n")
        (folder / "mine.properties").write_text(f"# mine\nroot = {roots('named')}\n")
        assert topics(shell, flag, "mine.properties") == ["named"]

    def test_a_tilde_is_the_home_directory(self, shell, folder, roots, monkeypatch):
        monkeypatch.setenv("HOME", str(roots("home").parent))
        (folder / "spark-log.properties").write_text("root=~/home\n")
        assert topics(shell) == ["home"]


class TestNoRoot:
    def test_says_the_three_places_where_one_can_be_named(self, shell):
        error = shell("topics", "list").error
        assert error == (
            "which root? Give --root, set SPARK_LOG_ROOT, or write root=… into spark-log.properties"
        )

    def test_an_empty_flag_is_a_mistake_not_a_fallback(self, shell, root):
        outcome = shell("topics", "list", "--root", "")
        assert outcome.status == 2
        assert outcome.error.startswith("which root?")

    def test_says_how_to_create_one_that_is_not_there(self, shell, tmp_path):
        missing = tmp_path / "missing"
        outcome = shell("topics", "list", "--root", missing)
        assert outcome.status == 2
        assert f"no spark-log root at {missing}" in outcome.error
        assert f"spark-log topics create NAME --root {missing}" in outcome.error
        assert not missing.exists()

    @pytest.mark.parametrize(
        "argv",
        [
            ["topics", "list"],
            ["topics", "describe"],
            ["topics", "delete", "flights"],
            ["console-producer", "flights"],
            ["console-consumer", "flights"],
            ["log-dirs"],
        ],
        ids=lambda argv: "-".join(argv[:2]),
    )
    def test_is_noticed_by_every_command(self, shell, tmp_path, argv):
        outcome = shell(*argv, "--root", tmp_path / "missing")
        assert outcome.status == 2
        assert "no spark-log root" in outcome.error

    @pytest.mark.parametrize("command", ["list", "create"])
    def test_a_file_is_none(self, shell, tmp_path, command):
        (tmp_path / "file").write_text("not a root")
        name = ["flights"] if command == "create" else []
        outcome = shell("topics", command, *name, "--root", tmp_path / "file")
        assert outcome.status == 2
        assert f"{tmp_path / 'file'}" in outcome.error
        assert "a root is a directory" in outcome.error

    @pytest.mark.parametrize("command", ["list", "create"])
    def test_storage_without_put_if_absent_is_none(self, shell, command):
        name = ["flights"] if command == "create" else []
        outcome = shell("topics", command, *name, "--root", "ftp://host/log")
        assert outcome.status == 2
        assert outcome.error.startswith("ftp:// cannot be a root")

    def test_one_of_another_version_is_refused(self, shell, tmp_path):
        (tmp_path / "meta.properties").write_text("version=99\ncluster.id=x\n")
        outcome = shell("topics", "list", "--root", tmp_path)
        assert outcome.status == 2
        assert "version '99'" in outcome.error


class TestPropertiesFile:
    def test_that_is_named_but_not_there_is_a_mistake(self, shell, root):
        outcome = shell("topics", "list", "--config", "no.properties")
        assert outcome.status == 2
        assert "cannot read the properties file no.properties" in outcome.error

    def test_an_unknown_key_names_the_nearest_and_the_file(self, shell, root, folder):
        (folder / "spark-log.properties").write_text("num.partitons=3\n")
        outcome = shell("topics", "list")
        assert outcome.status == 2
        assert outcome.error.startswith("spark-log.properties: ")
        assert "did you mean 'num.partitions'?" in outcome.error

    def test_a_line_that_is_no_pair_is_named_by_its_number(self, shell, root, folder):
        (folder / "spark-log.properties").write_text("# mine\nnonsense\n")
        outcome = shell("topics", "list")
        assert outcome.status == 2
        assert outcome.error.startswith("spark-log.properties, line 2: ")

    def test_that_is_not_text_is_a_mistake(self, shell, root, folder):
        (folder / "spark-log.properties").write_bytes(b"root=\xff\xfe")
        outcome = shell("topics", "list")
        assert outcome.status == 2
        assert "not a text file" in outcome.error


class TestStorageOptions:
    def test_flags_go_before_the_file(self, folder):
        (folder / "spark-log.properties").write_text(
            "root=/data\nstorage.key=from file\nstorage.region=here\n"
        )
        root = Root.from_options(storage_option=["key=from flag=yes", "endpoint=there"])
        assert root.storage_options == {
            "key": "from flag=yes",
            "region": "here",
            "endpoint": "there",
        }

    def test_are_not_shown_with_the_root(self):
        root = Root.from_options("/data", storage_option=["secret=abracadabra"])
        assert "abracadabra" not in repr(root)

    def test_are_not_shown_when_they_are_wrong(self, shell, root):
        outcome = shell("topics", "list", "--storage-option", "abracadabra")
        assert outcome.status == 2
        assert outcome.error == "--storage-option takes KEY=VALUE, got something else"

    def test_are_accepted_by_a_local_root_that_needs_none(self, shell, root):
        assert topics(shell, "--storage-option", "key=value") == ["flights", "weather"]
