"""Compares s3fs, obstore and our store on one S3 server, and measures the log on top of ours.

    python -m benchmarks.object_stores

All run against the same server on 127.0.0.1 (versitygw if ``make s3-server`` built it) and take
turns. "ours" is `spark_log.storage`'s store, which is built on obstore.
"""

import argparse
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import obstore
import pyarrow as pa
import s3fs
from obstore.store import S3Store
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import SMALL_BATCH, open_log, records
from benchmarks.timing import timed
from benchmarks.whole_table import print_whole
from spark_log.errors import AlreadyExistsError, StorageError
from spark_log.storage import Store, open_store
from spark_log.storage.object.object_store import ObjectStore
from spark_log.testing.create_race import create_race
from spark_log.testing.servers.faulty_proxy import Fault, FaultyProxy, Request
from spark_log.testing.servers.s3_server import S3Server, run_s3_server

SMALL, LARGE, HUGE = 2_000, 8_000_000, 256_000_000
CONTENDERS = 16


class S3fs:
    """s3fs with its defaults, but without its cache of listings, which would be stale."""

    name = "s3fs"

    def __init__(self, server: S3Server, bucket: str, endpoint_url: str | None = None) -> None:
        self.bucket = bucket.removeprefix("s3://")
        options = server.storage_options
        self.fs = s3fs.S3FileSystem(
            key=options["key"],
            secret=options["secret"],
            endpoint_url=endpoint_url or server.endpoint_url,
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def create(self, key: str, data: bytes) -> bool:
        try:
            self.fs.pipe_file(f"{self.bucket}/{key}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, key: str, start: int, length: int) -> bytes:
        return bytes(self.fs.cat_file(f"{self.bucket}/{key}", start=start, end=start + length))

    def list_after(self, prefix: str, start: str) -> int:
        # s3fs cannot start after a key: all keys are listed, and earlier ones dropped.
        first = f"{self.bucket}/{prefix}/{start}"
        found = self.fs.ls(f"{self.bucket}/{prefix}", detail=True, refresh=True)
        return sum(entry["name"] > first for entry in found)


class Obstore:
    """obstore, without its retries."""

    name = "obstore"

    def __init__(self, server: S3Server, bucket: str, endpoint_url: str | None = None) -> None:
        options = server.storage_options
        self.store = S3Store(
            bucket.removeprefix("s3://"),
            access_key_id=options["key"],
            secret_access_key=options["secret"],
            endpoint=endpoint_url or server.endpoint_url,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self.store, key, data, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def read(self, key: str, start: int, length: int) -> bytes:
        return bytes(obstore.get_range(self.store, key, start=start, length=length))

    def list_after(self, prefix: str, start: str) -> int:
        pages = obstore.list(self.store, prefix, offset=f"{prefix}/{start}", chunk_size=1_000)
        return sum(len(page) for page in pages)


class Ours:
    """The store of this package."""

    name = "ours"

    def __init__(self, server: S3Server, bucket: str, endpoint_url: str | None = None) -> None:
        options = server.storage_options
        if endpoint_url:
            options["endpoint_url"] = endpoint_url
        self.store = open_store(bucket, options)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self.store.put_if_absent(key, data)
        except AlreadyExistsError:
            return False
        return True

    def read(self, key: str, start: int, length: int) -> bytes:
        return bytes(self.store.read(key, start, length))

    def list_after(self, prefix: str, start: str) -> int:
        return sum(1 for _ in self.store.list(prefix, start_after=start))


Client = S3fs | Obstore | Ours
KINDS: tuple[type[Client], ...] = (S3fs, Obstore, Ours)


def compare(server: S3Server, options: argparse.Namespace) -> Table:
    """Return a table of the libraries' figures."""
    bucket = server.new_bucket()
    clients = [kind(server, bucket) for kind in KINDS]
    table = Table(title=f"Libraries, against {server.name}", box=SIMPLE_HEAD)
    table.add_column("")
    for kind in KINDS:
        table.add_column(kind.name, justify="right")

    for label, size, times in (("2 KB", SMALL, options.puts), ("8 MB", LARGE, 30)):
        data = os.urandom(size)
        took = in_turn(clients, times, partial(_create, data))
        for percent in (50, 99):
            row = [f"{percentile(each, percent):.2f} ms" for each in took]
            table.add_row(f"put-if-absent of {label}, p{percent}", *row)
    for client in clients:
        client.create(f"{client.name}.large", os.urandom(LARGE))
    took = in_turn(clients, 300, lambda client, _: client.read(f"{client.name}.large", 9, 65_536))
    table.add_row("ranged read of 64 KB, p50", *[f"{percentile(each, 50):.2f} ms" for each in took])
    with ThreadPoolExecutor(8) as pool:
        ours = clients[-1]
        list(pool.map(lambda n: ours.create(f"many/{n:05d}", b""), range(10_000)))
    took = in_turn(clients, 10, lambda client, _: client.list_after("many", "09899"))
    assert {client.list_after("many", "09899") for client in clients} == {100}
    row = [f"{percentile(each, 50):.1f} ms" for each in took]
    table.add_row("the last 100 of 10,000 keys, p50", *row)
    took = in_turn(clients, 3, lambda client, _: client.list_after("many", ""))
    table.add_row("all 10,000 keys", *[f"{percentile(each, 50):.0f} ms" for each in took])

    races = [race(client, options.races) for client in clients]
    label = f"race of {CONTENDERS} threads, {options.races} rounds: not one winner"
    table.add_row(label, *[f"{bad}" for bad, _ in races])
    table.add_row("a round of it, p50", *[f"{percentile(each, 50):.1f} ms" for _, each in races])
    ends = [lose_answers(kind, server) for kind in KINDS]
    for end in ("created", '"exists", of its own object', "error", "sent again"):
        table.add_row(f"60 puts, 30 % of answers lost: {end}", *[f"{each[end]}" for each in ends])
    imports = [f"{import_ms(module):.0f} ms" for module in ("s3fs", "obstore")]
    table.add_row("import, of a new process", *imports, "")
    return table


def _create(data: bytes, client: Client, key: str) -> bool:
    return client.create(key, data)


def in_turn(
    clients: list[Client], times: int, call: Callable[[Client, str], object]
) -> list[list[float]]:
    """Return the milliseconds of each call, by client, after three warm-ups."""
    took: list[list[float]] = [[] for _ in clients]
    for number in track(range(-3, times), "measuring", transient=True):
        for client, each in zip(clients, took, strict=True):
            start = time.perf_counter()
            call(client, f"{client.name}/{uuid.uuid4().hex}")
            if number >= 0:
                each.append((time.perf_counter() - start) * 1e3)
    return took


def race(client: Client, rounds: int) -> tuple[int, list[float]]:
    """Return the rounds without exactly one winner, and the milliseconds of each round."""
    bad, took = 0, []
    with ThreadPoolExecutor(CONTENDERS) as pool:
        for _ in range(rounds):
            key = f"race/{uuid.uuid4().hex}"
            contents = [f"{number}".encode() * 500 for number in range(CONTENDERS)]
            start = time.perf_counter()
            won = list(pool.map(client.create, [key] * CONTENDERS, contents))
            took.append((time.perf_counter() - start) * 1e3)
            bad += sum(won) != 1
    return bad, took


def lose_answers(kind: type[Client], server: S3Server) -> Counter[str]:
    """Return the outcomes of 60 puts, of which three in ten lose their response."""
    ends: Counter[str] = Counter()
    with FaultyProxy(server.endpoint_url) as proxy:
        numbers = count()

        def rule(request: Request) -> Fault:
            is_lost = request.method == "PUT" and next(numbers) % 10 in (1, 4, 7)
            return "lose answer" if is_lost else "pass"

        proxy.rule = rule
        client = kind(server, server.new_bucket(), proxy.url)
        for number in range(60):
            before = len(proxy.requests)
            try:
                is_created = client.create(f"{number}", b"x")
            except (OSError, StorageError, obstore.exceptions.BaseError):
                ends["error"] += 1
            else:
                ends["created" if is_created else '"exists", of its own object'] += 1
            sent = sum(request.method == "PUT" for request in proxy.requests[before:])
            ends["sent again"] += sent > 1
    return ends


def import_ms(module: str) -> float:
    """Return the milliseconds to import a module in a new process, without Python's start."""

    def took(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return (min(took(f"import {module}") for _ in range(3)) - took("pass")) * 1e3


# --- the partition log on the store --------------------------------------------------------------


def log_figures(server: S3Server, options: argparse.Namespace) -> Iterator[Figure]:
    """Yield appends through a `LocalLog`, and the race of processes."""
    store = open_store(server.new_bucket(), server.storage_options)
    small = records(SMALL_BATCH)
    for label, batch, times in (
        ("2 KB", small, options.puts),
        ("8 MB", records(LARGE // 108), 30),
    ):
        log = open_log(open_store(server.new_bucket(), server.storage_options))
        took = [timed(partial(log.append, batch)) * 1e3 for _ in range(times + 3)]
        for percent in (50, 99):
            yield Figure(f"append of {label}, p{percent}", percentile(took[3:], percent), "ms")
    for label, size in (("2 KB", 0), ("staged in parts", 1_000_000)):
        racer: Store = store
        if size:
            racer = ObjectStore(store._location, multipart_bytes=1)  # type: ignore[attr-defined]
        result = create_race(racer, processes=8, rounds=options.rounds, staged_bytes=size)
        wrong = result.two_winners + result.no_winner + result.wrong_bytes + result.unknown
        name = f"{result.rounds} rounds x 8 processes, {label}: not one winner with its bytes"
        yield Figure(name, wrong, at_most=0)
    for label, multipart_bytes in (("one PUT", 1 << 40), ("in parts", 1)):
        large = ObjectStore(store._location, multipart_bytes=multipart_bytes)  # type: ignore[attr-defined]
        with large.stage("huge") as staged:
            staged.sink.write(pa.py_buffer(os.urandom(HUGE)))
            staged.seal()
            for number in ("first", "second"):
                put = partial(large.put_if_absent, f"huge/{label} {number}", staged)
                yield Figure(f"put of 256 MB, {label}, its {number} name", timed(put) * 1e3, "ms")


def measure(options: argparse.Namespace) -> Report:
    """Print the table of the libraries, and measure the log."""
    with run_s3_server() as server:
        print_whole(compare(server, options))
        return Report("object_stores", [*log_figures(server, options)], {"server": server.name})


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("object_stores", __doc__)
    options.add_argument("--puts", type=int, default=300, help="small puts, of each (300)")
    options.add_argument("--races", type=int, default=100, help="rounds among threads (100)")
    options.add_argument("--rounds", type=int, default=200, help="rounds among processes (200)")
    run(options, measure)


if __name__ == "__main__":
    main()
