"""Requests to join: a process that appends to a group's log adds all members that wait to join.

On storage: the first heartbeat of a member (`Heartbeats`) holds its request, until the next one
replaces it: ``"join": {"generation": n, "member": {…}}``. The generation is the group's when the
request was written. A process that ends at any point leaves a request that another process may
still accept: the member then expires, because it writes no heartbeats.

The rules: (protocol G4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from spark_log.coordinator.group.group import Group, Member
from spark_log.coordinator.group.heartbeats import Heartbeats
from spark_log.coordinator.group.records import MemberPart
from spark_log.errors import NotFoundError, StorageError
from spark_log.storage import FileInfo, file_name, newest_modified_us
from spark_log.types import TopicPartition
from spark_log.util import RecordFields


class JoinRequest(RecordFields):
    """A request to join.

    Attributes:
        generation: the group's generation when this was written; the member was not in it.
        member: the member, without partitions.
    """

    generation: int
    member: MemberPart

    def may_be_accepted(self, group: Group) -> bool:
        """Return whether the member was never in the group.

        A removed member must not return: its process may believe that it has kept its partitions,
        while others have committed them. A member joins, and is removed, only after its request was
        written: if no member was removed since then, this one was never in the group.
        """
        is_open = group.last_removal <= self.generation <= group.generation
        return is_open and self.member.member_id not in group.members


class JoinRequests:
    """The requests of processes that wait to join a group."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        """Return the requests of a group; nothing is read yet.

        Args:
            heartbeats: the heartbeats of the group.
        """
        self._heartbeats = heartbeats

    def count(self, group: Group) -> int:
        """Return the approximate number of processes that wait; costs one listing."""
        return len(self._waiting(group)[0])

    def members(self, group: Group) -> list[Member]:
        """Return the members that wait to join, without partitions.

        Costs one listing, and a read of each request. A request that is older than its session
        timeout, by the storage's time, belongs to a dead process: it is deleted. Requests that
        cannot be read are left out.
        """
        files, now_us = self._waiting(group)
        return list(self._open_requests(group, files, now_us))

    def _open_requests(self, group: Group, files: list[FileInfo], now_us: int) -> Iterator[Member]:
        for file in files:
            request = self._read(file.name)
            if request is None or file_name(request.member.member_id) != file.name:
                continue
            timeout_us = request.member.session_timeout_ms * 1000
            if now_us - file.modified_us > timeout_us:
                self._heartbeats.forget([request.member.member_id])
            elif request.may_be_accepted(group):
                nothing: frozenset[TopicPartition] = frozenset()
                member = Member.of(request.member)
                yield replace(member, owned=nothing, revoking=nothing, pending=nothing)

    def _read(self, name: str) -> JoinRequest | None:
        where, suppressed = self._heartbeats.directory, self._heartbeats.suppressed
        with suppressed.suppress("reading of join requests", where, StorageError, ValidationError):
            try:
                found = self._heartbeats.join_request(name)
            except NotFoundError:  # its process gave up
                return None
            return None if found is None else JoinRequest.model_validate(found)
        return None

    def _waiting(self, group: Group) -> tuple[list[FileInfo], int]:
        """Return the heartbeat files of processes that are no members, and the storage's time."""
        members = {file_name(member_id) for member_id in group.members}
        try:
            files = self._heartbeats.list()
        except StorageError as error:
            self._heartbeats.suppressed.add(
                "reading of join requests", self._heartbeats.directory, error
            )
            return [], 0
        return [file for file in files if file.name not in members], newest_modified_us(files)


def join_request(member: Member, generation: int) -> dict[str, Any]:
    """Return the stored form of a member's request to join."""
    request = JoinRequest(generation=generation, member=member.to_part())
    return request.model_dump(by_alias=True)
