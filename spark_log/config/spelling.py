"""Distinguishes a misspelled option from an option of another program.

An unknown option is either a misspelled known option, or an option of another program. Ignoring a
misspelled option would change the records that are read or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SLIPS: Final = ((16, 3), (8, 2), (0, 1))
"""Minimum length of a known name → maximum number of wrong letters: with two, ``path`` could be
``batch``."""
_MIN_STEM: Final = 3
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name that ``name`` probably misspells; None without one.

    A name misspells a known one if, apart from case and separators (``.``, ``_``, ``-``),

    - both are the same: ``starting_offsets``,
    - one letter is too many, missing, wrong, or exchanged with its neighbour: ``startingOffset``;
      up to two or three letters if the known name has at least 8 or 16, or
    - they have the same words, some of them shortened: ``startOffset``, ``endTime``.

    A known name that ends in a dot is a prefix. It is compared with as many words of ``name``.
    """
    slips = []
    for each in known:
        beginning = ".".join(name.split(".")[: each.count(".")]) if each.endswith(".") else name
        word, letters = _letters(beginning), _letters(each)
        distance = _distance(word, letters)
        allowed = next(limit for length, limit in _SLIPS if len(letters) >= length)
        if distance <= allowed or _is_shortened(word, each):
            slips.append((distance, each))
    return min(slips)[1] if slips else None


def _letters(name: str) -> str:
    return re.sub(r"[._\-]", "", name).lower()


def _is_shortened(letters: str, known: str) -> bool:
    """Whether a name has the words of a known one, each whole or shortened, or as a plural.

    Spark gives some options in lower case, so only the known name tells where its words begin.
    """
    words = [word.lower() for word in _WORD.findall(known)]
    return len(words) > 1 and re.fullmatch("".join(map(_shortened, words)), letters) is not None


def _shortened(word: str) -> str:
    """Return a regular expression for the beginnings of a word, from ``sta`` to ``starting``."""
    optional = "".join(f"(?:{letter}" for letter in word[_MIN_STEM:])
    return f"{word[:_MIN_STEM]}{optional}{')?' * len(word[_MIN_STEM:])}s?"


def _distance(word: str, other: str) -> int:
    """Return the number of missing, extra, wrong or exchanged letters (Damerau's distance)."""
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            best = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            is_exchanged = (
                min(row, column) > 1 and word[row - 2 : row] == other[column - 2 : column][::-1]
            )
            current.append(min(best, before_last[column - 2] + 1) if is_exchanged else best)
        before_last, last = last, current
    return last[-1]
