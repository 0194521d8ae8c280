"""A Trino with its Delta Lake connector for tests, on 127.0.0.1: ``make trino`` fetches it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until

VERSION = "476"
NEEDED_JAVA = 24
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
FOLDER = CACHE / f"spark-log/trino-{VERSION}"

_JVM = """-Xmx1G
-XX:+UseSerialGC
-XX:TieredStopAtLevel=1
-Djdk.attach.allowAttachSelf=true
--enable-native-access=ALL-UNNAMED
--sun-misc-unsafe-memory-access=allow
"""
_START_TIMEOUT_S = 300


class TrinoError(Exception):
    """A query failed; the message is Trino's."""


class Trino:
    """A running server."""

    def __init__(self, url):
        self.url = url

    def query(self, sql):
        """Run a statement, and return its rows as lists.

        Raises:
            TrinoError: the statement failed.
        """
        rows = []
        answer = self._ask(f"{self.url}/v1/statement", sql.strip().removesuffix(";").encode())
        while True:
            if "error" in answer:
                raise TrinoError(answer["error"]["message"])
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._ask(answer["nextUri"])

    def _ask(self, url, statement=None):
        headers = {"X-Trino-User": "test", "X-Trino-Catalog": "delta", "X-Trino-Schema": "default"}
        with urllib.request.urlopen(urllib.request.Request(url, statement, headers)) as answer:
            return json.load(answer)


@contextmanager
def run_trino(directory, catalogs):
    """Start a server, and stop it at the end; without Trino or its Java the test is skipped.

    Args:
        directory: a directory for its files.
        catalogs: catalog → the lines of its file.
    """
    if not FOLDER.exists():
        pytest.skip(f"{FOLDER} is missing: make trino fetches it")
    java = _java_home()
    etc = directory / "etc"
    (etc / "catalog").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    files = {
        "node.properties": "node.environment=test\nnode.internal-address=127.0.0.1\n",
        "jvm.config": _JVM,
        "config.properties": f"""coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri={url}
query.max-memory-per-node=256MB
memory.heap-headroom-per-node=256MB
""",
    } | {f"catalog/{name}.properties": lines for name, lines in catalogs.items()}
    for name, lines in files.items():
        (etc / name).write_text(lines)
    log = directory / "trino.log"
    command = ["run", f"-etc-dir={etc}", f"-data-dir={directory}/data", f"-jvm-dir={java}"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(FOLDER / "bin/launcher"), *command],
            env=os.environ | {"JAVA_HOME": str(java), "PATH": f"{java}/bin:{os.environ['PATH']}"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: "SERVER STARTED" in log.read_text() or process.poll() is not None,
            timeout_s=_START_TIMEOUT_S,
            interval_s=0.2,
        )
        assert process.poll() is None, log.read_text()[-3000:]
        yield Trino(url)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _java_home():
    """Return the home of a Java that this Trino runs on, or skip the test."""
    homes = [os.environ.get("TRINO_JAVA_HOME"), os.environ.get("JAVA_HOME")]
    found = shutil.which("java")
    if found:
        homes.append(str(Path(found).resolve().parents[1]))
    for home in [*(Path(each) for each in homes if each), *sorted(Path("/usr/lib/jvm").glob("*"))]:
        java = home / "bin/java"
        if not java.exists():
            continue
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', said.stderr)
        if version and int(version[1]) >= NEEDED_JAVA:
            return home
    pytest.skip(f"Trino {VERSION} needs Java {NEEDED_JAVA}: set TRINO_JAVA_HOME")
