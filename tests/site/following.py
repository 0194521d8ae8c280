"""Follows a page: types its commands, runs its programs, compares what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cli.support import Outcome
from tests.docs.blocks import Block

ANY = "…"
"""Stands on a page for text that differs from run to run."""


@dataclass
class Follower:
    """A reader of a page, in an empty folder.

    Attributes:
        shell: runs ``spark-log`` in this process.
        replace: text of a page → its replacement in the test, such as the URL of a bucket.
        names: the variables of the page's programs.
    """

    shell: Callable[..., Outcome]
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    replace: Mapping[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""

    def follow(self, blocks: Iterable[Block]) -> None:
        """Run blocks in their order. A block of text is what the block before it prints."""
        for block in blocks:
            match block.language:
                case "sh":
                    lines = block.code.replace("\\\n", "").splitlines()
                    self.printed = "".join(self._type(line) for line in lines)
                case "python":
                    self.capsys.readouterr()
                    exec(compile(self._here(block.code), str(block), "exec"), self.names)
                    self.printed = self.capsys.readouterr().out
                case "text":
                    self.compare(block)
                case _:
                    raise AssertionError(f"no rule runs {block}")

    def compare(self, block: Block) -> None:
        """Compare what was printed with a block, line by line; lines may have another order."""
        wanted = sorted(self._here(block.code).split("\n"))
        printed = sorted(self.printed.split("\n"))
        wanted, printed = ([line for line in lines if line] for lines in (wanted, printed))
        patterns = [re.escape(line).replace(re.escape(ANY), ".*?") for line in wanted]
        for pattern, line in zip(patterns, printed, strict=False):
            assert re.fullmatch(_spaced(pattern), " ".join(line.split())), (block, printed)
        assert len(patterns) == len(printed), (block, printed)

    def _type(self, line: str) -> str:
        """Type one line; return what it prints."""
        line = self._here(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.monkeypatch.setenv(name, os.path.expandvars(value.strip("\"'")))
            return ""
        typed, _, command = line.rpartition(" | ")
        if not command.startswith("spark-log "):
            done = subprocess.run(["sh", "-ec", line], capture_output=True, text=True, check=True)
            return done.stdout
        stdin = subprocess.run(["sh", "-c", typed or ":"], capture_output=True, check=True).stdout
        outcome = self.shell(*shlex.split(os.path.expandvars(command))[1:], stdin=stdin)
        assert outcome.status == 0, (line, outcome.err)
        return outcome.err + outcome.out

    def _here(self, text: str) -> str:
        for on_page, here in self.replace.items():
            text = text.replace(on_page, here)
        return text


def _spaced(pattern: str) -> str:
    """The pattern of a line in which spaces and tabs count as one space."""
    return r"\ ".join(re.sub(r"\\\t", r"\\ ", pattern).replace("\\ ", " ").split())
