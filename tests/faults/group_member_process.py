"""A process that is one consumer of a group, and may be killed or stopped at any moment.

It notes a line for each partition of each poll: ``took`` before its records are handled and
``handled`` after that, with member and generation; and the outcome of each commit. A commit has an
id, which is also its metadata in the offsets table. Its polls are also noted as a history.
"""

import faulthandler
import logging
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import spark_log.coordinator.group.member
import spark_log.coordinator.offsets.maintenance  # noqa: F401 - before the fork, not after
from spark_log import Consumer, ConsumerRebalanceListener, OffsetAndMetadata
from spark_log.consumer.group.group_membership import GroupMembership
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    StorageError,
    UnknownMemberIdError,
    UnknownOutcomeError,
)
from spark_log.testing.history import Polled
from tests.faults.fast_clock import FastClock
from tests.faults.notes import Notes
from tests.faults.operation_notes import OperationNotes

GROUP = "chaos"
_POLL_MS = 100
_SLOW_S = 0.02


@dataclass(frozen=True)
class MemberRole:
    """The role of one member.

    Attributes:
        root: the cluster's root.
        storage_options: the root's options.
        name: the name of the process, and the member's ``client.id``.
        notes: path of its notes; its ``stderr`` goes to a file beside them.
        topics: the topics to subscribe to, or one pattern (``^…``).
        commits: ``sync``, ``async`` or ``auto``.
        settings: the consumer's configs.
        without: name in `LEAVE_OUT` of a safety rule that this member leaves out.
    """

    root: str
    storage_options: dict[str, str] | None
    name: str
    notes: str
    topics: tuple[str, ...]
    commits: str
    settings: dict[str, Any] = field(default_factory=dict)
    without: str | None = None


def consume_until_stopped(role: MemberRole, orders: Connection):
    """Consume, carry out the orders from the pipe, and leave the group when it is closed."""
    sys.stderr = open(f"{role.notes}.stderr", "w", buffering=1)  # noqa: SIM115 - until it ends
    os.dup2(sys.stderr.fileno(), 2)
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr, force=True
    )
    with Notes(role.notes) as notes, OperationNotes(role.notes) as operations:
        process = LEAVE_OUT[role.without] if role.without else GroupProcess
        member = process(role, notes, operations, orders)
        try:
            while member.obeys():
                member.step()
            member.close()
        except FencedInstanceIdError:
            notes.write("fenced")
            member.abandon()
        notes.write("ended")


class GroupProcess(ConsumerRebalanceListener):
    """Polls, handles and commits; carries out an order by the method ``_<name of the order>``."""

    def __init__(self, role, notes, operations, orders):
        self._role = role
        self._notes = notes
        self._operations = operations
        self._orders = orders
        self._hesitates = False
        self._chance = random.Random(role.name)
        self._consumer = Consumer(
            root=role.root,
            storage_options=role.storage_options,
            group_id=GROUP,
            clock=FastClock(),
            client_id=role.name,
            auto_offset_reset="earliest",
            enable_auto_commit=role.commits == "auto",
            **role.settings,
        )
        self._handled = {}
        self._commits = 0
        self._subscribe(role.topics)

    def obeys(self):
        """Carry out orders; return False when the pipe is closed."""
        while self._orders.poll():
            if self._obey() is None:
                return False
        return True

    def step(self):
        records = self._consumer.poll(_POLL_MS, max_records=self._chance.choice([20, 100, 500]))
        if records:
            self._note_poll(records)
        self._handle(records)
        if records and self._hesitates:
            self._notes.write("hesitates")
            while self._obey() not in ("go_on", None):
                pass
            self._commit_by_hand(self._handled)
        elif not records or self._chance.random() < 0.5:
            self._commit_by_hand(self._handled)

    def close(self):
        self._commit_by_hand(self._handled)
        self._consumer.close()

    def abandon(self):
        """End after another process has taken over the instance id."""
        self._consumer.close()

    # --- the listener -----------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned):
        self._operations.assign(assigned)

    def on_partitions_revoked(self, revoked):
        self._commit_by_hand({each: self._handled[each] for each in revoked & self._handled.keys()})
        self._drop(revoked)

    def on_partitions_lost(self, lost):
        self._drop(lost)

    def _drop(self, partitions):
        for named in partitions:
            self._handled.pop(named, None)

    # --- orders -----------------------------------------------------------------------------------

    def _obey(self):
        """Wait for an order, carry it out, and return its name; None: the pipe is closed."""
        try:
            order, *arguments = self._orders.recv()
        except EOFError:
            return None
        getattr(self, f"_{order}")(*arguments)
        self._notes.write("obeyed", order)
        return order

    def _dawdle(self, pause_s):
        """Stop polling for a time."""
        time.sleep(pause_s)

    def _hesitate(self):
        """Wait for ``go_on`` between the next records and their commit."""
        self._hesitates = True

    def _go_on(self):
        self._hesitates = False

    def _subscribe(self, topics):
        if topics[0].startswith("^"):
            self._consumer.subscribe(pattern=topics[0], listener=self)
        else:
            self._consumer.subscribe(topics, listener=self)

    # --- helpers ----------------------------------------------------------------------------------

    def _place(self):
        """Return the generation and the member id of the last poll."""
        metadata = self._consumer.group_metadata()
        return (metadata.generation_id, metadata.member_id)

    def _note_poll(self, records):
        polled = []
        for tp, those in records.items():
            for record in those:
                assert isinstance(record.value, bytes)
                polled.append(Polled(tp, record.offset, record.value.decode()))
        self._operations.poll(*polled)

    def _handle(self, records):
        for named, those in records.items():
            line = *self._place(), *named, those[0].offset, those[-1].offset
            self._notes.write("took", *line)
            if self._chance.random() < 0.05:
                time.sleep(_SLOW_S)  # the work, during which a signal may arrive
            self._notes.write("handled", *line)
            self._handled[named] = those[-1].offset + 1

    def _commit_by_hand(self, offsets):
        if not offsets or self._role.commits == "auto":
            return
        self._commits += 1
        name = f"{self._role.name}:{self._commits}"
        positions = {named: OffsetAndMetadata(at, name) for named, at in offsets.items()}
        if self._role.commits == "async":
            self._consumer.commit_async(positions, lambda _, error: self._note(name, error))
        else:
            try:
                self._consumer.commit(positions)
            except (CommitFailedError, UnknownOutcomeError, StorageError) as error:
                self._note(name, error)
            else:
                self._note(name, None)
        for named in list(offsets):
            self._handled.pop(named, None)

    def _note(self, name, error):
        self._notes.write(_outcome(error), name, *([type(error).__name__] if error else []))


def _outcome(error):
    if error is None:
        return "committed"
    return "refused" if isinstance(error, CommitFailedError) else "unknown"


# --- rules that a member may do without, to see that a test notices -------------------------------


class UnfencedCommits(MemberCommits[Any]):
    """Commits in the newest generation, even if the member is not in it."""

    def commit(self, offsets, topic_ids):
        with suppress(UnknownMemberIdError):  # then it uses the last known generation
            self.status = self._status()
        table: Any = self._table
        for _ in range(100):
            generation = max(self.status.generation, table.generation(self._group_id))
            with suppress(IllegalGenerationError):
                table.commit(
                    self._group_id,
                    offsets,
                    generation=generation,
                    member_id=self.status.member_id,
                    topic_ids=topic_ids,
                )
                return


class CommitsWithoutFence(GroupProcess):
    """Commits what it has handled, in the newest generation."""

    def __init__(self, role, notes, operations, orders):
        super().__init__(role, notes, operations, orders)

        patch.object(MemberCommits, "commit", UnfencedCommits.commit).start()


class ReadsWhatIsNotItsOwn(GroupProcess):
    """Handles at times a record of a partition that it does not own."""

    def _handle(self, records):
        super()._handle(records)
        if records and self._chance.random() < 0.2:
            (named, those), generation = next(iter(records.items())), self._place()
            other = named._replace(partition=(named.partition + 1) % 4)
            line = *generation, *other, those[0].offset, those[0].offset
            self._notes.write("took", *line)
            self._notes.write("handled", *line)


class NeverRejoins(GroupProcess):
    """Never notices that it is no longer a member."""

    def step(self):
        member = self._consumer._runtime.group.membership  # noqa: SLF001 - leaves a rule out
        assert isinstance(member, GroupMembership)
        try:
            if member._member is not None:  # noqa: SLF001
                member._member.poll()  # noqa: SLF001
        except UnknownMemberIdError:
            time.sleep(0.1)
            return
        super().step()


class Skips(GroupProcess):
    """Commits at times records that it has not handled."""

    def _handle(self, records):
        if self._chance.random() < 0.05:
            self._handled.update({named: each[-1].offset + 1 for named, each in records.items()})
            return
        super()._handle(records)


LEAVE_OUT = {
    "fence": CommitsWithoutFence,
    "ownership": ReadsWhatIsNotItsOwn,
    "rejoining": NeverRejoins,
    "handling": Skips,
}
