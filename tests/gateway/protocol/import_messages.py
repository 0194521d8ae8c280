"""Writes the schemas of Kafka's messages from the jar of kafka-clients.

    python -m tests.gateway.protocol.import_messages kafka-clients-4.2.0.jar \
        > spark_log/gateway/protocol/messages.json
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator

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


def lines(jar: str) -> Iterator[str]:
    """Yield the schema of each request, response and header as one line of JSON, by name."""
    with zipfile.ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            if re.fullmatch(r"common/message/\w+\.json", path):
                found = json.loads(_COMMENT.sub("", archive.read(path).decode()))
                if found["validVersions"] != "none":
                    found = {"name": found["name"], **found}
                    yield json.dumps(_without_descriptions(found), separators=(",", ":"))


def _without_descriptions(found: object) -> object:
    if isinstance(found, dict):
        return {key: _without_descriptions(found[key]) for key in found if key in _KEPT}
    return [_without_descriptions(each) for each in found] if isinstance(found, list) else found


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(sys.argv[1])) + "\n")
