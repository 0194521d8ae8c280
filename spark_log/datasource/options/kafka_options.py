"""Options that a program sets for Kafka's clients, and options of Spark's Kafka connector.

Most of them configure the connection to brokers. spark-log has no brokers, so these options have no
effect, and one warning names them. The few options that change the records read or written are
translated to options of ``format("spark_log")``. Options that Spark's Kafka connector refuses are
refused here too, with an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.config import warn_ignored_settings, warn_of_setting
from spark_log.errors import InvalidOptionError

_PREFIX: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_COMPRESSION_OPTIONS: Final = ("compression.type", "kafka.compression.type")


@dataclass(frozen=True, slots=True)
class OptionTranslation:
    """Rules for options of Kafka's clients. All keys and names are lower case.

    Attributes:
        renamed: option of Kafka → the option of ``format("spark_log")`` with the same effect.
        unsupported: option that the connector also refuses → the reason, and what to use instead.
        ignored: the connector's own options that have no effect here.
    """

    renamed: Mapping[str, str]
    unsupported: Mapping[str, str]
    ignored: frozenset[str]

    def translate(self, options: Mapping[str, str]) -> tuple[dict[str, str], set[str], str | None]:
        """Split the options for Kafka into translated and ignored ones.

        Returns:
            The translated options by name; the names of ignored options as the user wrote them; and
            the name of the option that lists brokers, None if there is none.

        Raises:
            InvalidOptionError: an option is unsupported.
        """
        translated: dict[str, str] = {}
        foreign: set[str] = set()
        servers = None
        for name, value in options.items():
            lower = name.lower()
            if lower in self.unsupported:
                raise InvalidOptionError(
                    f"option {name!r} is not supported: {self.unsupported[lower]}", key=name
                )
            if lower in self.renamed:
                translated[self.renamed[lower]] = value
            elif lower.startswith(_PREFIX) or lower in self.ignored:
                foreign.add(name)
            if lower in (_SERVERS, _PREFIX + _SERVERS):
                servers = name
        return translated, foreign, servers


READ_TRANSLATION: Final = OptionTranslation(
    renamed={
        "kafka.group.id": "group.id",
        "kafka.isolation.level": "isolation.level",
        "kafka.check.crcs": "check.crcs",
        "kafka.client.rack": "client.rack",
    },
    unsupported={
        "kafka.auto.offset.reset": "use the option startingOffsets (earliest, latest, or JSON). It "
        "applies when a query starts for the first time; a restarted query continues from its "
        "checkpoint",
        "kafka.key.deserializer": "keys are read as bytes; cast or decode the column key with "
        "DataFrame operations",
        "kafka.value.deserializer": "values are read as bytes; cast or decode the column value "
        "with DataFrame operations",
        "kafka.enable.auto.commit": "a query commits its offsets to its checkpoint; set group.id "
        "to report them to a consumer group as well",
        "kafka.interceptor.classes": "interceptors are Java classes of Kafka's clients, which do "
        "not run here; use DataFrame operations",
    },
    ignored=frozenset(
        {
            "kafkaconsumer.polltimeoutms",
            "fetchoffset.numretries",
            "fetchoffset.retryintervalms",
            "groupidprefix",
        }
    ),
)
WRITE_TRANSLATION: Final = OptionTranslation(
    renamed={
        "kafka.acks": "acks",
        "kafka.compression.type": "compression.type",
        "kafka.transaction.timeout.ms": "transaction.timeout.ms",
    },
    unsupported={
        "kafka.key.serializer": "keys are written as bytes; cast or encode the column key with "
        "DataFrame operations",
        "kafka.value.serializer": "values are written as bytes; cast or encode the column value "
        "with DataFrame operations",
        "kafka.partitioner.class": "partitioners are Java classes of Kafka's clients, which do not "
        "run here; choose the partition by the column partition",
        "kafka.interceptor.classes": "interceptors are Java classes of Kafka's clients, which do "
        "not run here; use DataFrame operations",
    },
    ignored=frozenset({"includeheaders"}),
)


def substitute_codec(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the codec that replaces one that Arrow does not support, and a warning; else None.

    The warning is not shown here: each micro-batch of a stream parses its options again.

    Args:
        options: options of a write, as given. ``compression.type`` takes precedence over
            ``kafka.compression.type``.
    """
    from spark_log.config import CODECS  # imported here: reads need no table of settings

    by_lower = {name.lower(): value for name, value in options.items()}
    name = next((each for each in _COMPRESSION_OPTIONS if each in by_lower), "")
    codec = by_lower.get(name, "").strip().lower()
    if codec not in CODECS.meanings:
        return None
    used = CODECS.meanings[codec]
    return used, f"option {name} is {codec}, {CODECS.reason}; {used} is used instead"


def warn_ignored_options(names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Warn once about ignored options, if there are any, and once for each other warning.

    Args:
        names: the ignored options.
        others: other warnings, one sentence each.
    """
    warn_ignored_settings("format spark_log", names)
    for sentence in others:
        warn_of_setting(sentence)
