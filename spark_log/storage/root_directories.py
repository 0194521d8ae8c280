"""The names of the directories in a storage root: one table for all code that uses them.

Besides a topic's directory, ``<topic>.<topic id>``, a root has the directories in
`ROOT_DIRECTORIES`, each while a feature needs it. Doctor and verify call every other
directory foreign, so a new feature adds its directory here. Names that begin with a dot are in no
listing: stores use them (``.quorum``, ``.reserve``, ``*.tmp``).
"""

from __future__ import annotations

import re
from typing import Final

METADATA_LOG: Final = "__cluster_metadata-0"
"""The metadata log."""

OFFSETS_TABLE: Final = "__consumer_offsets"
"""The Delta table of committed offsets."""

GROUPS_DIRECTORY: Final = "__consumer_groups"
"""The logs of consumer groups, and their members' heartbeats."""

TRANSACTIONS_DIRECTORY: Final = "__transaction_state"
"""The logs of transactional ids, and the producer ids that belong to them."""

GATEWAYS_DIRECTORY: Final = "__gateways"
"""The log of the gateways of the root, and their heartbeats."""

DELETION_MARKERS: Final = "__deleted_topics"
"""A marker for each deleted topic whose files a cleaner has yet to remove."""

STRAY_REPLICAS: Final = "__stray_replicas"
"""A marker for each directory of a former replica, relative to its broker's root."""

WITNESSES: Final = "__witnesses"
"""A witness for each log that has had records, and the checkpoint of the metadata log."""

QUORUM_CHANGES: Final = "__quorum"
"""Changes of the members of a quorum, from its second list of members on."""

QUORUM_DIRECTORY: Final = ".quorum"
"""A quorum's own objects, in each directory that has files; not in `ROOT_DIRECTORIES`."""

VOTERS: Final = f"{QUORUM_DIRECTORY}/voters"
"""The lists of a quorum's members, in the root."""

SCRATCH_PREFIX: Final = "__doctor."
"""Prefix of the directory that a run of the doctor writes to, in each root that it probes."""

ROOT_DIRECTORIES: Final = frozenset(
    {
        METADATA_LOG,
        OFFSETS_TABLE,
        GROUPS_DIRECTORY,
        TRANSACTIONS_DIRECTORY,
        GATEWAYS_DIRECTORY,
        DELETION_MARKERS,
        STRAY_REPLICAS,
        WITNESSES,
        QUORUM_CHANGES,
    }
)
"""Directories that spark-log keeps, besides those of topics and of a running doctor."""

DELTA_LOG: Final = "_delta_log"
"""In a topic's directory: the Delta log of the topic's table."""

STRIPES_DIRECTORY: Final = "__stripes"
"""In a topic's directory: the directories of the topic's stripes."""

_OF_FILE_SYSTEMS: Final = frozenset({"lost+found"})
"""Directories that a file system makes in the root of a disk, which often nobody may list."""

_TOPIC: Final = re.compile(r".+\.[\w-]{22}", re.ASCII | re.DOTALL)


def is_topic_directory(name: str) -> bool:
    """Return whether a directory in a root has the name of a topic's directory."""
    return _TOPIC.fullmatch(name) is not None


def is_own_directory(name: str) -> bool:
    """Return whether the name of a directory shows that its root was created.

    ``__quorum`` does not: the members of a quorum may change before the root is created.
    """
    return is_topic_directory(name) or name in ROOT_DIRECTORIES - {QUORUM_CHANGES}


def is_of_file_system(name: str) -> bool:
    """Return whether a directory in a root is the file system's own."""
    return name in _OF_FILE_SYSTEMS
