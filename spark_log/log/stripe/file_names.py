"""File names in a stripe's directory. They carry numbers and are part of the format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_log.storage import STRIPES_DIRECTORY

OBJECT_SUFFIX: Final = ".stripe"
HOME_SUFFIX: Final = ".home"

_NAME: Final = re.compile(r"(\d{20})(\.stripe|\.home)")


@dataclass(frozen=True, slots=True)
class StripeFileName:
    """The parts of a file name in a stripe.

    Attributes:
        number: number of the object. A home marker has the state before the object of this number.
        is_home: whether it is a home marker.
    """

    number: int
    is_home: bool = False

    @property
    def file_name(self) -> str:
        """The file's name."""
        return f"{self.number:020d}{HOME_SUFFIX if self.is_home else OBJECT_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> StripeFileName | None:
        """Parse a file name; return None if no file of a stripe has such a name."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2] == HOME_SUFFIX)


def stripe_path(topic_directory: str, stripe: int) -> str:
    """Return the directory of a stripe, relative to the store's root.

    Args:
        topic_directory: the topic's directory.
        stripe: number of the stripe.
    """
    return f"{topic_directory}/{STRIPES_DIRECTORY}/{stripe}"


def stripe_of(partition: int, stripes: int) -> int:
    """Return the stripe that a partition is in.

    Args:
        partition: number of the partition.
        stripes: number of stripes of the topic.
    """
    return partition % stripes
