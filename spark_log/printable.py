"""Text that others wrote, made safe to print: a terminal obeys control characters in it."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: ESC and CSI begin commands to the terminal
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of what follows
    "\u2028\u2029"  # end a line, for some programs
    "\udc80-\udc9f"  # bytes of file names that are not UTF-8, and that become C1 again
)
_IN_NAMES: Final = re.compile(f"[{_UNSAFE}]")
_IN_LINES: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def printable(text: str) -> str:
    r"""Return a name, or a part of a line, with control characters as ``\x1b``, ``\u202e``.

    Line breaks and tabs too, so that a name cannot look like another line or column.
    """
    return _IN_NAMES.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return lines of text with all control characters escaped but line breaks and tabs."""
    return _IN_LINES.sub(_escape, text)


def escape_as_json(text: str) -> str:
    r"""Return JSON text with control characters as ``\u009b``; line breaks between tokens stay."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # the byte that it stands for
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
