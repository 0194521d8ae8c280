"""The links of a page of the site, and the files that it loads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

_LOADS = {"script", "img", "iframe", "source", "video", "audio", "embed", "object", "link", "use"}
_NAMES_A_PAGE = {"canonical", "next", "prev", "alternate"}
"""Relations of <link> that load nothing."""

_CSS = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


@dataclass
class Html(HTMLParser):
    """The links of a page, in the order of the page.

    Attributes:
        ids: the targets for links inside of the page.
        links: targets of <a>.
        loads: URLs of the files that a browser loads with the page.
        images: attributes of each <img>.
    """

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    images: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids and URLs of a tag."""
        values = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := values.get(name))}
        self.loads += _CSS.findall(values.get("style") or "")
        if tag == "img":
            self.images.append(values)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        elif tag in _LOADS and not _NAMES_A_PAGE & set((values.get("rel") or "").split()):
            self.loads += [value for name in ("src", "href", "data") if (value := values.get(name))]
            self.loads += [
                each.split()[0] for each in (values.get("srcset") or "").split(",") if each
            ]


def parse(path: Path) -> Html:
    """Read a page."""
    page = Html()
    page.feed(path.read_text("utf-8"))
    return page


def loaded_by_css(path: Path) -> list[str]:
    """The URLs that a style sheet loads."""
    return _CSS.findall(path.read_text("utf-8"))


def leaves_the_site(link: str) -> bool:
    """Tell whether a link names a host, with a scheme or without."""
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def broken(site: Path, page: Path, link: str, ids: dict[Path, set[str]]) -> bool:
    """Tell whether a link inside of the site leads to no file, or to no place in it."""
    base = page.relative_to(site).as_posix()
    parts = urlsplit(urljoin(base, link))
    target = site / unquote(parts.path)
    if not target.is_file():
        return True
    return bool(parts.fragment) and unquote(parts.fragment) not in ids.get(target, set())
