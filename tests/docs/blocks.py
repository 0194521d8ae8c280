"""The code in README, docs and notebooks, for the tests that run it.

A test gets code only by `block`, `blocks` or `cells`, with the page's name as a literal: so
``test_every_block_is_run.py`` finds out which code no test asks for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Code on a page.

    Attributes:
        page: path in the project.
        line: number of its first line; in a notebook, the number of the cell.
        language: the language of the fence; empty without one.
        code: the code without the fence.
    """

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"


def pages() -> list[str]:
    """The paths of all pages and notebooks in the project."""
    found = [
        *PROJECT.glob("*.md"),
        *PROJECT.glob("docs/**/*.md"),
        *PROJECT.glob("notebooks/*.ipynb"),
    ]
    return sorted(str(each.relative_to(PROJECT)) for each in found)


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The blocks of a page in its order; only those of a language, if it is given."""
    text = (PROJECT / page).read_text("utf-8")
    found = _cells(page, text) if page.endswith(".ipynb") else _fenced(page, text)
    return [each for each in found if language in (None, each.language)]


def block(page: str, containing: str) -> str:
    """The code of the one block of a page that contains a text."""
    (found,) = (each.code for each in blocks(page) if containing in each.code)
    return found


def cells(page: str) -> list[str]:
    """The code of a notebook's cells."""
    return [each.code for each in blocks(page, "python")]


def _fenced(page: str, text: str) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, found.start(3)) + 1, found[2], found[3])
        for found in _FENCE.finditer(text)
    ]


def _cells(page: str, text: str) -> list[Block]:
    return [
        Block(page, number, "python", "".join(cell["source"]))
        for number, cell in enumerate(json.loads(text)["cells"])
        if cell["cell_type"] == "code"
    ]
