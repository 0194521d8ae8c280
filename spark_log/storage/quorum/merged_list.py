"""Merges the listings of a majority of the members into one."""

from __future__ import annotations

from collections.abc import Iterator

from spark_log.storage.quorum.members import Members
from spark_log.storage.quorum.read_repair import look_up
from spark_log.storage.store import FileInfo, Store

Holders = dict[int, FileInfo]
"""Member number → the file on this member."""


def merged_list(
    members: Members, directory: str, start_after: str | None
) -> Iterator[tuple[FileInfo, Holders]]:
    """Yield the files of a directory, in byte order of their names, each with its holders.

    A file that only a minority holds is put on a majority first, or is left out if it is gone.

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
    """Return the newest copy of a file; of copies with the same time, the first member's.

    The clocks of members differ: with the newest time, no file looks older than it is.
    """
    return max(holders.values(), key=lambda file: file.modified_us)
