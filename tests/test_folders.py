"""Every folder of the package exports names, and each of them can be imported."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import grimp
import pytest

import spark_log
from tests.folder_contract import folder_to_import

PACKAGE = Path(spark_log.__file__).parent
FOLDERS = [
    ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
    for stub in sorted(PACKAGE.glob("**/__init__.pyi"))
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_exported_name_is_what_a_file_of_the_folder_defines(folder):
    module = importlib.import_module(folder)
    assert module.__all__
    assert module.__doc__
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_no_import_is_hidden_from_the_contracts():
    """The contracts read the imports of ``.py`` files, and a hidden import could close a circle.

    So a stub exports names of its own folder only, and no file imports a module by a text, or a
    client from `spark_log` itself.
    """
    hidden = []
    for path in PACKAGE.glob("**/*.py*"):
        if path.suffix in (".py", ".pyi") and path != PACKAGE / "cli" / "page.py":  # loads jobs
            text = path.read_text(encoding="utf-8")
            # A compiled module imports nothing.
            found = re.findall(r'import_module\(\s*f?"spark_log(?!\S*\._native").*', text)
            found += [
                line
                for line, name in re.findall(
                    r"^(\s*from spark_log import (\w+).*)", text, re.MULTILINE
                )
                if name != "__version__" and importlib.util.find_spec(f"spark_log.{name}") is None
            ]
            if path.suffix == ".pyi":
                found += re.findall(r"(?m)^(?:from (?!\.[\w ])|import ).*", text)
            hidden += [f"{path.relative_to(PACKAGE)}: {each}" for each in found]
    assert hidden == []


def test_a_name_that_is_not_exported_is_told():
    module = importlib.import_module("spark_log.log")
    with pytest.raises(AttributeError, match=r"No spark_log\.log attribute Appendr"):
        module.Appendr  # noqa: B018


def test_errors_and_types_are_attributes_of_the_package_but_not_among_its_names():
    code = (
        "import spark_log; print(spark_log.errors.KafkaTimeoutError.__name__);"
        "print(spark_log.types.TopicPartition.__name__);"
        "print({'errors', 'types'} & {*spark_log.__all__})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:3] == ["KafkaTimeoutError", "TopicPartition", "set()"]


def test_the_package_can_be_imported_from_a_zip_file(tmp_path):
    """As on an executor after ``spark-submit --py-files``."""
    archive = tmp_path / "spark_log.zip"
    with zipfile.ZipFile(archive, "w") as files:
        for path in PACKAGE.glob("**/*.py*"):
            if path.suffix in (".py", ".pyi"):
                files.write(path, path.relative_to(PACKAGE.parent))
    code = "import spark_log; print(spark_log.__file__, spark_log.Producer, spark_log.Consumer)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(str(archive))


def test_a_producer_loads_no_consumer():
    code = "import sys; from spark_log import Producer; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "spark_log.producer.producer" in loaded
    assert "spark_log.consumer.consumer" not in loaded
    assert "pyspark" not in loaded


class TestContract:
    @pytest.fixture
    def graph(self):
        graph = grimp.ImportGraph()
        for module in ("p", "p.a", "p.a.one", "p.a.b", "p.a.b.two", "p.c", "p.c.three", "p.errors"):
            graph.add_module(module)
        return graph

    @pytest.mark.parametrize(
        ("importer", "imported", "folder"),
        [
            ("p.c.three", "p.a.one", "p.a"),
            ("p.c.three", "p.a.b.two", "p.a"),
            ("p.a.one", "p.a.b.two", "p.a.b"),
            ("p.a.b.two", "p.a.one", None),
            ("p.c.three", "p.a", None),
            ("p.a.one", "p.errors", None),
            ("p.a", "p.a.b.two", "p.a.b"),
        ],
    )
    def test_a_file_is_imported_by_its_own_folder_alone(self, graph, importer, imported, folder):
        assert folder_to_import(graph, importer, imported) == folder
