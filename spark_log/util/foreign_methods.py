"""Methods of kafka-python's clients that do not exist here, and their replacements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

_NO_BROKERS: Final = (
    "there are no brokers to connect to. Any call that reads tells whether the storage answers, "
    "such as Consumer.topics() or Admin.describe_cluster()"
)
_NO_VERSIONS: Final = (
    "there are no brokers with versions and features. `spark-log version` shows the versions of "
    "the program and of its format"
)
_NO_ACCESS_CONTROL: Final = (
    "the storage's permissions decide who may read and write the log. Set them there"
)
_NO_LOG_DIRS: Final = (
    "a broker is one storage root, with one directory: move a partition to another broker by "
    "alter_partition_reassignments"
)


ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bootstrap", "bootstrap_connected"), _NO_BROKERS),
    **dict.fromkeys(("api_versions", "get_broker_version_data"), _NO_VERSIONS),
    **dict.fromkeys(
        (*("create_acls", "delete_acls", "describe_acls"),),
        _NO_ACCESS_CONTROL,
    ),
    "alter_replica_log_dirs": _NO_LOG_DIRS,
    "describe_metadata_quorum": "use the command line: spark-log quorum describe",
    "describe_topic_partitions": "describe_topics returns all partitions of a topic",
    "max_usable_produce_magic": "record batches have one format here",
}
"""Advice on the replacement of a method, by the method's name."""


class _ForeignMethod:
    """A descriptor for a method that does not exist; access raises an error with advice."""

    def __init__(self, name: str, advice: str) -> None:
        self._name = name
        self._advice = advice

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: {self._advice}",
            name=self._name,
            obj=instance,
        )


class ForeignMethods:
    """Base of the clients: a method that only kafka-python has raises an error with advice.

    The error is an `AttributeError`, so that `hasattr` is false for such a method. Each name has a
    descriptor: ``__getattr__`` would slow down every access of a client's attributes, and
    `Producer.send` by a fifth.
    """

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ADVICE or hasattr(self, name)]


for _name, _advice in ADVICE.items():
    setattr(ForeignMethods, _name, _ForeignMethod(_name, _advice))
