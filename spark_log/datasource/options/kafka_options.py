"""Options of a program that was written for Kafka: what becomes of them here.

Most of them tell a client how to talk to brokers. There are none, so they mean nothing, and are
passed over with one warning. The few that change what is read or written become options of ours;
those that the connector refuses are refused, with the advice that helps.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.errors import InvalidOptionError

_PREFIX: Final = "kafka."


class IgnoredOptionWarning(UserWarning):
    """Something was given that ``format("spark_log")`` ignores, or takes for something else."""


@dataclass(frozen=True, slots=True)
class OptionTranslation:
    """What becomes of the options for Kafka's clients.

    Attributes:
        taken_over: an option of ours for each of Kafka's that changes results; lower case.
        refused: why, for each that the connector refuses too; lower case.
        names: of the connector's own options that mean nothing here; lower case.
    """

    taken_over: Mapping[str, str]
    refused: Mapping[str, str]
    names: frozenset[str]

    def translate(self, options: Mapping[str, str]) -> tuple[dict[str, str], set[str], str | None]:
        """Sort options.

        Returns:
            Ours, by name; the names, as they were given, of those that mean nothing; and the name
            under which brokers were given, if any.

        Raises:
            InvalidOptionError: one is refused.
        """
        translated: dict[str, str] = {}
        foreign: set[str] = set()
        servers = None
        for name, value in options.items():
            lower = name.lower()
            if lower in self.refused:
                raise InvalidOptionError(
                    f"option {name!r} is not supported: {self.refused[lower]}", key=name
                )
            if lower in self.taken_over:
                translated[self.taken_over[lower]] = value
            elif lower.startswith(_PREFIX) or lower in self.names:
                foreign.add(name)
                servers = name if lower == "kafka.bootstrap.servers" else servers
        return translated, foreign, servers


READ_TRANSLATION: Final = OptionTranslation(
    taken_over={
        "kafka.group.id": "group.id",
        "kafka.isolation.level": "isolation.level",
        "kafka.check.crcs": "check.crcs",
    },
    refused={
        "kafka.auto.offset.reset": "where to start is said by the option startingOffsets "
        "(earliest, latest, or JSON), which counts when a query starts for the first time; a "
        "restarted one goes on where it was",
        "kafka.key.deserializer": "keys are read as bytes; cast or decode the column key with "
        "DataFrame operations",
        "kafka.value.deserializer": "values are read as bytes; cast or decode the column value "
        "with DataFrame operations",
        "kafka.enable.auto.commit": "a query commits its offsets to its checkpoint; give group.id "
        "to report them to a consumer group too",
        "kafka.interceptor.classes": "interceptors are code of Kafka's clients and could change "
        "records unseen; use DataFrame operations",
    },
    names=frozenset(
        {
            "kafkaconsumer.polltimeoutms",
            "fetchoffset.numretries",
            "fetchoffset.retryintervalms",
            "groupidprefix",
        }
    ),
)
WRITE_TRANSLATION: Final = OptionTranslation(
    taken_over={"kafka.compression.type": "compression.type"},
    refused={
        "kafka.key.serializer": "keys are written as bytes; cast or encode the column key with "
        "DataFrame operations",
        "kafka.value.serializer": "values are written as bytes; cast or encode the column value "
        "with DataFrame operations",
        "kafka.partitioner.class": "partitioners are code of Kafka's clients; give the column "
        "partition",
        "kafka.interceptor.classes": "interceptors are code of Kafka's clients and could change "
        "records unseen; use DataFrame operations",
    },
    names=frozenset({"includeheaders"}),
)


_SUBSTITUTES: Final = {"gzip": "zstd", "snappy": "lz4"}
"""Of Kafka's codecs that Arrow's files cannot carry, the one that comes nearest."""


def substitute_codec(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the codec to use instead of one of Kafka's that Arrow lacks, and a warning; else None.

    Args:
        options: of a write, as given. ``compression.type``, which is ours, goes first.
    """
    given = {name.lower(): value for name, value in options.items()}
    codec = given.get("kafka.compression.type", "").strip().lower()
    if "compression.type" in given or codec not in _SUBSTITUTES:
        return None
    return _SUBSTITUTES[codec], (
        f"Arrow's files have no {codec}, which option kafka.compression.type asks for; "
        f"{_SUBSTITUTES[codec]} is used instead (there are none, lz4 and zstd)"
    )


def warn_ignored_options(names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Warn once of options that mean nothing, if there are any, and of each other thing.

    Args:
        names: of the options.
        others: what else there is to say, a sentence each.
    """
    said = [f"format spark_log has no use for {', '.join(names)}; ignored"] if names else []
    for sentence in [*said, *others]:
        warnings.warn(sentence, IgnoredOptionWarning, stacklevel=2)
