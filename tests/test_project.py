"""The scaffold: what `make` promises on a machine that lacks something, and what the pins cover."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_log.config import CONF_FILES

PROJECT = Path(__file__).parent.parent
COREUTILS = ["cat", "cp", "dirname", "echo", "env", "head", "id", "ls", "mkdir", "rm", "touch"]


@pytest.fixture
def bin_dir(tmp_path):
    """A PATH with make, sh and coreutils, and neither Java nor Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ["make", "sh", *COREUTILS]:
        (folder / name).symlink_to(shutil.which(name))
    return folder


@pytest.fixture
def checkout(tmp_path):
    """A copy of what `make` reads before it installs anything: it can't run this suite again."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ["Makefile", "setup.cfg", "pyproject.toml", "constraints.txt"]:
        shutil.copy(PROJECT / name, folder)
    shutil.copytree(PROJECT / "conf", folder / "conf")
    return folder


def add_java(folder: Path, version: str) -> None:
    """Put a `java` into a folder that only knows which version it is, and says so as Java does."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(
        "#!/bin/sh\n"
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2\n"
        f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\n"
        "echo 'OpenJDK Runtime Environment (build 99)' >&2\n"
    )
    java.chmod(0o755)


def run(*command, cwd, path, **env):
    """Run a command and return its exit status and the lines of all that it printed, in order."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": str(path), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


class TestJavaCheck:
    @pytest.mark.parametrize("target", ["demo", "test", "bench", "bench-kafka"])
    def test_first_line_names_the_package_when_there_is_no_java(self, target, checkout, bin_dir):
        status, lines = run("make", target, cwd=checkout, path=bin_dir)
        assert status != 0
        assert "needs Java 17 or 21, found none (java on the PATH)" in lines[0]
        assert "install openjdk-17-jre-headless" in lines[0]
        assert len(lines) == 2, "only make's own line may follow"
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("target", ["demo", "test"])
    def test_first_line_names_the_version_that_does_not_do(self, target, checkout, bin_dir):
        add_java(bin_dir, "11.0.28")
        status, lines = run("make", target, cwd=checkout, path=bin_dir)
        assert status != 0
        assert "needs Java 17 or 21, found Java 11.0.28 (java on the PATH)" in lines[0]
        assert len(lines) == 2
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("version", ["17", "17.0.15", "17-ea", "21.0.2", "21"])
    def test_accepts_17_and_21_silently(self, version, bin_dir):
        add_java(bin_dir, version)
        assert run("sh", "conf/check-java.sh", cwd=PROJECT, path=bin_dir) == (0, [])

    @pytest.mark.parametrize("version", ["1.8.0_462", "11.0.28", "18.0.1", "25", "170.1", "2"])
    def test_refuses_any_other_in_one_line(self, version, bin_dir):
        add_java(bin_dir, version)
        status, lines = run("sh", "conf/check-java.sh", cwd=PROJECT, path=bin_dir)
        assert status == 2
        assert len(lines) == 1
        assert f"found Java {version} " in lines[0]

    def test_java_home_comes_before_the_path_as_in_spark(self, bin_dir, tmp_path):
        home = tmp_path / "jdk with a space"
        add_java(home / "bin", "17.0.15")
        add_java(bin_dir, "11.0.28")
        script = ("sh", "conf/check-java.sh")
        assert run(*script, cwd=PROJECT, path=bin_dir, JAVA_HOME=str(home)) == (0, [])

        add_java(home / "bin", "11.0.28")
        add_java(bin_dir, "17.0.15")
        status, lines = run(*script, cwd=PROJECT, path=bin_dir, JAVA_HOME=str(home))
        assert status == 2
        assert f"found Java 11.0.28 (JAVA_HOME={home})" in lines[0]

    def test_a_java_home_without_java_is_refused_though_the_path_has_one(self, bin_dir):
        add_java(bin_dir, "17.0.15")
        script = ("sh", "conf/check-java.sh")
        status, lines = run(*script, cwd=PROJECT, path=bin_dir, JAVA_HOME="/no/such/jdk")
        assert status == 2
        assert len(lines) == 1
        assert "found none (JAVA_HOME=/no/such/jdk)" in lines[0]

    def test_without_python_the_line_after_the_java_check_says_so(self, checkout, bin_dir):
        add_java(bin_dir, "17.0.15")
        status, lines = run("make", "test", cwd=checkout, path=bin_dir)
        assert status != 0
        assert "needs Python 3.11 or newer, found none as 'python3'" in lines[0]


class TestMakefile:
    def test_help_is_the_default_and_lists_every_target_with_its_line(self):
        makefile = (PROJECT / "Makefile").read_text()
        (line,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
        phony = line.split()
        rules = re.findall(r"^([a-z][a-z0-9-]*):(?!=)", makefile, re.MULTILINE)
        assert sorted(phony) == sorted(rules)

        status, lines = run("make", cwd=PROJECT, path=os.environ["PATH"])
        assert status == 0
        listed = dict(line.split(maxsplit=1) for line in lines)
        assert sorted(listed) == sorted(rules)
        assert all(listed.values())


class TestPythons:
    def test_classifiers_makefile_and_ci_name_the_same_versions(self):
        config = configparser.ConfigParser()
        config.read(PROJECT / "setup.cfg")
        classifiers = config["metadata"]["classifiers"]
        named = re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)
        (makefile,) = re.findall(r"^PYTHONS \?= (.*)$", (PROJECT / "Makefile").read_text(), re.M)
        assert makefile.split() == named
        ci = (PROJECT / ".github" / "workflows" / "ci.yml").read_text()
        assert f"python: {json.dumps(named)}" in ci
        assert config["options"]["python_requires"] == f">={named[0]}"


def requirements_of_setup_cfg() -> list[Requirement]:
    """Everything that setup.cfg names in install_requires and in the extras."""
    config = configparser.ConfigParser()
    config.read(PROJECT / "setup.cfg")
    blocks = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    """What constraints.txt pins: name -> version."""
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


class TestPins:
    def test_every_package_that_setup_cfg_names_is_pinned_within_its_bounds(self):
        pinned = pins()
        for requirement in requirements_of_setup_cfg():
            if requirement.name != "spark-log":
                version = pinned.get(canonicalize_name(requirement.name))
                assert version, f"{requirement.name} is not in constraints.txt"
                assert requirement.specifier.contains(version), f"{requirement}, pinned {version}"

    def test_what_is_installed_for_them_is_what_is_pinned(self):
        pinned = pins()
        seen: set[tuple[str, str]] = set()
        todo = requirements_of_setup_cfg()
        while todo:
            requirement = todo.pop()
            name = canonicalize_name(requirement.name)
            for extra in ["", *requirement.extras]:
                if name == "spark-log" or (name, extra) in seen:
                    continue
                seen.add((name, extra))
                distribution = metadata.distribution(name)
                assert pinned.get(name) == distribution.version, f"{name}: run make venv"
                for line in distribution.requires or []:
                    needed = Requirement(line)
                    if not needed.marker or needed.marker.evaluate({"extra": extra}):
                        todo.append(needed)

    def test_the_delta_jar_that_spark_fetches_is_that_of_the_pinned_packages(self):
        pinned = pins()
        spark = ".".join(pinned["pyspark"].split(".")[:2])
        jar = f"io.delta:delta-spark_{spark}_2.13:{pinned['delta-spark']}"
        conf = (PROJECT / "conf" / "spark-defaults.conf").read_text()
        assert re.search(rf"^spark\.jars\.packages\s+{re.escape(jar)}$", conf, re.MULTILINE)

    def test_nothing_says_where_packages_come_from(self):
        names = ["Makefile", "setup.cfg", "pyproject.toml", "constraints.txt", ".ci/run"]
        files = [PROJECT / name for name in names]
        files += [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")]
        files += filter(Path.is_file, PROJECT.glob("conf/**/*"))
        place = re.compile(
            r"--(extra-)?index-url|--find-links|--trusted-host|PIP_INDEX| @ (file|https?):"
            r"|https?://\S*(pypi|pythonhosted|maven|artifactory|nexus|/simple\b)",
            re.IGNORECASE,
        )
        for file in files:
            assert not place.search(file.read_text()), file


class TestInstalled:
    def test_spark_can_find_the_data_source_from_any_folder(self, tmp_path):
        listing = "import pkgutil; print(*(module.name for module in pkgutil.iter_modules()))"
        python = [sys.executable, "-c", listing]
        _, lines = run(*python, cwd=tmp_path, path=os.environ["PATH"])
        assert "pyspark_spark_log" in lines[0].split()

    def test_importing_the_package_or_its_commands_does_not_import_pyspark(self, tmp_path):
        code = "import sys, spark_log, spark_log.cli.main; print('pyspark' in sys.modules)"
        python = [sys.executable, "-c", code]
        assert run(*python, cwd=tmp_path, path=os.environ["PATH"]) == (0, ["False"])


class TestWheel:
    def test_has_the_jobs_and_the_configuration_files(self, tmp_path):
        built, info = tmp_path / "built", tmp_path / "info"
        info.mkdir()
        setup = [sys.executable, "setup.py", "-q", "egg_info", "-e", info]
        _, lines = run(*setup, "build_py", "-d", built, cwd=PROJECT, path=os.environ["PATH"])
        conf = sorted(path.name for path in (built / "spark_log" / "conf").iterdir())
        assert conf == list(CONF_FILES), lines
        for name in CONF_FILES:
            shipped = built / "spark_log" / "conf" / name
            assert shipped.read_bytes() == (PROJECT / "conf" / name).read_bytes()
        for job in (PROJECT / "jobs").glob("*.py"):
            assert (built / "spark_log" / "jobs" / job.name).exists() or job.name == "demo.py"


@pytest.mark.spark
class TestConf:
    @pytest.mark.long
    def test_spark_submit_prints_what_the_job_prints_and_logs_nothing(self, tmp_path):
        job = tmp_path / "job.py"
        job.write_text(
            "from pyspark.sql import SparkSession\n"
            "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
            f"spark.range(3).write.format('delta').save('{tmp_path}/table')\n"
            f"print(spark.read.format('delta').load('{tmp_path}/table').count(), 'rows')\n"
            "spark.stop()\n"
        )
        done = subprocess.run(
            [Path(sys.executable).with_name("spark-submit"), job],
            cwd=tmp_path,
            env=os.environ
            | {"SPARK_CONF_DIR": str(PROJECT / "conf"), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "3 rows\n"
        logged = [line for line in done.stderr.splitlines() if re.match(r"\d\d[:/]\d\d", line)]
        assert logged == []
        assert "Using Spark's default log4j profile" not in done.stderr
