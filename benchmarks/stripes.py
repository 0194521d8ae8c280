"""Counts what stripes (ADR 29) would cost beside one object for each partition and append.

    python -m benchmarks.stripes

Contention is counted in the deterministic simulator, with the prototype of
``tests.simulation.stripes``: a put takes 40 ms on average and a read 20 ms, and each
writer has an object ready each second. Dollars a day follow from the counts, by list prices that
are inputs (``--prices``, a JSON file as that of ``benchmarks.requests``). Bytes come on top.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import quantiles

from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.request_prices import PRICES
from benchmarks.whole_table import print_whole
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.patches import patched
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.stripes import stripe
from tests.simulation.stripes.stripe import StripeWriter, stripe_directory
from tests.simulation.stripes.stripe_state import Entry
from tests.simulation.stripes.true_stripes import TrueStripes

_READ_MS = 20.0
_LINGER_MS = 1000.0
_FREE_DELAY_MS = 60_000
_SECONDS_A_DAY = 86_400
_HOME_EVERY_S = 3600
WRITERS = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True, slots=True)
class Contention:
    """The throughput, requests and latency of the writers of one stripe.

    Attributes:
        writers: the number of writers; each has an object ready each second.
        appends: the number of objects per second that were acknowledged.
        puts: the number of puts for each of these objects.
        reads: the number of reads for each of these objects.
        listings: the number of listings for each of these objects.
        p50_ms: the median time from ready to acknowledged.
        p99_ms: the 99th percentile of this time.
    """

    writers: int
    appends: float
    puts: float
    reads: float
    listings: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Load:
    """A load that is priced.

    Attributes:
        partitions: the number of partitions, all of which get records each second.
        writers: the number of writers, each of which writes to all partitions.
        stripes: the number of stripes.
    """

    partitions: int
    writers: int
    stripes: int


LOADS = (
    Load(1_000, writers=1, stripes=1),
    Load(1_000, writers=8, stripes=4),
    Load(100_000, writers=8, stripes=16),
)


class CountingStore(SimulatedStore):
    """A simulated store that counts requests.

    Attributes:
        requests: the number of requests of each kind.
    """

    def __init__(
        self, disk: SimulatedDisk, scheduler: Scheduler, truth: TrueStripes, faults: Profile
    ) -> None:
        """Return a store without requests."""
        super().__init__(disk, scheduler, truth, faults)
        self.requests = dict.fromkeys(("put_if_absent", "open", "list"), 0)

    def _note(self, what: str, path: str, outcome: str) -> None:
        self.requests[what] += 1


def contend(writers: int, seconds: int, seed: int = 0) -> Contention:
    """Let writers append to one stripe, and count their requests."""
    scheduler = Scheduler(seed)
    clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(clock, "contention")
    disk.delete_directory(stripe_directory(0))
    faults = replace(draw_profile(Random(0)).without_faults(), latency_ms=_READ_MS)
    store = CountingStore(disk, scheduler, TrueStripes(disk), faults)
    took_ms: list[float] = []

    def write(producer_id: int) -> None:
        writer = StripeWriter(store, 0, clock)
        ready_ms = scheduler.random.uniform(0, _LINGER_MS)
        sequence = 0
        while ready_ms < seconds * 1000:
            scheduler.pass_time(max(0.0, ready_ms - scheduler.now_ms))
            entry = Entry(producer_id, producer_id, 0, sequence, (f"{producer_id}:{sequence}",))
            writer.append([entry])
            sequence += 1
            took_ms.append(scheduler.now_ms - ready_ms)
            # Records that arrive meanwhile are part of the next object.
            ready_ms = max(ready_ms + _LINGER_MS, scheduler.now_ms)

    for number in range(writers):
        scheduler.spawn(f"writer {number}", partial(write, number), is_mortal=False)
    with patched((stripe, "FREE_DELAY_MS", _FREE_DELAY_MS)):
        scheduler.run(lambda: False)
    scheduler.close()
    count = len(took_ms)
    cuts = quantiles(took_ms, n=100)
    puts, reads, listings = (number / count for number in store.requests.values())
    return Contention(writers, count / seconds, puts, reads, listings, cuts[49], cuts[98])


def dollars_a_day(
    load: Load, contention: Contention, price: dict[str, float]
) -> Iterator[tuple[str, float, float]]:
    """Yield each kind of work, and its dollars per day with partition logs and with stripes."""

    def cost(writes: float = 0.0, reads: float = 0.0) -> float:
        return _SECONDS_A_DAY * (writes * price["write"] + reads * price["read"]) / 1000

    objects = load.writers * load.stripes
    yield (
        "appends",
        cost(writes=load.partitions * load.writers),
        cost(
            writes=objects * (contention.puts + contention.listings),
            reads=objects * contention.reads,
        ),
    )
    # Each partition is read by one member. A stripe is read by one if its partitions go together.
    yield "reads", cost(reads=load.partitions * load.writers), cost(reads=objects)
    # The tail of 128 segments is merged into one, which reads each of them once.
    merged = load.partitions * load.writers
    yield (
        "merges, taking home",
        cost(writes=merged / 128, reads=merged),
        cost(writes=(load.partitions + load.stripes) / _HOME_EVERY_S, reads=objects),
    )


def measure(options: argparse.Namespace) -> Report:
    """Count contention, and price the loads."""
    prices = PRICES if options.prices is None else json.loads(options.prices.read_text())
    counted = {
        writers: contend(writers, options.seconds)
        for writers in track(WRITERS, "writers", transient=True)
    }
    print_whole(_contention_table(counted.values()))
    figures = []
    for load in LOADS:
        print_whole(_dollars_table(load, counted[load.writers], prices))
        for store, price in prices.items():
            costs = list(dollars_a_day(load, counted[load.writers], price))
            name = f"{load.partitions:,} partitions, {load.writers} writers, {store}"
            for what, column in (("partition logs", 1), ("stripes", 2)):
                total = sum(float(each[column]) for each in costs)
                figures.append(Figure(f"{name}: {what}", round(total, 2), "dollars a day"))
    notes = {"simulated": f"{options.seconds} s, seed 0", "home": f"every {_HOME_EVERY_S} s"}
    return Report("stripes", figures, notes)


def _contention_table(counted: Iterable[Contention]) -> Table:
    table = Table(title="Writers of one stripe, an object a second each", box=SIMPLE_HEAD)
    for column in ("writers", "objects/s", "puts", "reads", "listings", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in counted:
        rates = (each.appends, each.puts, each.reads, each.listings)
        times = f"{each.p50_ms:.0f}", f"{each.p99_ms:.0f}"
        table.add_row(str(each.writers), *(f"{rate:.2f}" for rate in rates), *times)
    return table


def _dollars_table(
    load: Load, contention: Contention, prices: dict[str, dict[str, float]]
) -> Table:
    title = (
        f"{load.partitions:,} partitions, {load.writers} writers to all, {load.stripes} stripes: "
        f"dollars a day"
    )
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("")
    for store in prices:
        table.add_column(store, justify="right")
        table.add_column("stripes", justify="right")
    rows = [list(dollars_a_day(load, contention, price)) for price in prices.values()]
    for each in zip(*rows, strict=True):
        cells = [f"{cost:,.2f}" for _, now, striped in each for cost in (now, striped)]
        table.add_row(each[0][0], *cells)
    return table


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("stripes", __doc__)
    options.add_argument("--seconds", type=int, default=30, help="simulated seconds (30)")
    options.add_argument("--prices", type=Path, help="JSON: store → dollars for 1,000 requests")
    run(options, measure)


if __name__ == "__main__":
    main()
