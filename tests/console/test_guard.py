"""What holds for every request: hosts, other sites, headers, and that no value is HTML."""

import re
from html.parser import HTMLParser

import pytest

from spark_log.console.views import VIEWS
from tests.console.conftest import EVIL, GROUP, TOPIC

PAGES = {
    "/": {},
    "/topics": {"q": "<script>"},
    "/topic": {"topic": TOPIC},
    "/records": {"topic": TOPIC},
    "/record": {"topic": TOPIC, "partition": 0, "offset": 1},
    "/search": {"topic": TOPIC, "header": EVIL},
    "/groups": {"q": "<script>"},
    "/group": {"group": GROUP},
    "/group/history": {"group": GROUP},
    "/transactions": {"q": "<script>", "topic": TOPIC},
    "/brokers": {},
    "/gateways": {},
    "/configs": {"type": "client", "name": EVIL},
}
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Tags(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_every_page_has_a_hostile_example():
    assert {view.path for view in VIEWS} == PAGES.keys()


@pytest.mark.parametrize("path", PAGES)
def test_no_value_is_html(client, path):
    answer = client.get(path, params=PAGES[path])
    assert answer.status_code == 200, answer.text
    tags = Tags(answer.text).found
    assert [each for each in tags if each[0] == "img"] == [
        ("img", {"src": "/static/favicon.svg", "alt": ""})
    ]
    scripts = [attributes for tag, attributes in tags if tag == "script"]
    assert all(each["src"].startswith("/static/") for each in scripts)
    names = {name for _, attributes in tags for name in attributes}
    assert not {name for name in names if name.startswith("on")} | (names & {"style"})
    assert not [tag for tag, _ in tags if tag == "style"]
    assert not UNSAFE.search(re.sub(r'<input type="hidden"[^>]*>', "", answer.text))
    assert "alert(1)" in answer.text or path in ("/", "/brokers")
    assert "{{7*7}}" in answer.text or "alert(1)" not in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_json_is_ascii_and_says_what_it_is(client, path):
    answer = client.get(f"/api{path}".rstrip("/"), params=PAGES[path])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.isascii()


@pytest.mark.parametrize("path", ["/", "/api", "/nope", "/static/console.js", "/topic?topic=nope"])
def test_every_answer_has_the_headers_of_a_locked_page(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:80", "[::1]:8470", "LOCALHOST"])
def test_the_machine_itself_is_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8470", "", "::1"])
def test_a_name_that_was_bound_to_this_address_is_refused(client, host):
    answer = client.get("/api", headers={"host": host})
    assert answer.status_code == 403
    assert "--allowed-host" in answer.text
    assert "content-security-policy" in answer.headers


def test_a_host_that_was_allowed_is_answered(root, clients):
    client = clients(root, hosts=("log.example",))
    assert client.get("/", headers={"host": "log.example:443"}).status_code == 200
    assert client.get("/", headers={"host": "other.example"}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_starts_no_search_but_may_have_a_link(client, site):
    fetch = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert client.get("/api/export?topic=flights", headers=fetch).status_code == 403
    frame = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    assert client.get("/", headers=frame).status_code == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.post("/sign-in", headers=link).status_code == 403


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/topic?topic=nope", 404, "there is no topic 'nope'"),
        ("/topic", 400, "topic: Field required"),
        ("/topics?limit=x", 400, "limit: Input should be a valid integer"),
        ("/topics?unknown=1", 400, "unknown: Extra inputs are not permitted"),
        ("/group?group=nope", 404, "nope"),
        ("/records?topic=flights&time=noon", 400, "ISO 8601"),
        ("/records?topic=flights&partition=0&offset=99", 400, "the log holds 0 to 29"),
        ("/records?topic=flights&offset=1", 400, "give the partition"),
        ("/records?topic=flights&partition=0&offset=1&before=2", 400, "exclude each other"),
        ("/nope", 404, "Not Found"),
    ],
)
def test_an_error_is_one_sentence(client, path, status, sentence):
    as_json = client.get(f"/api{path}")
    assert as_json.status_code == status
    assert sentence in as_json.json()["error"]
    assert "\n" not in as_json.json()["error"]
    page = client.get(path)
    assert page.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_no_path_reaches_the_file_system(client):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/nope", "/static/"):
        assert client.get(path).status_code == 404
