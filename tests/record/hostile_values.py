"""Keys, values and headers that anyone may send: any bytes, control characters, HTML, bad JSON."""

import re

VALUES = {
    "null": None,
    "empty": b"",
    "nul": b"\0",
    "all-bytes": bytes(range(256)),
    "overlong-slash": b"\xc0\xaf",
    "surrogate": b"\xed\xa0\x80",
    "above-unicode": b"\xf4\x90\x80\x80",
    "cut-in-a-character": b"x" * 1_999 + "\N{EURO SIGN}".encode() * 9,
    "continuation": b"\x80" * 30,
    "utf-16": "\ufeffflight".encode("utf-16"),
    "byte-order-mark": "\ufeff{}".encode(),
    "clear-screen": b"\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\x\x9b31m",
    "html": b"<script>alert(1)</script>\"'><img src=x onerror=alert(2)>/&?#%2f",
    "bidirectional": "\u202e\u2066 abc \u2028 \u200f".encode(),
    "template": b"{{ 7*7 }}{% raw %}${jndi:ldap://x}",
    "not-a-number": b'{"x": NaN, "y": [Infinity, -Infinity, 1e999]}',
    "deep": b"[" * 100_000,
    "deep-and-closed": b"[" * 50_000 + b"]" * 50_000,
    "digits": b"[" + b"9" * 10_000 + b"]",
    "half-a-pair": b'{"x": "\\ud800"}',
    "twice": b'{"a": 1, "a": 2, "f": 0.10000000000000000555, "n": -0.0}',
    "long": b"long " * 150_000,
    "long-line": b"\x01" * 600_000,
}
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]"
)
"""Characters that a terminal or a browser may obey. Line breaks and tabs are none of them."""
