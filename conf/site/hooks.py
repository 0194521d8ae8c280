"""Adds to docs/ in the site: pages of the project's folder, and files that pages link to.

Links stay as they are in the repository, where they lead from file to file. A link that leaves
docs/ is rewritten for the site: to the page that a file became, or to a copy of the file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""Pages outside of docs/, and their place in the site."""

ALSO = {"README.md": "index.md", "docs/adr": "adr/README.md"}
"""Files that are not in the site, and the page that a link to them leads to."""

COPIES = "files/"
"""Folder of the files that pages link to, and that are no pages."""

SECTION_OF = {"security.md": "Operations"}
"""Pages that may not exist yet, and their section."""

_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_OPTION = re.compile(r"(?<!\S)--?[a-zA-Z][\w-]*")
_NAME_PART = re.compile(r"(\w[._/=])(?=\w)")
_WHOLE_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s#:]+)\)")
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages into the navigation that exist."""
    for uri, title in SECTION_OF.items():
        section = next(part[title] for part in config.nav or [] if title in part)
        if (Path(config.docs_dir) / uri).is_file() and uri not in str(section):
            section.append(uri)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, and the files to which pages link."""
    project = Path(config.config_file_path).parent
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(project / path)))
    linked = {
        target
        for page in files.documentation_pages()
        for _, path, _, _ in _LINK.findall(page.content_string)
        if (target := _target(page.src_uri, path)) and _uri(target).startswith(COPIES)
    }
    for path in sorted(linked):
        if (project / path).is_file():
            copy = File.generated(config, COPIES + path, abs_src_path=str(project / path))
            files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page that leave docs/, and all of a page from outside of docs/.

    A link to a folder becomes its text: the site has no page for it.
    """
    here = page.file.src_uri

    def rewritten(link: re.Match[str]) -> str:
        uri = _uri(_target(here, link[2]))
        if files.get_file_from_path(uri) is None:
            return link[0]
        relative = posixpath.relpath(uri, posixpath.dirname(here) or ".")
        return f"{link[1]}{relative}{link[3] or ''}{link[4]}"

    project = Path(config.config_file_path).parent

    def without_folder(link: re.Match[str]) -> str:
        target = _target(here, link[2])
        return link[1] if target not in ALSO and (project / target).is_dir() else link[0]

    return _LINK.sub(rewritten, _WHOLE_LINK.sub(without_folder, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let long names in tables be broken behind a dot, an underscore, a slash or a sign.

    Options of commands are not broken behind their hyphens. The two colons with which a docstring
    introduces code become one.
    """

    def breakable(code: re.Match[str]) -> str:
        text = _NAME_PART.sub(r"\1<wbr>", code[0])
        return _OPTION.sub(r'<span class="option">\g<0></span>', text)

    html = html.replace("::</p>", ":</p>")
    return _CELL.sub(lambda cell: _CODE.sub(breakable, cell[0]), html)


def _target(uri: str, link: str) -> str:
    """Path in the project of what a link on a page leads to."""
    origin = next((path for path, page in PAGES.items() if page == uri), f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _uri(path: str) -> str:
    """Place in the site of a file of the project."""
    if path in PAGES or path in ALSO:
        return PAGES.get(path) or ALSO[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path
