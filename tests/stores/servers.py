"""Emulators of Google Cloud Storage and Azure Blob Storage, started by `make test-stores`."""

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import subprocess
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from spark_log.testing.servers.faulty_proxy import FaultyProxy
from spark_log.testing.servers.s3_server import _UNTIL_INPUT_ENDS, _wait_until_it_listens

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-log"
FAKE_GCS_SERVER = CACHE / "fake-gcs-server-1.56.1/fake-gcs-server"
AZURITE = CACHE / "azurite-3.35.0/node_modules/azurite/dist/src/blob/main.js"

# Azurite's only account; its key is printed in Azurite's documentation.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass
class Server:
    """A running emulator: its address, and how to create a bucket."""

    url: str
    new_bucket: Callable[[], str]
    storage_options: dict[str, str]


@contextmanager
def _running(*command):
    """Run a server; ``{port}`` in its command is replaced by a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *(word.format(port=port) for word in command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_it_listens(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


# --- Google Cloud Storage ------------------------------------------------------------------------


class GcsDialect(FaultyProxy):
    """Google has two APIs: the client uses XML, and fake-gcs-server can only write by JSON.

    A PUT becomes an upload with the condition of its header, which fake-gcs-server checks
    atomically. Its listing ignores the start, so names up to it are removed here.
    """

    def _forward(self, request, without=()):
        url = urlsplit(request.path)
        bucket, _, name = url.path.lstrip("/").partition("/")
        request = replace(request, headers={**request.headers, "host": self._host})
        if request.method == "PUT" and name:
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
            generation = request.headers.get("x-goog-if-generation-match")
            if generation is not None and "x-goog-if-generation-match" not in without:
                path += f"&ifGenerationMatch={generation}"
            request = replace(request, method="POST", path=path)
            status, fields, body = super()._forward(request)
            return status, [*fields, ("ETag", '"any"')], body
        status, fields, body = super()._forward(request)
        query = parse_qs(url.query)
        if "list-type" in query:
            body = _after(body.decode(), query.get("start-after", [""])[0]).encode()
        return status, fields, body


def _after(listing, start):
    """Remove the names up to ``start`` from a listing."""

    def kept(entry):
        (key,) = re.findall("<Key>(.*?)</Key>", entry.group(0))
        return entry.group(0) if key.encode() > start.encode() else ""

    return re.sub("<Contents>.*?</Contents>", kept, listing, flags=re.DOTALL)


@contextmanager
def run_gcs_server():
    """Start fake-gcs-server, behind a proxy that translates for it."""
    options = ("-scheme", "http", "-host", "127.0.0.1", "-port", "{port}", "-backend", "memory")
    public = ("-public-host", "127.0.0.1:{port}", "-external-url", "http://127.0.0.1:{port}")
    with _running(str(FAKE_GCS_SERVER), *options, *public) as url, GcsDialect(url) as proxy:

        def new_bucket():
            name = f"test-{uuid.uuid4().hex[:20]}"
            body = json.dumps({"name": name}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}/storage/v1/b?project=p", body, headers)
            urllib.request.urlopen(request, timeout=30).close()
            return f"gs://{name}"

        yield Server(url, new_bucket, {"token": "anon", "endpoint_url": proxy.url})


# --- Azure Blob Storage --------------------------------------------------------------------------


@contextmanager
def run_azure_server():
    """Start Azurite."""
    options = ("--blobHost", "127.0.0.1", "--blobPort", "{port}", "--inMemoryPersistence")
    quiet = ("--silent", "--skipApiVersionCheck", "--disableTelemetry")
    with _running("node", str(AZURITE), *options, *quiet) as url:

        def new_bucket():
            name = f"test-{uuid.uuid4().hex[:20]}"
            date = formatdate(usegmt=True)
            canonical = (
                f"x-ms-date:{date}\nx-ms-version:2021-12-02\n"
                f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
            )
            text = "PUT" + "\n" * 12 + canonical
            key = base64.b64decode(ACCOUNT_KEY)
            signature = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()
            request = urllib.request.Request(
                f"{url}/{ACCOUNT}/{name}?restype=container",
                method="PUT",
                headers={
                    "x-ms-date": date,
                    "x-ms-version": "2021-12-02",
                    "Authorization": f"SharedKey {ACCOUNT}:{signature}",
                },
            )
            urllib.request.urlopen(request, timeout=30).close()
            return f"az://{name}"

        text = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={url}/{ACCOUNT};"
        yield Server(url, new_bucket, {"connection_string": text})
