"""`CommitOrder`: commits of one member follow each other in the order in which they arrived."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class CommitOrder:
    """The order of the commits of one gateway. For one event loop.

    Requests of a connection run at the same time, on several threads, and a client that has lost
    its connection may commit again while its last commit still waits for the storage. Without this,
    an earlier commit could take effect after a later one, and set the committed offset back.
    """

    def __init__(self) -> None:
        """Return an order without commits."""
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def turn(self, group_id: str, member: str) -> asyncio.Lock:
        """Return the lock that a commit holds until it is done; it is given in order of arrival.

        Args:
            group_id: the group's id.
            member: the member's id, or what else names the client that commits.
        """
        key = group_id, member
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
