"""Names of files and directories for ids that may be any text: groups, members.

Letters, digits, ``.``, ``_`` and ``-`` stand for themselves; every other byte of the UTF-8 text is
``=`` and two hexadecimal digits, and so is a dot at the beginning. What would be longer than file
systems take is cut, and ``==`` and the SHA-256 of the whole text follow: then the name alone does
not tell the text, which every record and heartbeat holds. Two texts never have the same name.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_MAX_CHARACTERS = 200
_KEPT_CHARACTERS = 120
_CUT_NAME = re.compile(r"==[0-9a-f]{64}$")


def file_name(text: str) -> str:
    """Return the name that stands for a text: at most 200 characters, never empty."""
    encoded = "".join(
        chr(byte) if byte in _PLAIN and not (byte == ord(".") and at == 0) else f"={byte:02X}"
        for at, byte in enumerate(text.encode("utf-8", "surrogatepass"))
    )
    if encoded and len(encoded) <= _MAX_CHARACTERS:
        return encoded
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    kept = re.sub(r"=[0-9A-F]?$", "", encoded[:_KEPT_CHARACTERS])
    return f"{kept}=={digest}"


def text_of(name: str) -> str | None:
    """Return the text that a name stands for; None where it was cut, or is no such name."""
    if _CUT_NAME.search(name):
        return None
    try:
        text = unquote_to_bytes(name.replace("%", "%25").replace("=", "%")).decode(
            "utf-8", "surrogatepass"
        )
    except UnicodeDecodeError:
        return None
    return text if file_name(text) == name else None
