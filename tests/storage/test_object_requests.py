"""How many requests a read of an object costs on S3, Google Cloud Storage and Azure.

A server of the test answers each service's requests for objects as that service does.
"""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spark_log.errors import NotFoundError
from spark_log.storage import open_store

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SMALL, LARGE = b"0123456789", bytes(range(256)) * 40
MISSING = {"s3": "NoSuchKey", "gs": "NoSuchKey", "az": "BlobNotFound"}


class ObjectServer:
    """Two objects, ``small`` and ``large``; ``requests`` has the methods and ranges so far."""

    def __init__(self, service):
        self.root = f"{service}://bucket"
        self.requests: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                asked = self.headers.get("Range") or self.headers.get("x-ms-range")
                server.requests.append((self.command, asked))
                data = {"small": SMALL, "large": LARGE}.get(self.path.rpartition("/")[2])
                if data is None:
                    code = MISSING[service]
                    body = f"<Error><Code>{code}</Code><Message>none</Message></Error>".encode()
                    self.answer(404, body, {"x-ms-error-code": code})
                    return
                first, last = re.findall(r"bytes=(\d*)-(\d*)", asked or "bytes=0-")[0]
                if not first:
                    assert service != "az", "Azure has no suffix ranges"
                    start, end = max(0, len(data) - int(last)), len(data)
                else:
                    start, end = int(first), min(len(data), int(last or 2**62) + 1)
                fields = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
                self.answer(206 if asked else 200, data[start:end], fields)

            def answer(self, status, body, fields):
                self.send_response(status)
                for name, text in {
                    "Content-Length": str(len(body)),
                    "Last-Modified": "Mon, 23 Nov 2026 12:00:00 GMT",
                    "ETag": '"1"',
                    **fields,
                }.items():
                    self.send_header(name, text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

            do_HEAD = do_GET  # noqa: N815 - its name

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        self.options = {
            "s3": {"key": "k", "secret": "s", "endpoint_url": url},
            "gs": {"token": "anon", "endpoint_url": url},
            "az": {"connection_string": f"AccountName=a;AccountKey={KEY};BlobEndpoint={url}/a;"},
        }[service]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(params=["s3", "gs", "az"])
def server(request):
    server = ObjectServer(request.param)
    yield server
    server.close()


@pytest.fixture
def store(server):
    return open_store(server.root, server.options)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.read_tail("missing", 1_000),
        lambda store: store.read_tail_and_size("missing", 1_000),
        lambda store: store.open_buffer("missing"),
        lambda store: store.read("missing", 5, 10),
        lambda store: store.head("missing"),
    ],
    ids=["read_tail", "read_tail_and_size", "open_buffer", "read", "head"],
)
def test_an_object_that_is_missing_costs_one_request(server, store, read):
    with pytest.raises(NotFoundError):
        read(store)
    assert len(server.requests) == 1


def test_a_small_object_is_read_whole_by_one_request(server, store):
    tail, size_bytes = store.read_tail_and_size("small", 1_000)
    assert (tail.to_pybytes(), size_bytes) == (SMALL, len(SMALL))
    assert store.open_buffer("small").to_pybytes() == SMALL
    assert len(server.requests) == 2


def test_the_end_of_a_large_object_costs_one_request_and_two_on_azure(server, store):
    tail, size_bytes = store.read_tail_and_size("large", 1_000)
    assert (tail.to_pybytes(), size_bytes) == (LARGE[-1_000:], len(LARGE))
    assert len(server.requests) == (2 if server.root.startswith("az") else 1)


def test_a_range_costs_one_request(server, store):
    assert store.read("large", 100, 50).to_pybytes() == LARGE[100:150]
    assert len(server.requests) == 1
