"""Escapes control characters, which a terminal would obey, in text from untrusted sources."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: ESC and CSI begin terminal commands
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of the text
    "\u2028\u2029"  # line ends for some programs
    "\udc80-\udc9f"  # bytes of file names that are not UTF-8 and are printed as C1
)
_IN_NAMES: Final = re.compile(f"[{_UNSAFE}]")
_IN_LINES: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def printable(text: str) -> str:
    r"""Return a name, or a part of a line, with its control characters as ``\x1b``, ``\u202e``.

    Line breaks and tabs are escaped, too: a name must not look like another line or column.
    """
    return _IN_NAMES.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return lines of text with all control characters escaped except line breaks and tabs."""
    return _IN_LINES.sub(_escape, text)


def escape_as_json(text: str) -> str:
    r"""Return JSON text with control characters as ``\u009b``; line breaks between tokens stay."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # the byte that the surrogate stands for
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(error: object) -> str:
    """Return the text of an error in one line: those of Arrow and of Spark have several."""
    return " ".join(str(error).split()).rstrip(" .")
