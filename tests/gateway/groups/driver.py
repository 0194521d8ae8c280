"""Drives a classic group without a gateway: each event is decided, written and answered at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from spark_log.coordinator.group.classic import ClassicMember
from spark_log.coordinator.group.group import Group
from spark_log.gateway.groups import GroupLimits, JoinRequest, MemberIdentity
from spark_log.gateway.groups import classic_decisions as decisions

SESSION_MS, REBALANCE_MS = 10_000, 60_000
LIMITS = GroupLimits(4, 3000, 6000, 1_800_000)
PROTOCOLS = (("range", b"r"), ("sticky", b"s"))

MOST_EXPIRIES = 100
"""More timeouts than a group waits for its members."""


class Driver:
    """A group in memory, its answers by request, and the timers that are set."""

    def __init__(self, group: Group | None = None, limits: GroupLimits = LIMITS, fence: int = 0):
        self.limits = limits
        self.answers: dict[int, Any] = {}
        self.timers: dict[tuple[str, str], float] = {}
        self.changes: list[str] = []
        self._tokens = count()
        self._ids = count(1)
        self._adopt(decisions.load(group or Group("g"), fence))

    def join(
        self,
        name="",
        *,
        instance=None,
        protocols=PROTOCOLS,
        kind="consumer",
        known_id=True,
        skips=True,
        session_ms=SESSION_MS,
    ):
        """Send a JoinGroup; return its token."""
        member = ClassicMember(
            name, instance, "c", "/host", REBALANCE_MS, session_ms, tuple(protocols)
        )
        request = JoinRequest(member, kind, known_id, skips)
        new_id = f"m{next(self._ids)}"
        return self._apply(
            lambda state, token: decisions.join(state, request, token, new_id, self.limits)
        )

    def join_fully(self, **how):
        """Join as clients do: with the id that the first answer gives; return id and token."""
        token = self.join(**how)
        if how.get("instance") is not None or not how.get("known_id", True):
            return None, token
        name = self.answers[token].member_id
        return name, self.join(name, **how)

    def sync(self, name, generation=None, assignments=None, protocol=(None, None), instance=None):
        generation = self.state.generation if generation is None else generation
        identity = MemberIdentity(name, instance)
        return self._apply(
            lambda state, token: decisions.sync(
                state, identity, generation, protocol, assignments or {}, token
            )
        )

    def heartbeat(self, name, generation=None, instance=None):
        """Return the error of a heartbeat."""
        generation = self.state.generation if generation is None else generation
        identity = MemberIdentity(name, instance)
        token = self._apply(
            lambda state, token: decisions.heartbeat(state, identity, generation, token)
        )
        return self.answers[token].error.name

    def leave(self, *identities):
        """Return the errors of a LeaveGroup."""
        members = [
            MemberIdentity(*each) if isinstance(each, tuple) else MemberIdentity(each)
            for each in identities
        ]
        token = self._apply(
            lambda state, token: decisions.leave(state, members, token, self.limits)
        )
        return [error.name for error in self.answers[token].errors]

    def commit_error(self, name, generation=None, instance=None):
        generation = self.state.generation if generation is None else generation
        identity = MemberIdentity(name, instance)
        return decisions.check_commit(self.state, identity, generation).name

    def expire(self, kind, name=""):
        """End a timer."""
        del self.timers[kind, name]
        self._adopt(decisions.expire(self.state, (kind, name), self.limits))

    def begin(self):
        """End the wait for members, however often it is repeated."""
        for _ in range(MOST_EXPIRIES):
            if self.phase != "PreparingRebalance":
                return
            self.expire("join")
        raise AssertionError(f"the group waits for members after {MOST_EXPIRIES} timeouts")

    def error(self, token):
        return self.answers[token].error.name

    @property
    def phase(self):
        return self.state.classic.state

    def reload(self):
        """Return the group as another gateway finds it in the log."""
        return Driver(self.state.logged, self.limits, self.state.fence)

    def stable(self, members=2, **how):
        """Bring the group to its first assignment; return the ids, the leader first."""
        joined = [self.join_fully(**how) for _ in range(members)]
        self.begin()
        names = [self.answers[token].member_id for _, token in joined]
        assignments = {name: name.encode() for name in names}
        for name in names:
            self.sync(name, assignments=assignments if name == names[0] else None)
        assert self.phase == "Stable"
        return names

    def _apply(self, decide: Callable[..., Any]):
        token = next(self._tokens)
        self._adopt(decide(self.state, token))
        return token

    def _adopt(self, decision):
        if decision.change is not None:
            # Through the bytes of the record, as another gateway would read it.
            before = getattr(self, "state", None)
            assert before is not None
            record = decision.state.logged.to_record(
                decision.change, decision.changed_members, "an id"
            )
            logged = before.logged.replay(type(record).model_validate_json(_data(record)))
            assert logged == decision.state.logged
            self.changes.append(decision.change)
            fence = logged.generation if decision.change == "sync" else decision.state.fence
            decision = replace(decision, state=replace(decision.state, logged=logged, fence=fence))
        self.state = decision.state
        for token, answer in decision.answers:
            assert token not in self.answers, "answered twice"
            self.answers[token] = answer
        for timer in decision.timers:
            if timer.delay_ms is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.delay_ms


def _data(record):
    return json.dumps(json.loads(record.to_json())["data"])
