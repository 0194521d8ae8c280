"""Checks the English of docstrings (CONTRIBUTING.md, *English*); ``make english`` runs it.

A docstring is read alone, by people who read English as a second language. What this finds is a
sentence that only its author can complete: an argument that is "of the log", a class that is "What
a look at the log showed". It does not find every riddle. It also finds names in backquotes that no
code has any more.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

_FOLDERS: Final = ("spark_log", "jobs", "benchmarks")

_IN_BACKQUOTES: Final = re.compile(r"(?<!`)`([A-Za-z_][\w.]*\w)(?:\(\))?`(?!`)")
"""A name of the code in a docstring."""

_SECTIONS: Final = ("Args", "Attributes", "Returns", "Yields", "Raises")
_ENTRY: Final = re.compile(r"(?P<name>\*{0,2}[\w, *]+?)(?: \([^)]*\))?: (?P<text>.*)")

_NO_SUBJECT: Final = re.compile(r"(of|that|by which|to be|as of|from|whose|which|in which)\b")
"""Beginnings of a description that say a relation, and not what the thing is."""

_NO_VERB: Final = re.compile(r"(What|Whose|Who|How|Which|Where)\b(?!.*\?$)")
"""Beginnings of a docstring that is a clause, and not a sentence or a noun."""

_BANNED: Final = {
    r"\blikewise\b": "say it in this line",
    r"\b(go|goes|going|went) on\b": "continue, retry",
    r"\blooks? again\b": "list again, read again",
    r"\b(is|are|was|were) there(?=[.,;:)]|$)": "exists",
    r"\b(take|Take) notice\b": "name the event",
    r"(?<=: )as of (?=`)": "See",
    r"\bso (much|many|few|long) (has|have|that lies)\b": "minimum, number of",
    r"\b[Ww]ho(ever)? (calls|finds|has|holds|knows|looks|puts|reads|sees|waits|writes)\b": (
        "name who it is"
    ),
}
"""Words that STYLE bans in docstrings, with what to write."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place whose English is to be changed.

    Attributes:
        path: the file.
        line: the line number, from 1 on.
        text: the text that was found.
        advice: what to write.
    """

    path: Path
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


@dataclass(frozen=True, slots=True)
class Module:
    """The docstrings of a module.

    Attributes:
        path: the file.
        docstrings: each docstring, also those behind assignments, with its first line.
    """

    path: Path
    docstrings: Sequence[tuple[str, int]]

    @classmethod
    def read(cls, path: Path, names: Names) -> Module:
        """Parse a file, and add the names that it has to ``names``."""
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))
        names.add(path, nodes)
        return cls(path, [each for node in nodes for each in _docstrings(node)])


def findings(module: Module) -> Iterator[Finding]:
    """Yield what is to be changed in the docstrings of a module."""
    for text, line in module.docstrings:
        yield from _findings_in(module.path, text, line)


class Names:
    """The names of the code, by which a name in backquotes is found.

    Attributes:
        known: all identifiers of the code, and the names of its files and folders.
        members: by class name, the names of its attributes and methods, and of its base classes.
    """

    def __init__(self) -> None:
        self.known: set[str] = set(dir(builtins)) | {"__main__"}
        self.members: dict[str, set[str]] = {}

    def add(self, path: Path, nodes: Iterable[ast.AST]) -> None:
        """Add the names of a module."""
        self.known |= {path.stem, path.parent.name}
        for node in nodes:
            self._add(node)

    def has(self, name: str) -> bool:
        """Return whether the code has a name, such as ``Appender.append`` or ``log.segment``."""
        *owners, last = name.split(".")
        if not all(part in self.known for part in owners):
            return False
        if owners and owners[-1] in self.members:
            return self._has_member(owners[-1], last)
        return last in self.known

    def _has_member(self, owner: str, name: str) -> bool:
        members = self.members.get(owner)
        if members is None:
            return name in self.known  # a class of another package
        return name in members or any(
            self._has_member(base[6:], name) for base in members if base.startswith("base: ")
        )

    def _add(self, node: ast.AST) -> None:
        match node:
            case ast.ClassDef():
                members = self.members.setdefault(node.name, set())
                members |= {f"base: {name}" for base in node.bases for name in _words(base)[-1:]}
                for part in ast.walk(node):
                    members |= _defined(part)
        self.known |= _defined(node)


def _words(node: ast.AST) -> list[str]:
    """Return the names of an expression such as ``delta.Table[int]``, without its subscript."""
    if isinstance(node, ast.Subscript):
        return _words(node.value)
    return re.findall(r"\w+", ast.unparse(node))


def _defined(node: ast.AST) -> set[str]:
    """Return the identifiers in one node of the code."""
    names: list[str | None] = []
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            names = [node.name]
        case ast.Name():
            names = [node.id]
        case ast.Attribute():
            names = [node.attr]
        case ast.arg() | ast.keyword():
            names = [node.arg]
        case ast.alias():
            names = [*node.name.split("."), node.asname]
        case ast.Constant(value=str(text)) if text.isidentifier():
            names = [text]  # an attribute of __slots__, a column, a metric
    return {name for name in names if name}


def unresolved(module: Module, names: Names) -> Iterator[Finding]:
    """Yield the names in backquotes, in the docstrings of a module, that no code has."""
    for text, first_line in module.docstrings:
        for line, raw in enumerate(text.splitlines(), first_line):
            for name in _IN_BACKQUOTES.findall(raw):
                if not names.has(name):
                    yield Finding(module.path, line, f"`{name}`", "no code has this name")


def _docstrings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the docstring of a node, and those behind its assignments, with their first lines."""
    body = getattr(node, "body", None)
    for statement in body if isinstance(body, list) else ():
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            value = statement.value
            if isinstance(value.value, str):
                yield value.value, value.lineno


def _findings_in(path: Path, text: str, first_line: int) -> Iterator[Finding]:
    found = _NO_VERB.match(text)
    if found:
        yield Finding(path, first_line, text.splitlines()[0], "begin with a noun or a verb")
    section = ""
    for line, raw in enumerate(text.splitlines(), first_line):
        stripped = raw.strip()
        if stripped.rstrip(":") in _SECTIONS and stripped.endswith(":"):
            section = stripped[:-1]
        elif section in ("Args", "Attributes"):
            entry = _ENTRY.fullmatch(stripped)
            if entry and _NO_SUBJECT.match(entry["text"]):
                yield Finding(path, line, stripped, "say what it is: 'path: the directory …'")
        for pattern, advice in _BANNED.items():
            word = re.search(pattern, raw)
            if word:
                yield Finding(path, line, stripped, f"{word[0].strip()!r}: {advice}")


def main() -> int:
    """Print all findings; return the exit status."""
    root = Path(__file__).parent.parent
    paths = (path for folder in _FOLDERS for path in sorted(Path(root, folder).rglob("*.py")))
    names = Names()
    modules = [Module.read(path, names) for path in paths]  # all names, before the first is missed
    found = [each for module in modules for each in (*findings(module), *unresolved(module, names))]
    for each in found:
        place = replace(each, path=each.path.relative_to(root))
        sys.stdout.write(f"{place}\n")
    sys.stdout.write(f"English: {len(found)} places to be changed\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
