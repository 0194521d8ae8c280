"""Templates of the pages. No value is treated as HTML: all are escaped and made printable."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeGuard
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from spark_log.console.responses import json_text
from spark_log.util import printable, printable_lines

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN: Final = "\N{EN DASH}"
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Lines(str):
    """Text whose line breaks and tabs are kept; it is escaped like other text."""

    __slots__ = ()


def environment() -> Environment:
    """Return the environment of the templates.

    Every expression of every template is escaped. Before that, control characters and characters
    that change the direction of text are made visible.
    """
    env = Environment(
        loader=PackageLoader("spark_log.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "number": number,
        "bytes": byte_size,
        "time": time_text,
        "moment": moment,
        "age": age_text,
        "rate": rate_text,
        "exact": exact,
        "json": json_text,
        "lines": Lines,
        "pretty": pretty,
    }
    env.globals |= {"link": link}
    return env


def link(path: str, **query: object) -> str:
    """Return a URL within the console; arguments that are None are left out."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def number(value: float | None) -> str:
    """Return a number with separated thousands; a dash for an unknown number."""
    return f"{value:,}" if _is_known(value) else UNKNOWN


def byte_size(value: float | None) -> str:
    """Return a size with its unit; a dash for an unknown size."""
    if not _is_known(value):
        return UNKNOWN
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return (
        f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"
    )


def rate_text(value: float | None) -> str:
    """Return records per second; a dash for an unknown rate."""
    if not _is_known(value):
        return UNKNOWN
    if 0 < value < 0.05:
        return "< 0.1/s"  # "0.0/s" would mean no activity
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def time_text(time_us: int | None) -> str:
    """Return a time in UTC, to the microsecond; the number itself outside of the calendar."""
    if time_us is None:
        return UNKNOWN
    try:
        text = (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} µs"
    return text.replace("T", " ").replace("+00:00", "Z")


def moment(time_us: int) -> str:
    """Return a time for a link: in the form of `time_text`, or in milliseconds outside of it."""
    text = time_text(time_us)
    return text if text.endswith("Z") else str(time_us // 1000)


def age_text(duration_ms: float | None) -> str:
    """Return a duration in its two largest units; a dash for an unknown duration."""
    if not _is_known(duration_ms):
        return UNKNOWN
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    left, parts = int(duration_ms // 1000), []
    for name, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value >= 0


def exact(text: str) -> Markup:
    """Return text for a hidden field of a form: escaped, and sent back unchanged."""
    return Markup(str(escape(text)).replace("\r", "&#13;").replace("\n", "&#10;"))


def pretty(text: str) -> Lines:
    """Return JSON text with line breaks and indents; other text unchanged.

    Only white space is changed: a document that was parsed and written again would lose duplicate
    members and digits.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return Lines(text)
    parts: list[str] = []
    depth, last = 0, ""
    for token in _JSON_TOKEN.findall(text):
        if token in "}]":
            depth -= 1
        if last and last in "{[,":
            is_empty = last != "," and token in "}]"
            parts.append("" if is_empty else "\n" + "  " * depth)
        elif token in "}]":
            parts.append("\n" + "  " * depth)
        parts.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
        last = token
    return Lines("".join(parts))


def render(env: Environment, template: str, values: Mapping[str, Any]) -> bytes:
    """Return a page in UTF-8. Halves of surrogate pairs become question marks."""
    return env.get_template(template).render(values).encode("utf-8", errors="replace")


def _shown(value: object) -> object:
    if isinstance(value, Markup):
        return value
    if isinstance(value, Lines):
        return printable_lines(value)
    return printable(value) if isinstance(value, str) else value
