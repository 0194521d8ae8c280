"""A member with its thread, on a local root: it reads changes, and keeps its membership."""

import threading
from contextlib import ExitStack
from itertools import count

import pytest

from spark_log.config import ConsumerConfig
from spark_log.coordinator.group.member import GroupMember
from spark_log.errors import FencedInstanceIdError, UnknownMemberIdError
from spark_log.storage.local import LocalStore
from spark_log.util.clock import ManualClock
from tests.coordinator.group_support import FakeCluster, partitions

ALL = partitions("t", 0, 1, 2, 3)
LONG_S = 30


class Members:
    """Creates members, and waits until they have read a change."""

    def __init__(self, store, clock, stack):
        self.changed = threading.Condition()
        self.cluster = FakeCluster(store, clock, t=4)
        self._stack = stack
        self._names = (f"m{number}" for number in count())  # in the order of the range assignor

    def new(self, **config):
        config.setdefault("client_id", next(self._names))
        return self._stack.enter_context(
            GroupMember(
                self.cluster,
                "g",
                config=ConsumerConfig.parse({"session_timeout_ms": 6000, **config}),
                on_change=self._tell,
            )
        )

    def joined(self, **config):
        member = self.new(**config)
        member.join(["t"])
        return member

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, LONG_S)

    def _tell(self):
        with self.changed:
            self.changed.notify_all()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def members(tmp_path, clock):
    store = LocalStore(str(tmp_path / "root"))
    store.create_root()
    with ExitStack() as stack:
        yield Members(store, clock, stack)


def test_sees_by_itself_that_others_join_and_leave(members):
    a = members.joined()
    assert a.poll().assigned == ALL
    b = members.joined()
    members.wait(lambda: a.poll().revoking)
    a.release(a.poll().revoking)
    members.wait(lambda: b.poll().assigned == partitions("t", 2, 3))
    b.close()
    members.wait(lambda: a.poll().assigned == ALL)


def test_tells_once_that_something_changed(members):
    a = members.joined()
    assert not a.is_changed()
    b = members.joined()
    members.wait(a.is_changed)
    a.poll()
    assert not a.is_changed()
    assert b.poll().generation == a.poll().generation
    assert b.poll().member_id != a.poll().member_id


def test_who_does_not_poll_leaves(members, clock, caplog):
    a, b = members.joined(max_poll_interval_ms=1000), members.joined()
    clock.advance_ms(1500)
    members.wait(lambda: b.poll().assigned == ALL)
    with pytest.raises(UnknownMemberIdError, match=r"max\.poll\.interval\.ms"):
        a.poll()
    assert a.join(["t"]).generation > 3, "it may join again"
    (warning,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert "it did not poll for 2 s, more than max.poll.interval.ms" in warning


def test_who_is_fenced_is_told(members):
    a = members.joined(group_instance_id="i")
    back = members.joined(group_instance_id="i")
    assert back.poll().assigned == ALL
    members.wait(a.is_changed)
    with pytest.raises(FencedInstanceIdError):
        a.poll()


def test_a_static_member_that_closes_keeps_its_place(members):
    a, b = members.joined(group_instance_id="i"), members.joined()
    members.wait(lambda: a.poll().revoking)
    a.release(a.poll().revoking)
    a.close()
    back = members.joined(group_instance_id="i")
    assert back.poll().assigned == partitions("t", 0, 1)
    members.wait(lambda: b.poll().generation == back.poll().generation)
    assert b.poll().assigned == partitions("t", 2, 3)


def test_closing_twice_is_harmless_and_ends_its_thread(members):
    a = members.joined()
    a.close()
    a.close()
    names = [thread.name for thread in threading.enumerate()]
    assert "spark-log-group-g" not in names
    with pytest.raises(UnknownMemberIdError):
        a.poll()
