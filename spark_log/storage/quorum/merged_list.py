"""One listing from those of a majority of the members."""

from __future__ import annotations

from collections.abc import Iterator

from spark_log.storage.quorum.members import Members
from spark_log.storage.quorum.read_repair import look_up
from spark_log.storage.store import FileInfo, Store

Holders = dict[int, FileInfo]
"""A file, by number of the member that holds it."""


def merged_list(
    members: Members, directory: str, start_after: str | None
) -> Iterator[tuple[FileInfo, Holders]]:
    """Yield each file of a directory, on a majority of the members, in byte order of the names.

    Raises:
        MembershipChangedError: a member has a newer list of the members.
        StorageError: a majority does not answer.
    """

    def files(store: Store) -> list[FileInfo]:
        return list(store.list(directory, start_after))

    found = members.request(files)
    if len(found.counted) < members.majority:
        raise members.no_majority(directory, found)
    holders: dict[str, Holders] = {}
    for number in sorted(found.answers):
        for file in found.answers[number]:
            holders.setdefault(file.path, {})[number] = file
    for path in sorted(holders, key=str.encode):
        shown = holders[path]
        if len(shown) < members.majority:
            shown = look_up(members, path)
        if shown:
            yield newest(shown), shown


def newest(holders: Holders) -> FileInfo:
    """Return the newest copy of a file; of those with one time the first member's.

    Members have clocks of their own. The newest time makes no file look older than it is.
    """
    return max(holders.values(), key=lambda file: file.modified_us)
