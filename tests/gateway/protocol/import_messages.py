"""Writes the schemas of the messages that a gateway needs, from the jar of kafka-clients.

    python -m tests.gateway.protocol.import_messages kafka-clients-4.2.0.jar \
        > spark_log/gateway/protocol/messages.json

A handler of another request needs its schema before it can be imported: declare its `Api` in its
file, then run this.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

_COMMENT = re.compile(r"(?m)^\s*//.*$")
_KEPT = {
    "apiKey",
    "commonStructs",
    "default",
    "fields",
    "flexibleVersions",
    "name",
    "nullableVersions",
    "tag",
    "taggedVersions",
    "type",
    "validVersions",
    "versions",
}


_API = re.compile(r'\bApi\(\s*\w+,\s*"(\w+)"')
_REQUESTS = Path(__file__).parents[3] / "spark_log" / "gateway" / "requests"


def needed_messages() -> set[str]:
    """Return the names of the requests and responses of all APIs that the handlers declare.

    The files are searched, because those without a schema cannot be imported.
    """
    files = _REQUESTS.glob("*.py")
    names = {name for file in files for name in _API.findall(file.read_text("utf-8"))}
    return {name + kind for name in names for kind in ("Request", "Response")}


def lines(jar: str) -> Iterator[str]:
    """Yield the schema of each needed message as one line of JSON, by name."""
    needed = needed_messages()
    with zipfile.ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            if re.fullmatch(r"common/message/\w+\.json", path):
                found = json.loads(_COMMENT.sub("", archive.read(path).decode()))
                if found["name"] in needed:
                    found = {"name": found["name"], **found}
                    yield json.dumps(_without_descriptions(found), separators=(",", ":"))


def _without_descriptions(found: object) -> object:
    if isinstance(found, dict):
        return {key: _without_descriptions(found[key]) for key in found if key in _KEPT}
    return [_without_descriptions(each) for each in found] if isinstance(found, list) else found


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(sys.argv[1])) + "\n")
