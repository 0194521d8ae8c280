"""docs/recipes.md: every recipe runs, and keeps its promise when it crashes at any line."""

import asyncio
import inspect
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_log import Admin, AIOConsumer, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.dead_letter import DeadLetter
from tests.consumer.support import append, numbered
from tests.docs.blocks import blocks
from tests.producer.support import committed

PAGE = Path(__file__).parents[2] / "docs/recipes.md"
ORDERS = [TopicPartition("orders", number) for number in range(2)]
NO_WAIT = {"timeout_ms": 2}
WITH_GROUPS = {
    "at_most_once",
    "at_least_once",
    "from_topic_to_topic",
    "from_topic_to_topic_with_asyncio",
    "without_repeats",
    "with_dead_letters",
}


@pytest.fixture(autouse=True)
def polls_that_are_empty_only_at_the_end(monkeypatch):
    """Repeats an empty poll until the lag is 0, so that recipes may use short timeouts."""

    def patched(poll, is_empty):
        def patient(consumer, timeout_ms=0, max_records=None):
            while True:
                found = poll(consumer, timeout_ms, max_records)
                if not is_empty(found) or not any(consumer.lag().values()):
                    return found

        return patient

    poll_aio = AIOConsumer.poll

    async def patient_aio(consumer, timeout_ms=0):
        while True:
            found = await poll_aio(consumer, timeout_ms)
            if found or not any((await consumer.lag()).values()):
                return found

    monkeypatch.setattr(AIOConsumer, "poll", patient_aio)
    monkeypatch.setattr(Consumer, "poll", patched(Consumer.poll, lambda found: not found))
    monkeypatch.setattr(
        Consumer, "poll_table", patched(Consumer.poll_table, lambda found: not found.num_rows)
    )


class Crash(BaseException):
    """Simulates the end of the process."""


def load_recipes():
    """Run the page's code, with its line numbers on the page."""
    code = ""
    for each in blocks("docs/recipes.md", "python"):
        code += "\n" * (each.line - 1 - code.count("\n")) + each.code
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


RECIPES = load_recipes()


def run(recipe, *arguments, crash_at=None, **options):
    """Run a recipe, and crash before the n-th line that it executes.

    Returns:
        The numbers of the lines in the order in which they were executed.
    """
    lines = []

    def trace(frame, event, argument):
        if frame.f_code.co_filename != str(PAGE):
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) - 1 == crash_at:
                raise Crash
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    with suppress(Crash):
        try:
            running = RECIPES[recipe](*arguments, **options)
            if inspect.iscoroutine(running):
                asyncio.run(running)
        finally:
            sys.settrace(before)
    return lines


def expire_all(root, group):
    """Expire the crashed member, as the next one does after ``session.timeout.ms``."""
    coordinator = GroupCoordinator(Cluster(root), group)
    coordinator.remove(list(coordinator.describe().members))


def crash_at_every_line(recipe, prepare, check, **options):
    """Run to the end; then crash at each line once and run to the end again; check each time.

    If a line is executed several times, its number decides before which of them to crash.
    """
    arguments, state = prepare()
    lines = run(recipe, *arguments, **options)
    check(state, crashed=False)
    for number in sorted(set(lines)):
        times = [at for at, line in enumerate(lines) if line == number]
        arguments, state = prepare()
        run(recipe, *arguments, crash_at=times[number % len(times)], **options)
        if recipe in WITH_GROUPS:
            expire_all(arguments[0], recipe.removesuffix("_with_asyncio").replace("_", "-"))
        run(recipe, *arguments, **options)
        check(state, crashed=True)


@pytest.fixture
def new_root(tmp_path):
    numbers = iter(range(10_000))

    def new_root():
        path = str(tmp_path / f"root{next(numbers)}")
        unsynced = {"flush.on.append": "false"}
        Admin(path).create_topics(
            [
                NewTopic("orders", 2, topic_configs=unsynced),
                NewTopic("orders.dead", topic_configs=unsynced),
                NewTopic("accounts", 2, topic_configs=unsynced),
                NewTopic("invoices", 2, topic_configs=unsynced),
            ]
        )
        return path

    return new_root


class Handled(list[bytes]):
    def __call__(self, record):
        self.append(record.value)


def test_at_most_once(new_root):
    def prepare():
        root, handled = new_root(), Handled()
        append(root, numbered(0, 2), to=ORDERS[0])
        return (root, handled), handled

    def check(handled, crashed):
        assert max(Counter(handled).values(), default=0) <= 1
        if not crashed:
            assert handled == numbered(0, 2)

    crash_at_every_line("at_most_once", prepare, check, **NO_WAIT)


def test_at_least_once(new_root):
    def prepare():
        root, handled = new_root(), Handled()
        append(root, numbered(0, 2), to=ORDERS[0])
        return (root, handled), handled

    def check(handled, crashed):
        assert set(handled) == set(numbered(0, 2))
        if not crashed:
            assert handled == numbered(0, 2)

    crash_at_every_line("at_least_once", prepare, check, **NO_WAIT)


class TestExactlyOnce:
    def test_at_every_line(self, new_root):
        def prepare():
            root = new_root()
            append(root, numbered(0, 3), to=ORDERS[0])
            append(root, numbered(10, 13), to=ORDERS[1])
            return (root, f"{root}-table"), f"{root}-table"

        def check(table, crashed):
            rows = DeltaTable(table).to_pyarrow_table()
            assert sorted(rows.column("value").to_pylist()) == sorted(
                [*numbered(0, 3), *numbered(10, 13)]
            )

        crash_at_every_line("exactly_once", prepare, check, **NO_WAIT)

    def test_goes_on_with_what_comes_later(self, new_root):
        root = new_root()
        for start in range(0, 6, 2):
            append(root, numbered(start, start + 2), to=ORDERS[0])
            run("exactly_once", root, f"{root}-table", **NO_WAIT)
        rows = DeltaTable(f"{root}-table").to_pyarrow_table()
        assert sorted(rows.column("value").to_pylist()) == numbered(0, 6)

    def test_of_two_copies_at_once_one_fails(self, new_root):
        root = new_root()
        append(root, numbered(0, 2), to=ORDERS[0])
        run("exactly_once", root, f"{root}-table", **NO_WAIT)
        looked = DeltaTable(f"{root}-table")
        append(root, numbered(2, 4), to=ORDERS[0])
        run("exactly_once", root, f"{root}-table", **NO_WAIT)
        again = CommitProperties(app_transactions=[Transaction("orders/orders-0", 4)])
        with pytest.raises(Exception, match=r"(?i)transaction|conflict"):
            write_deltalake(
                looked, looked.to_pyarrow_table(), mode="append", commit_properties=again
            )
        assert DeltaTable(f"{root}-table").to_pyarrow_table().num_rows == 4

    def test_killed_while_it_runs(self, new_root):
        root = new_root()
        table = f"{root}-table"
        for start in range(0, 40, 2):
            append(root, numbered(start, start + 2), to=ORDERS[start // 2 % 2])
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", _SLOW_COPY, root, table],
                cwd=PAGE.parents[1],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
            )
            assert process.stdout is not None
            for _ in range(2):
                assert process.stdout.readline()  # a commit is done or in progress
            process.send_signal(signal.SIGKILL)
            process.wait()
        run("exactly_once", root, table, **NO_WAIT)
        rows = DeltaTable(table).to_pyarrow_table()
        assert sorted(map(int, rows.column("value").to_pylist())) == list(range(40))


_SLOW_COPY = """
import sys
from tests.consumer import test_recipes as page
poll_table = page.Consumer.poll_table
def few(consumer, timeout_ms):
    print("polled", flush=True)
    return poll_table(consumer, timeout_ms, max_records=3)
page.Consumer.poll_table = few
page.RECIPES["exactly_once"](*sys.argv[1:])
"""


@pytest.mark.parametrize("recipe", ["transfer", "transfer_with_asyncio"])
def test_several_records_all_or_none(new_root, recipe):
    transfers = [(b"ann", b"bob", 5), (b"bob", b"eve", 3)]

    def prepare():
        root = new_root()
        return (root, transfers), root

    def check(root, crashed):
        amounts = [int(each) for found in committed(root, "accounts").values() for each in found]
        assert sum(amounts) == 0
        given = sorted(amount for *_, each in transfers for amount in (each, -each))
        if crashed:  # the crashed run may have made the first of them
            assert set(amounts) == set(given)
            assert len(amounts) in (4, 6, 8)
        else:
            assert sorted(amounts) == given

    crash_at_every_line(recipe, prepare, check)


def results(root):
    return sorted(each for found in committed(root, "invoices").values() for each in found)


@pytest.mark.parametrize(
    "recipe",
    [
        "from_topic_to_topic",
        pytest.param("from_topic_to_topic_with_asyncio", marks=pytest.mark.long),
    ],
)
class TestFromTopicToTopic:
    def test_at_every_line(self, new_root, recipe):
        def prepare():
            root = new_root()
            append(root, numbered(0, 3), to=ORDERS[0])
            append(root, numbered(10, 13), to=ORDERS[1])
            return (root, bytes.upper, "tx"), root

        def check(root, crashed):
            assert results(root) == sorted([*numbered(0, 3), *numbered(10, 13)])

        crash_at_every_line(recipe, prepare, check, **NO_WAIT)

    def test_goes_on_after_it_has_lost_its_partitions(self, new_root, recipe):
        root = new_root()
        append(root, numbered(0, 3), to=ORDERS[0])
        changed: list[bytes] = []

        def change(value):
            if not changed:
                expire_all(root, "from-topic-to-topic")
            changed.append(value)
            return value

        run(recipe, root, change, "tx", timeout_ms=500)
        assert len(changed) > 3
        assert results(root) == numbered(0, 3)


def test_each_key_once_within_a_window(new_root):
    minutes = [(b"a", 0), (b"b", 1), (b"a", 5), (b"a", 12), (b"b", 30), (b"b", 31), (b"c", 32)]
    firsts = [b"a@0", b"b@1", b"b@30", b"c@32"]

    def prepare():
        root, handled = new_root(), Handled()
        for key, minute in minutes:
            append(
                root,
                [key + b"@%d" % minute],
                to=ORDERS[0],
                keys=[key],
                times_us=[1_700_000_000_000_000 + minute * 60_000_000],
            )
        return (root, handled, 600_000), handled

    def check(handled, crashed):
        assert set(handled) == set(firsts)
        if not crashed:
            assert handled == firsts

    crash_at_every_line("without_repeats", prepare, check, **NO_WAIT)


def test_a_window_is_read_again_by_who_starts(new_root):
    root, handled = new_root(), Handled()
    start_us = 1_700_000_000_000_000
    for minute, value in ((0, b"first"), (5, b"repeat"), (20, b"later")):
        times_us = [start_us + minute * 60_000_000]
        append(root, [value], to=ORDERS[1], keys=[b"k"], times_us=times_us)
        run("without_repeats", root, handled, 600_000, **NO_WAIT)
    assert handled == [b"first", b"later"]


def test_dead_letters(new_root):
    def prepare():
        root, handled = new_root(), Handled()
        append(root, [b'"a"', b"{broken", b'"bad"', b'"b"'], to=ORDERS[0], keys=[b"k"] * 4)

        def handle(record):
            if record.value == "bad":
                raise ValueError("it is bad")
            handled(record)

        return (root, handle), (root, handled)

    def check(state, crashed):
        root, handled = state
        assert set(handled) == {"a", "b"}
        with Consumer("orders.dead", root=root, auto_offset_reset="earliest") as consumer:
            letters = [record for found in consumer.poll(10).values() for record in found]
        told = {
            (record.value, letter.offset) for record in letters if (letter := DeadLetter.of(record))
        }
        assert told == {(b"{broken", 1), (b'"bad"', 2)}
        if not crashed:
            assert len(letters) == 2
            assert handled == ["a", "b"]

    crash_at_every_line("with_dead_letters", prepare, check, **NO_WAIT)


@pytest.fixture
def new_database():
    """Opens databases in memory, and closes them in the end: Python 3.13 warns of open ones."""
    with ExitStack() as opened:

        def new(**settings):
            return opened.enter_context(closing(sqlite3.connect(":memory:", **settings)))

        yield new


class TestOutboxAndInbox:
    def test_a_relay_that_crashes_loses_nothing_and_the_inbox_takes_each_once(
        self, new_root, new_database
    ):
        def prepare():
            root = new_root()
            ours = new_database(isolation_level=None)
            for order in ("tea", "milk"):
                RECIPES["place_order"](ours, order)
            return (root, ours), (root, ours)

        def check(state, crashed):
            root, ours = state
            theirs = new_database()
            RECIPES["receive_into_inbox"](root, theirs, **NO_WAIT)
            assert _shipped(theirs) == ["milk", "tea"]
            assert ours.execute("SELECT count(*) FROM outbox").fetchone() == (0,)

        crash_at_every_line("relay_outbox", prepare, check)

    def test_a_receiver_that_crashes_has_each_effect_once(self, new_root, new_database):
        def prepare():
            root = new_root()
            ours = new_database(isolation_level=None)
            theirs = new_database()
            for order in ("tea", "milk"):
                RECIPES["place_order"](ours, order)
            run("relay_outbox", root, ours)
            return (root, theirs), theirs

        def check(theirs, crashed):
            assert _shipped(theirs) == ["milk", "tea"]

        crash_at_every_line("receive_into_inbox", prepare, check, **NO_WAIT)

    def test_an_order_that_is_not_placed_is_not_sent(self, new_database):
        ours = new_database(isolation_level=None)
        RECIPES["place_order"](ours, "tea")
        with pytest.raises(sqlite3.Error):
            RECIPES["place_order"](ours, object())
        assert ours.execute("SELECT count(*) FROM orders").fetchone() == (1,)
        assert ours.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def _shipped(database):
    return sorted(body for (body,) in database.execute("SELECT body FROM shipments"))


def test_every_recipe_is_run_here():
    defined = set(re.findall(r"^def (\w+)", PAGE.read_text("utf-8"), re.MULTILINE))
    here = Path(__file__).read_text("utf-8")
    assert {name for name in defined if f'"{name}"' not in here} == set()
