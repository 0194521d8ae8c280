"""Builds the package. All settings are in setup.cfg, but for the files of conf/ in the wheel."""

import os
import runpy

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

CONF_FILES = runpy.run_path("spark_log/config/conf_files.py")["CONF_FILES"]


class BuildWithConf(build_py):
    """Copies the configuration files of conf/ into the wheel, as `spark_log/conf/`."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if not self.editable_mode:
            target = os.path.join(self.build_lib, "spark_log", "conf")
            self.mkpath(target)
            for name in CONF_FILES:
                self.copy_file(os.path.join("conf", name), target)

    def get_source_files(self) -> list[str]:
        """Return the files that a source distribution has."""
        return [*super().get_source_files(), *(os.path.join("conf", name) for name in CONF_FILES)]


# Only the stable ABI of Python 3.11: a wheel serves all later Pythons (setup.cfg, bdist_wheel).
# Without a compiler the package is installed without it, and numpy takes its place
# (docs/adr/0053).
NATIVE_RECORDS = Extension(
    "spark_log.gateway.record_batches._native",
    ["spark_log/gateway/record_batches/_native.c"],
    extra_compile_args=["-O3"],
    optional=True,
    py_limited_api=True,
)

setup(cmdclass={"build_py": BuildWithConf}, ext_modules=[NATIVE_RECORDS])
