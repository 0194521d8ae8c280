"""The site is built without a warning; its links hold, and it loads nothing from another host."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

import spark_log
from spark_log.util.foreign_methods import ADVICE
from tests.docs.blocks import PROJECT
from tests.site.links import broken, leaves_the_site, loaded_by_css, parse

CHROMIUM = Path("/usr/bin/chromium")
WIDTH = 360
"""Of a phone, in pixels."""
PATIENCE_MS = 300_000
"""Far more than any page takes, on a machine that is busy."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pages(site):
    """Each page of the site, parsed. The page for what is not found lies at no place of its own."""
    found = [path for path in site.rglob("*.html") if path.name != "404.html"]
    return {path: parse(path) for path in found}


def test_every_page_of_the_documentation_is_in_the_site(site, pages):
    wanted = {path.relative_to(PROJECT / "docs") for path in PROJECT.glob("docs/**/*.md")}
    names = {
        (path.parent / "index" if path.stem == "README" else path).with_suffix(".html")
        for path in wanted
    }
    assert len(names) > 40
    assert names <= {path.relative_to(site) for path in pages}


def test_every_link_inside_of_the_site_leads_to_a_place_that_exists(site, pages):
    ids = {path: page.ids for path, page in pages.items()}
    inside = [
        (path, link)
        for path, page in pages.items()
        for link in page.links + page.loads
        if not leaves_the_site(link)
    ]
    assert len(inside) > 1000
    wrong = [(path.name, link) for path, link in inside if broken(site, path, link, ids)]
    assert wrong == []


@pytest.mark.parametrize("name", ["Producer", "Consumer", "AIOProducer", "Admin"])
def test_every_method_of_a_client_is_on_a_page(pages, name):
    ids = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "api"))
    client = getattr(spark_log, name)
    methods = [each for each in dir(client) if not each.startswith("_") and each not in ADVICE]
    assert len(methods) > 10
    assert [each for each in methods if f"spark_log.{name}.{each}" not in ids] == []


def test_every_public_name_is_on_a_page(pages):
    ids = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "api"))
    public = {each: getattr(spark_log, each) for each in spark_log.__all__}
    assert len(public) > 90
    assert [
        name
        for name, each in public.items()
        if not {f"spark_log.{name}", f"{each.__module__}.{name}"} & ids
    ] == []


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("spark.html", False),
        ("spark.html#transactions", False),
        ("#topics-and-partitions", False),
        ("spork.html", True),
        ("spark.html#no-such-place", True),
        ("adr/", True),
    ],
)
def test_a_broken_link_is_found(site, pages, link, is_broken):
    ids = {path: page.ids for path, page in pages.items()}
    assert broken(site, site / "concepts.html", link, ids) is is_broken


def test_no_file_names_another_host_to_load_from(site, pages):
    loads = [(path, each) for path, page in pages.items() for each in page.loads]
    loads += [(path, each) for path in site.rglob("*.css") for each in loaded_by_css(path)]
    assert len(loads) > 200
    assert [(path.name, each) for path, each in loads if leaves_the_site(each)] == []


def test_every_image_says_in_words_what_it_shows(pages):
    images = [(path.name, image) for path, page in pages.items() for image in page.images]
    assert images
    assert [(name, image) for name, image in images if not image.get("alt")] == []


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def url(site):
    """The URL of a server of the site."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(url):
    """A browser that knows no host but the site's."""
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium shows the pages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        yield context
        browser.close()


def test_a_phone_shows_every_page_without_an_error_or_another_host(site, pages, url, browser):
    asked, errors, wide = [], [], []
    page = browser.new_page()
    page.set_viewport_size({"width": WIDTH, "height": 800})
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in pages:
        answer = page.goto(f"{url}/{path.relative_to(site).as_posix()}")
        assert answer.ok
        if page.evaluate("document.documentElement.scrollWidth") > WIDTH:
            wide.append(path.name)
    page.close()
    assert len(asked) > len(pages)
    assert [each for each in asked if not each.startswith((f"{url}/", "data:", "blob:"))] == []
    assert errors == []
    assert wide == [], "these scroll sideways"


def test_the_search_finds_a_setting(url, browser):
    page = browser.new_page()
    page.goto(f"{url}/index.html#__search")
    page.get_by_role("textbox", name="Search").fill("file.delete.delay.ms")
    found = page.locator(".md-search-result__link").first
    found.wait_for()
    assert (
        "file.delete.delay.ms"
        in found.inner_text() + page.locator(".md-search-result__list").inner_text()
    )
    page.close()
