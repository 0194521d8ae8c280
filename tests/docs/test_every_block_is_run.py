"""No code in README, docs and notebooks that nobody runs."""

import ast
from pathlib import Path

import pytest

from tests.docs import blocks as accessors
from tests.docs.blocks import PROJECT, Block, _fenced, blocks, pages

ACCESSORS = {"block": 2, "blocks": 2, "cells": 1}
"""By which tests get code, and how many arguments say which."""

NOT_RUN = {
    ("README.md", "root: /data/log"): "a picture",
    ("docs/protocol/replication.md", "append ──>"): "a picture",
    ("docs/format.md", "<root>/\n"): "names of files, not code",
    ("docs/protocol/stripes.md", "flights.<topic id>/"): "names of files, not code",
}
"""What is no code: the page, how the block begins, and why no test runs it."""


def asked_for(source: str) -> set[Block]:
    """The blocks that a module's calls of `block`, `blocks` and `cells` return."""
    found: set[Block] = set()
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        most = ACCESSORS.get(call.func.id)
        if most is None or not all(isinstance(each, ast.Constant) for each in call.args):
            continue
        page, *rest = (str(each.value) for each in call.args if isinstance(each, ast.Constant))
        if call.func.id == "block":
            found |= {each for each in blocks(page) if rest[0] in each.code}
        else:
            found |= set(blocks(page, rest[0] if rest else None))
    return found


def run_by_tests() -> set[Block]:
    here = Path(__file__).parent
    modules = [path for path in PROJECT.glob("tests/**/test_*.py") if path.parent != here]
    return set().union(
        *(
            asked_for(path.read_text("utf-8"))
            for path in modules
            if f"import {accessors.__name__}" in (text := path.read_text("utf-8"))
            or f"from {accessors.__name__} import" in text
        )
    )


def not_run(block: Block) -> bool:
    return any(
        block.page == page and block.code.startswith(beginning) for page, beginning in NOT_RUN
    )


def test_every_block_is_run():
    everything = [each for page in pages() for each in blocks(page)]
    assert len(everything) > 20
    covered = run_by_tests()
    assert [str(each) for each in everything if each not in covered and not not_run(each)] == []


def test_what_is_no_code_is_still_on_its_page():
    for page, beginning in NOT_RUN:
        assert [each for each in blocks(page) if each.code.startswith(beginning)], (page, beginning)


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md", "notebooks/group_lag.ipynb"])
def test_a_block_that_no_test_asks_for_is_found(page):
    first, *others = blocks(page)
    source = "\n".join(f"block({page!r}, {each.code!r})" for each in others)
    assert first not in asked_for(source)
    assert set(others) <= asked_for(source)


def test_blocks_are_found_with_their_line_and_language():
    text = "a\n```sh\nls\n```\n\n- b\n\n  ```python\n  1\n  ```\n```\nc\n```\n"
    assert _fenced("p", text) == [
        Block("p", 3, "sh", "ls\n"),
        Block("p", 9, "python", "  1\n"),
        Block("p", 12, "", "c\n"),
    ]
