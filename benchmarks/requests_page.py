"""The text of docs/internals/requests.md: the requests of each operation, and their cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.request_operations.operation import Operation
from benchmarks.request_prices import (
    MILLION,
    Counted,
    Prices,
    Use,
    of_a_million_records,
    of_a_partition,
    of_a_running_client,
)

_HEAD = """\
# Requests

The requests of each operation on an object store, counted. `python -m benchmarks.requests --page
docs/internals/requests.md` writes this page, with a real S3 server behind a proxy that delays each
request by {latency}. [Storage](../storage.md#what-requests-cost) has the rows that a user needs.

*Requests* are counted for one operation, or for one second where the name says so. *Rounds* are
requests that wait for each other: an operation takes at least as many times the latency of the
store. *At most* are the budgets; `tests/requests/test_request_budget.py` and
`tests/datasource/test_request_budget.py` check that they are kept. An operation that waits sends
requests until something happens, so that their number depends on time: the budget is that of this
benchmark, and if the page names a test, the test counts on a clock of its own.
"""

_COSTS = """\
## What they cost

In dollars, for requests alone: storage and traffic are extra. Puts and listings have one price,
reads another, and deletions are free. Prices for 1,000 requests are inputs (`--prices` takes
others from a JSON file):

{prices}
"""

_COLUMNS = (
    "operation",
    "requests, at most",
    "rounds, at most",
    "requests",
    "rounds",
    "kinds",
    "what the requests do",
)


def request_page(
    found: Mapping[str, Sequence[Counted]],
    prices: Prices,
    batch_records: Sequence[int],
    latency_ms: float,
) -> str:
    """Return the page.

    Args:
        found: the counted requests, by client.
        prices: the prices, by store.
        batch_records: the numbers of records in a batch, for the dollars of a million records.
        latency_ms: the latency of a request.
    """
    counted = [each for those in found.values() for each in those]
    parts = [_HEAD.format(latency=f"{latency_ms:g} ms")]
    for subject, those in found.items():
        parts.append(f"## {subject}\n\n{_counts(those)}")
    parts.append(f"## Where a budget is not what one would wish\n\n{_wishes(counted)}")
    parts.append(_COSTS.format(prices=_prices(prices)))
    for title, uses in (
        ("A million records", of_a_million_records(batch_records)),
        ("A partition, a month", of_a_partition()),
        ("A running client, a month", of_a_running_client(counted)),
        ("Each operation, a million times", _all(counted)),
    ):
        parts.append(f"### {title}\n\n{_dollars(uses, counted, prices)}")
    return "\n".join(parts)


def budgets(operation: Operation) -> str:
    """Return the beginning of an operation's row on the page: its name and its budgets."""
    most = f"{shown(operation.most)} | {shown(operation.most_rounds)}"
    return f"| {operation.name} | {most} |"


def shown(number: float) -> str:
    """Return a number with at most one digit after the decimal point."""
    return f"{number:.1f}".removesuffix(".0")


def _counts(found: Sequence[Counted]) -> str:
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for each in found:
        kinds = ", ".join(f"{shown(number)} {kind}" for kind, number in each.kinds.items())
        why = each.operation.why
        if each.operation.counted_by:
            why += f" Counted by `{each.operation.counted_by}`."
        lines.append(
            f"{budgets(each.operation)} {shown(each.requests)} | {shown(each.rounds)} | "
            f"{kinds} | {why} |"
        )
    return "\n".join([*lines, ""])


def _wishes(found: Sequence[Counted]) -> str:
    return "\n".join(
        [
            f"- **{each.operation.name}**: {each.operation.wish}"
            for each in found
            if each.operation.wish
        ]
        + [""]
    )


def _prices(prices: Prices) -> str:
    lines = ["| | puts and listings | reads |", "|---|---:|---:|"]
    for store, price in prices.items():
        lines.append(f"| {store} | {price['write']:g} | {price['read']:g} |")
    return "\n".join(lines)


def _all(found: Sequence[Counted]) -> Iterator[Use]:
    for each in found:
        if not each.operation.lasts_s:
            yield Use(each.operation.name, each.operation.name, MILLION)


def _dollars(uses: Iterable[Use], found: Sequence[Counted], prices: Prices) -> str:
    by_name = {each.operation.name: each for each in found}
    lines = [f"| | {' | '.join(prices)} |", f"|---|{'---:|' * len(prices)}"]
    for use in uses:
        if use.operation in by_name:
            each = by_name[use.operation]
            costs = (each.dollars(price, use.times) for price in prices.values())
            lines.append(f"| {use.what} | {' | '.join(map(_cost, costs))} |")
    return "\n".join([*lines, ""])


def _cost(dollars: float) -> str:
    if dollars >= 0.1 or not dollars:
        return f"{dollars:,.2f}"
    return f"{dollars:.6f}".rstrip("0")
