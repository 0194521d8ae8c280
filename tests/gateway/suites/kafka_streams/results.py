"""The results of ``StreamsApplication``, computed again from its inputs.

Each function takes the committed records of the topics and returns what is wrong, as lines of text.
The records of a key are in the order of their partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Keys and values."""

_SHOWN = 10


def check_word_count(
    lines: Iterable[str], output: Pairs, *, exactly_once: bool = True
) -> list[str]:
    """The counts of each word are 1, 2, 3 and so on to the number of its uses.

    Args:
        lines: the values of the input topic: words, with one space between two.
        output: the words with their counts.
        exactly_once: if not, instances may have been killed: a count may be too high, or repeated,
            but the last one of a word is not too low.
    """
    uses = Counter(word for line in lines for word in line.split(" "))
    counts = _by_key(output)
    wrong = [f"{word!r} is not in the input" for word in counts.keys() - uses.keys()]
    for word, use in uses.items():
        found = [int(count) for count in counts[word]]
        if not exactly_once:
            if not found or found[-1] < use:
                wrong.append(f"{word!r} was used {use} times, and its last count is {found[-1:]}")
        elif found != [*range(1, use + 1)]:
            at = next((n for n, count in enumerate(found) if count != n + 1), len(found))
            wrong.append(
                f"{word!r} was used {use} times; it has {len(found)} counts, and number {at} is in "
                f"{found[max(0, at - 2) : at + 3]}"
            )
    return wrong[:_SHOWN]


def check_table_join(left: Pairs, right: Pairs, output: Pairs) -> list[str]:
    """Each change of a table is in one result, in order: no change is lost, none is there twice.

    Args:
        left, right: the tables' changes; the values of a key differ from each other.
        output: the results: left value + right value.
    """
    wrong = []
    lefts, rights, results = _by_key(left), _by_key(right), _by_key(output)
    both = lefts.keys() & rights.keys()
    wrong += [f"{key!r} is not in both tables" for key in results.keys() - both]
    for key in both:
        places = [
            (lefts[key].index(one), rights[key].index(other))
            for one, _, other in (each.partition("+") for each in results[key])
        ]
        steps = [(after[0] - at[0], after[1] - at[1]) for at, after in pairwise(places)]
        last = (len(lefts[key]) - 1, len(rights[key]) - 1)
        if not places or 0 not in places[0] or places[-1] != last:
            wrong.append(
                f"{key!r} begins with {results[key][:1]}, and ends with {results[key][-1:]}"
            )
        elif not set(steps) <= {(0, 1), (1, 0)}:
            at = next(n for n, step in enumerate(steps) if step not in {(0, 1), (1, 0)})
            wrong.append(f"{key!r} goes from {results[key][at]} to {results[key][at + 1]}")
    return wrong[:_SHOWN]


def check_stream_join(stream: Pairs, table: Pairs, output: Pairs) -> list[str]:
    """Each record of the stream is joined once, to the last value of its key in the table.

    Args:
        stream: the records; their values are "key item", and no two are equal.
        table: the table, which was complete before the stream began.
        output: the results: item + value of the table.
    """
    values = dict(table)
    keyed = (value.split(" ") for _, value in stream)
    expected = Counter((key, f"{item}+{values[key]}") for key, item in keyed)
    return _differences(expected, Counter(output))


def check_windows(windows: Mapping[str, int], output: Pairs) -> list[str]:
    """Each window that has closed has one result, with its count.

    Args:
        windows: the counts of the windows, by their names in the output.
        output: the windows with their counts.
    """
    return _differences(
        Counter((name, str(count)) for name, count in windows.items()), Counter(output)
    )


def tumbling_windows(records: Iterable[tuple[str, int]], size_ms: int = 10_000) -> dict[str, int]:
    """Return the counts of windows by "key@start".

    Args:
        records: keys and timestamps, in ms.
        size_ms: the length of the windows.
    """
    starts = ((key, at_ms - at_ms % size_ms) for key, at_ms in records)
    return dict(Counter(f"{key}@{start}" for key, start in starts))


def session_windows(records: Iterable[tuple[str, int]], gap_ms: int = 5_000) -> dict[str, int]:
    """Return the counts of sessions by "key@start-end": a longer pause than the gap ends one.

    Args:
        records: keys and timestamps, in ms.
        gap_ms: the maximum pause in a session.
    """
    times = defaultdict(list)
    for key, at_ms in records:
        times[key].append(at_ms)
    found = {}
    for key, those in times.items():
        session: list[int] = []
        for at_ms in sorted(those):
            if session and at_ms - session[-1] > gap_ms:
                found[f"{key}@{session[0]}-{session[-1]}"] = len(session)
                session = []
            session.append(at_ms)
        found[f"{key}@{session[0]}-{session[-1]}"] = len(session)
    return found


def _by_key(pairs: Pairs) -> defaultdict[str, list[str]]:
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def _differences(expected: Counter[tuple[str, str]], found: Counter[tuple[str, str]]) -> list[str]:
    lost = [f"{pair} is missing" for pair in (expected - found).elements()]
    more = [f"{pair} is there too often" for pair in (found - expected).elements()]
    return [*lost[:_SHOWN], *more[:_SHOWN]]
