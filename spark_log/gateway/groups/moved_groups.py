"""The groups that a gateway has left to the one that clients are sent to."""

from __future__ import annotations

from collections.abc import Callable


class MovedGroups:
    """The groups of whose members some may send their heartbeats to another gateway.

    This gateway cannot tell which of them live, so it expires none. It leaves such a group, and
    sends the members that still come to the other gateway: so one gateway sees all of them.
    """

    def __init__(self, is_coordinator: Callable[[str], bool]) -> None:
        """Return no groups.

        Args:
            is_coordinator: whether clients are sent to this gateway for a group.
        """
        self._is_coordinator = is_coordinator
        self._left: set[str] = set()

    def is_sent_elsewhere(self, group_id: str) -> bool:
        """Return whether clients are sent to another gateway for a group."""
        return not self._is_coordinator(group_id)

    def add(self, group_id: str) -> None:
        """Add a group that this gateway leaves."""
        self._left.add(group_id)

    def __contains__(self, group_id: str) -> bool:
        """Return whether a group was left, and clients are still sent to another gateway for it."""
        if group_id in self._left and self._is_coordinator(group_id):
            self._left.remove(group_id)
        return group_id in self._left
