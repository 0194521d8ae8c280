"""A proxy in a process of its own that delays each request to an S3 server, and records its time.

Requests that wait for each other are counted as *rounds*: the longest chain of requests, each of
which began after the previous one had ended. An operation takes at least rounds times the latency.
"""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self
from urllib.parse import parse_qs, urlsplit

from spark_log.testing.servers.faulty_proxy import Fault, FaultyProxy, Request

_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A request that passed the proxy.

    Attributes:
        operation: ``PUT``, ``GET``, ``HEAD``, ``LIST`` or ``DELETE``.
        path: the path of the object, below the bucket; the prefix of a listing.
        began_s: the monotonic time of this machine when the request arrived.
        ended_s: the monotonic time after the delay.
    """

    operation: str
    path: str
    began_s: float
    ended_s: float

    @property
    def is_write(self) -> bool:
        """Whether object stores charge the request as a write; a listing costs as much as a put."""
        return self.operation in ("PUT", "LIST", "POST", "COPY")


class LatencyProxy:
    """A running proxy. Not thread-safe.

    Attributes:
        url: ``http://127.0.0.1:…``.
    """

    def __init__(self, url: str, pipe: Connection) -> None:
        self.url = url
        self._pipe = pipe

    def begin(self) -> None:
        """Forget the requests so far."""
        self.requests()

    def requests(self) -> list[SlowRequest]:
        """Return the requests since the last call, in the order in which they began."""
        self._pipe.send("requests")
        return [SlowRequest(*each) for each in self._pipe.recv()]

    @classmethod
    @contextmanager
    def running(cls, server_url: str, latency_ms: float) -> Iterator[Self]:
        """Start a proxy, and stop it at the end.

        Args:
            server_url: the URL of the S3 server.
            latency_ms: the delay of each request.
        """
        theirs, own = _PROCESSES.Pipe()
        process = _PROCESSES.Process(
            target=_serve, args=(server_url, latency_ms / 1000, theirs), daemon=True
        )
        process.start()
        try:
            yield cls(own.recv(), own)
        finally:
            own.send(None)
            process.join(30)


def rounds(requests: list[SlowRequest]) -> int:
    """Return the length of the longest chain of requests that waited for each other."""
    count, ended_s = 0, 0.0
    for each in sorted(requests, key=lambda each: each.ended_s):
        if each.began_s >= ended_s:
            count, ended_s = count + 1, each.ended_s
    return count


def _serve(server_url: str, latency_s: float, pipe: Connection) -> None:
    found: list[tuple[str, str, float, float]] = []
    lock = threading.Lock()

    def delay(request: Request) -> Fault:
        began_s = time.monotonic()
        time.sleep(latency_s)
        with lock:
            found.append((*_operation(request), began_s, time.monotonic()))
        return "pass"

    with FaultyProxy(server_url) as proxy:
        proxy.rule = delay
        pipe.send(proxy.url)
        while pipe.recv() is not None:
            with lock:
                sent = sorted(found, key=lambda each: each[2])
                found.clear()
                proxy.requests.clear()
            pipe.send(sent)


def _operation(request: Request) -> tuple[str, str]:
    parts = urlsplit(request.path)
    query = parse_qs(parts.query, keep_blank_values=True)
    if request.method == "GET" and "list-type" in query:
        return "LIST", query.get("prefix", [""])[0]
    path = parts.path.lstrip("/").partition("/")[2]
    if request.method == "POST" and "delete" in query:
        return "DELETE", path  # of several objects
    return ("COPY" if "x-amz-copy-source" in request.headers else request.method), path
