"""Stands in for the scripts of a Kafka distribution, for suites that start their own brokers.

It is run as ``kafka_scripts.py SCRIPT ARGUMENT...``, by files in the folder that
`write_kafka_scripts` fills. What they start is a gateway with a root of its own; a broker's
``kafka.properties`` say how it listens, and who its users are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

SPARK_LOG: tuple[str | Path, ...] = (sys.executable, "-m", "spark_log")


def write_kafka_scripts(folder: Path) -> None:
    """Write ``bin/kafka-run-class.sh`` and the other scripts into a folder."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for script in SCRIPTS:
        path = folder / "bin" / script
        # The scripts are called from environments in which this checkout is not found.
        path.write_text(
            f"#!/bin/sh\nPYTHONPATH={os.environ.get('PYTHONPATH', '')}\nexport PYTHONPATH\n"
            f'exec {sys.executable} {Path(__file__).resolve()} {script} "$@"\n'
        )
        path.chmod(0o755)


def _run_class(arguments: Sequence[str]) -> int:
    """Start a broker as ``kafka.Kafka PROPERTIES`` does; return its exit status."""
    _, path = arguments
    properties = _properties(Path(path))
    data = Path(properties["log.dirs"])
    protocol, listen = properties["listeners"].split("://")
    settings = {"security.protocol": protocol}
    if mechanism := properties.get("sasl.enabled.mechanisms"):
        settings["sasl.enabled.mechanisms"] = mechanism
        settings["sasl.users.file"] = str(_users_file(data))
        # PlainLoginModule takes the users as options: user_alice="alice-secret".
        jaas = properties.get("sasl.jaas.config", "")
        for user, password in re.findall(r'user_(\w+)="([^"]*)"', jaas):
            _add_user(data, user, password)
    if keystore := properties.get("ssl.keystore.location"):
        settings["ssl.keystore.location"] = str(
            _pem(Path(keystore), properties["ssl.keystore.password"])
        )
    overrides = [word for name in settings for word in ("--override", f"{name}={settings[name]}")]
    gateway = subprocess.Popen(
        [
            *SPARK_LOG,
            "gateway",
            "--create",
            "--root",
            data / "root",
            "--listen",
            listen,
            *overrides,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: gateway.terminate())
    assert gateway.stdout is not None
    for line in gateway.stdout:
        _write_line(line.rstrip("\n"))
        # What a fixture waits for in the log of a broker.
        _write_line(f"[KafkaRaftServer nodeId={properties['node.id']}] Kafka Server started")
        for user in _users(data):
            _write_line(f"Replayed UserScramCredentialRecord creating new entry for {user}")
    return gateway.wait()


def _storage(arguments: Sequence[str]) -> int:
    """Do what ``format -c PROPERTIES --add-scram 'MECHANISM=[name=…,password=…]'`` asks for."""
    options = dict(pairwise(arguments))
    data = Path(_properties(Path(options["-c"]))["log.dirs"])
    if scram := options.get("--add-scram"):
        found = re.search(r"\[name=([^,]*),password=(.*)\]$", scram)
        assert found is not None, scram
        _add_user(data, *found.groups())
    return 0


def _topics(arguments: Sequence[str]) -> int:
    """Print the names of topics, as ``--list --bootstrap-server … --command-config …`` does."""
    from confluent_kafka.admin import AdminClient

    options = dict(pairwise(arguments))
    config: dict[str, Any] = {"bootstrap.servers": options["--bootstrap-server"]}
    if path := options.get("--command-config"):
        config |= _properties(Path(path))
    for name in sorted(AdminClient(config).list_topics(timeout=30).topics):
        _write_line(name)
    return 0


SCRIPTS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "kafka-run-class.sh": _run_class,
    "kafka-storage.sh": _storage,
    "kafka-topics.sh": _topics,
}


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _properties(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def _users_file(data: Path) -> Path:
    return data / "users"


def _add_user(data: Path, user: str, password: str) -> None:
    data.mkdir(parents=True, exist_ok=True)
    command = [*SPARK_LOG, "gateway-users", "add", user, "--file", _users_file(data)]
    subprocess.run(command, input=password, text=True, check=True, stdout=subprocess.DEVNULL)


def _users(data: Path) -> list[str]:
    if not _users_file(data).exists():
        return []
    command = [*SPARK_LOG, "gateway-users", "list", "--file", _users_file(data), "--json"]
    return list(json.loads(subprocess.check_output(command)))


def _pem(keystore: Path, password: str) -> Path:
    """Write the private key and the certificates of a keystore as PEM; return the file's path."""
    path = keystore.with_suffix(".pem")
    command: list[str | Path]
    command = ["openssl", "pkcs12", "-in", keystore, "-passin", f"pass:{password}", "-nodes"]
    subprocess.run([*command, "-out", path], check=True, stderr=subprocess.DEVNULL)
    return path


if __name__ == "__main__":
    sys.exit(SCRIPTS[sys.argv[1]](sys.argv[2:]))
