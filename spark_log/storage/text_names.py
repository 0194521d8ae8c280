"""File names for ids of groups, members and transactions, which may be any string.

Letters, digits, ``.``, ``_`` and ``-`` stay as they are. Every other byte of the UTF-8 string, and
a dot at the start, becomes ``=`` and two hexadecimal digits. A name that is too long for a file
system is cut and ends in ``==`` and the SHA-256 of the whole string; the string is then only found
in the files under that name. Two strings never have the same name.
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
    """Return the file name for a string: at most 200 characters, never empty."""
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
    """Return the string of a file name; None if the name was cut, or is not one of `file_name`."""
    if _CUT_NAME.search(name):
        return None
    try:
        text = unquote_to_bytes(name.replace("%", "%25").replace("=", "%")).decode(
            "utf-8", "surrogatepass"
        )
    except UnicodeDecodeError:
        return None
    return text if file_name(text) == name else None
