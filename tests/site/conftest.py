"""The site as `make site` builds it, and a shell for the commands on its pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import folder, shell
from tests.docs.blocks import PROJECT

__all__ = ["folder", "shell"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. A warning fails the build."""
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", built],
        cwd=PROJECT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return built
