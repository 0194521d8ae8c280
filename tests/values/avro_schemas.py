"""Random Avro schemas and values, for Hypothesis; fastavro is the reference."""

import io
import math
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
from hypothesis import strategies as st

SIMPLE = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=9),
    "string": st.text(max_size=5),
}
LOGICAL = [
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)).map(
            lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
        ),
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-2")),
    ),
]


class Names:
    """Gives each named type a name of its own."""

    def __init__(self):
        self.count = 0

    def fresh(self):
        self.count += 1
        return f"t{self.count}"


@st.composite
def records(draw, *, logical=True):
    """Draw the schema of a record, and a strategy of its values."""
    return _record(draw, Names(), 0, logical=logical)


def _record(draw, names, depth, *, logical):
    count = draw(st.integers(1, 4 if depth == 0 else 2))
    fields = [(f"f{at}", *_type(draw, names, depth + 1, logical=logical)) for at in range(count)]
    schema = {
        "type": "record",
        "name": names.fresh(),
        "fields": [{"name": name, "type": kind} for name, kind, _ in fields],
    }
    return schema, st.fixed_dictionaries({name: values for name, _, values in fields})


def _type(draw, names, depth, *, logical):  # noqa: PLR0911 - a line for each type
    choices = ["simple", "simple", "null", "enum", "fixed"]
    if logical:
        choices += ["logical", "decimal"]
    if depth < 3:
        choices += ["array", "map", "record"]
    match draw(st.sampled_from(choices)):
        case "simple":
            name = draw(st.sampled_from(sorted(SIMPLE)))
            return name, SIMPLE[name]
        case "null":
            inner, values = _type(draw, names, 3, logical=logical)
            while isinstance(inner, list):
                inner, values = _type(draw, names, 3, logical=logical)
            return draw(st.permutations(["null", inner])), st.none() | values
        case "enum":
            schema = {"type": "enum", "name": names.fresh(), "symbols": ["RED", "GREEN", "BLUE"]}
            return schema, st.sampled_from(schema["symbols"])
        case "fixed":
            size = draw(st.integers(1, 5))
            schema = {"type": "fixed", "name": names.fresh(), "size": size}
            return schema, st.binary(min_size=size, max_size=size)
        case "logical":
            return draw(st.sampled_from(LOGICAL))
        case "decimal":
            size = draw(st.integers(2, 8))
            schema = {"type": "fixed", "name": names.fresh(), "size": size}
            schema |= {"logicalType": "decimal", "precision": 4, "scale": 1}
            digits = st.integers(-9999, 9999)
            return schema, digits.map(lambda each: Decimal(f"{each}E-1"))
        case "array":
            inner, values = _type(draw, names, depth + 1, logical=logical)
            return {"type": "array", "items": inner}, st.lists(values, max_size=3)
        case "map":
            inner, values = _type(draw, names, depth + 1, logical=logical)
            return (
                {"type": "map", "values": inner},
                st.dictionaries(st.text(max_size=2), values, max_size=3),
            )
    return _record(draw, names, depth, logical=logical)


def encoded(schema, value):
    """Return a value in fastavro's encoding."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


class ExactBytes(io.BytesIO):
    """Bytes that fail if more is read than they contain."""

    def read(self, size=-1, /):
        data = super().read(size)
        if size is None or len(data) != size:
            raise EOFError
        return data


def fastavro_row(schema, data):
    """Return what fastavro reads, or None if the bytes are not one value of the schema."""
    source = ExactBytes(data)
    try:
        value = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    except (ArithmeticError, EOFError, LookupError, TypeError, ValueError):
        return None
    return value if source.tell() == len(data) else None


def same(ours, theirs):
    """Return whether two values are equal; NaN is itself."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(ours)
    return type(ours) is type(theirs) and ours == theirs
