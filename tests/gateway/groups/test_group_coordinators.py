"""Classic groups at a gateway that clients are not sent to any more: its timers and its commits."""

import asyncio

import pytest

from spark_log.admin import Admin
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.classic import ClassicMember
from spark_log.gateway.groups import GroupCoordinators, GroupError, JoinRequest, MemberIdentity
from spark_log.types import NewTopic, OffsetAndMetadata, TopicPartition
from tests.waiting import TIMEOUT_S

T0 = TopicPartition("t", 0)
MEMBER = ClassicMember("", "one", "c", "/host", 60_000, 10_000, (("range", b""),))


class Timer:
    def __init__(self, expire):
        self.expire, self.is_set = expire, True

    def cancel(self):
        self.is_set = False


async def _on_a_thread(call, *args):
    return await asyncio.to_thread(call, *args)


class FakeGateway:
    """The classic groups of a gateway whose timers end when a test says so."""

    def __init__(self, cluster):
        self.is_coordinator = True
        self.turns = []  # what the next calls of `_is_coordinator` return
        self.timers = {}
        self._changed = asyncio.Event()
        self.groups = GroupCoordinators(
            cluster,
            _on_a_thread,
            is_coordinator=self._is_coordinator,
            call_later=self._call_later,
        )

    def _is_coordinator(self, _):
        if self.turns:
            self.is_coordinator = self.turns.pop(0)
        return self.is_coordinator

    def _call_later(self, _, expire):
        timer = Timer(expire)
        self.timers[expire.args[0]] = timer
        self._changed.set()
        return timer

    async def end(self, kind):
        """Wait until a timer of a kind is set, end it, and wait until what it is for is done."""
        async with asyncio.timeout(TIMEOUT_S):
            while not any(key[0] == kind and each.is_set for key, each in self.timers.items()):
                self._changed.clear()
                await self._changed.wait()
        (timer,) = (each for key, each in self.timers.items() if key[0] == kind and each.is_set)
        timer.is_set = False
        before = asyncio.all_tasks()
        timer.expire()
        await asyncio.gather(*(asyncio.all_tasks() - before))


@pytest.fixture
def cluster(tmp_path):
    root = str(tmp_path / "root")
    opened = Cluster(root, create=True)
    Admin(root).create_topics([NewTopic("t")])
    yield opened
    opened.release()


async def _join(gateway):
    """Join alone; return the member and its generation."""
    joining = asyncio.create_task(
        gateway.groups.join("g", JoinRequest(MEMBER, "consumer", False, True))
    )
    await gateway.end("join")
    joined = await joining
    assert joined.error is GroupError.NONE
    identity = MemberIdentity(joined.member_id, "one")
    synced = await gateway.groups.sync(
        "g", identity, joined.generation, ("consumer", "range"), {joined.member_id: b"a"}
    )
    assert synced.error is GroupError.NONE
    return identity, joined.generation


@pytest.mark.parametrize("is_coordinator", [True, False])
def test_only_the_gateway_that_clients_are_sent_to_expires_members(cluster, is_coordinator):
    async def run():
        gateway = FakeGateway(cluster)
        identity, generation = await _join(gateway)
        gateway.is_coordinator = is_coordinator
        await gateway.end("session")

        async def heartbeat(gateway):
            answer = await gateway.groups.heartbeat("g", identity, generation)
            return answer.error

        if is_coordinator:
            assert await heartbeat(gateway) is GroupError.UNKNOWN_MEMBER_ID
            return
        # Members that still come here are sent to the other gateway, which continues.
        assert await heartbeat(gateway) is GroupError.NOT_COORDINATOR
        assert await heartbeat(FakeGateway(cluster)) is GroupError.NONE
        gateway.is_coordinator = True
        assert await heartbeat(gateway) is GroupError.NONE

    asyncio.run(run())


def test_a_gateway_that_clients_are_not_sent_to_commits_nothing(cluster):
    """A gateway that stood still finds commits in its sockets whose clients asked another one."""

    async def run():
        late, other = FakeGateway(cluster), FakeGateway(cluster)
        identity, generation = await _join(late)

        async def commit(gateway, offset):
            return await gateway.groups.commit(
                "g", identity, generation, {T0: OffsetAndMetadata(offset)}
            )

        assert await commit(other, 7) is GroupError.NONE
        late.turns = [False]
        assert await commit(late, 5) is GroupError.NOT_COORDINATOR
        late.turns = [True, True, False]  # it stands still after it has accepted the request
        assert await commit(late, 5) is GroupError.COORDINATOR_NOT_AVAILABLE
        assert OffsetsTable(cluster).fetch("g")[T0].offset == 7
        late.turns = [True]
        assert await commit(late, 8) is GroupError.NONE

    asyncio.run(run())
