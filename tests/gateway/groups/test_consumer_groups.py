"""Groups of the consumer protocol without a socket: timers, the fence, and two gateways at once."""

import asyncio
import random
from itertools import count

import pytest

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.coordinator import Member, OffsetsTable
from spark_log.gateway.groups import ConsumerGroups, ConsumerHeartbeat, GroupError
from spark_log.types import OffsetAndMetadata, TopicPartition

PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path):
    root = str(tmp_path / "root")
    opened = Cluster(root, create=True)
    Admin(root).create_topics([NewTopic("t", num_partitions=PARTITIONS)])
    yield opened
    opened.release()


class Timer:
    def __init__(self, delay_s, expire):
        self.delay_s, self.expire, self.is_set = delay_s, expire, True

    def cancel(self):
        self.is_set = False


class FakeGateway:
    """The groups of a gateway whose timers end when a test says so."""

    def __init__(self, cluster):
        self.timers = []
        self.is_coordinator = True
        self.groups = ConsumerGroups(
            cluster,
            asyncio.to_thread,
            is_coordinator=lambda _: self.is_coordinator,
            call_later=self._call_later,
        )

    def _call_later(self, delay_s, expire):
        timer = Timer(delay_s, expire)
        self.timers.append(timer)
        return timer

    def timer(self, kind, name=""):
        """Return the timer that is set for a member, or None."""
        self.timers = [each for each in self.timers if each.is_set]
        return next((each for each in self.timers if each.expire.args[2] == (kind, name)), None)

    async def end(self, kind, name=""):
        """End a timer, and wait until what it is for is done."""
        timer = self.timer(kind, name)
        timer.is_set = False
        before = asyncio.all_tasks()
        timer.expire()
        await asyncio.gather(*(asyncio.all_tasks() - before))


class Client:
    """A client that does what it is told, and reads and commits one record at a time.

    Attributes:
        owned: the partitions that it has, with the offset that it reads next.
    """

    def __init__(self, cluster, name):
        self.table = OffsetsTable(cluster)
        self.topic_id = cluster.image().find("t").topic_id
        self.name = name
        self.epoch = 0
        self.owned = {}

    async def heartbeat(self, gateway, **fields):
        """Return the answer's error."""
        if self.epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topics": ("t",), **fields}
            self.owned = {}
        owned = {self.topic_id: frozenset(self.owned)} if self.owned else {}
        answer = await gateway.groups.heartbeat(
            "g", ConsumerHeartbeat(Member(self.name), self.epoch, owned=owned, **fields)
        )
        if answer.error in (GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
        elif answer.error is GroupError.NONE:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.take(answer.assignment.get(self.topic_id, ()))
        return answer.error.name

    def take(self, partitions):
        self.owned = {
            each: self.owned[each] if each in self.owned else self.position(each)
            for each in partitions
        }

    def position(self, partition):
        found = self.table.fetch("g").get(TopicPartition("t", partition))
        return 0 if found is None else found.offset

    async def commit(self, gateway, partition):
        """Read and commit the next record; return the error."""
        offset = self.owned[partition] + 1
        offsets = {TopicPartition("t", partition): OffsetAndMetadata(offset, "", -1)}
        error = await gateway.groups.commit("g", self.name, None, self.epoch, offsets)
        if error is GroupError.NONE and partition in self.owned:
            self.owned[partition] = offset
        return error.name


@pytest.fixture
def gateway(cluster):
    return FakeGateway(cluster)


@pytest.fixture
def clients(cluster):
    return [Client(cluster, name) for name in "abc"]


async def settle(gateway, *clients):
    for _ in range(3):
        for each in clients:
            assert await each.heartbeat(gateway) == "NONE"


def test_a_member_without_heartbeats_expires(gateway, clients):
    async def run():
        a, b, _ = clients
        await settle(gateway, a, b)
        assert gateway.timer("session", "a").delay_s == 45
        await gateway.end("session", "a")
        await b.heartbeat(gateway)
        assert len(b.owned) == PARTITIONS
        assert await a.commit(gateway, next(iter(a.owned))) == "UNKNOWN_MEMBER_ID"
        assert gateway.timer("session", "a") is None

    asyncio.run(run())


def test_a_member_that_does_not_release_its_partitions_expires(gateway, clients):
    async def run():
        a, b, _ = clients
        await settle(gateway, a)
        assert gateway.timer("rebalance", "a") is None
        await b.heartbeat(gateway)
        assert gateway.timer("rebalance", "a").delay_s == 60
        await a.heartbeat(gateway)
        await gateway.end("rebalance", "a")
        await b.heartbeat(gateway)
        assert len(b.owned) == PARTITIONS

    asyncio.run(run())


def test_a_member_that_releases_its_partitions_in_time_stays(gateway, clients):
    async def run():
        a, b, _ = clients
        await settle(gateway, a, b)
        assert gateway.timer("rebalance", "a") is None
        assert len(a.owned) == len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


def test_a_gateway_that_clients_are_not_sent_to_expires_nobody(gateway, clients):
    async def run():
        a, *_ = clients
        await settle(gateway, a)
        gateway.is_coordinator = False
        await gateway.end("session", "a")
        assert not gateway.groups.has_loaded("g")
        assert await a.heartbeat(gateway) == "NONE"
        assert len(a.owned) == PARTITIONS

    asyncio.run(run())


def test_new_partitions_are_found(cluster, gateway, clients):
    async def run():
        a, *_ = clients
        await settle(gateway, a)
        Admin(cluster.root).create_partitions({"t": 6})
        await gateway.end("check")
        await a.heartbeat(gateway)
        assert len(a.owned) == 6
        assert gateway.timer("check") is not None

    asyncio.run(run())


def test_a_group_that_is_full_refuses_members(cluster, gateway, clients):
    async def run():
        Admin(cluster.root).alter_configs([ConfigResource("broker", "", {"group.max.size": "1"})])
        a, b, _ = clients
        await settle(gateway, a)
        assert await b.heartbeat(gateway) == "GROUP_MAX_SIZE_REACHED"

    asyncio.run(run())


def test_a_join_raises_the_fence_above_commits_without_membership(cluster, gateway, clients):
    async def run():
        table = OffsetsTable(cluster)
        table.fence("g", 7)
        a, *_ = clients
        await settle(gateway, a)
        assert a.epoch > 7
        assert table.generation("g") == a.epoch

    asyncio.run(run())


async def run_at_random(cluster, seed, steps):
    """Let clients come to two gateways at random; check that no commit sets another one back."""
    rng = random.Random(seed)
    gateways = [FakeGateway(cluster) for _ in range(2)]
    clients = [Client(cluster, name) for name in "abc"]
    table = OffsetsTable(cluster)
    newest = dict.fromkeys(range(PARTITIONS), 0)
    commits = 0

    def check():
        for tp, found in table.fetch("g").items():
            assert found.offset >= newest[tp.partition], f"seed {seed}: {tp} was set back"
            newest[tp.partition] = found.offset

    for _ in count():
        if (steps := steps - 1) < 0:
            break
        client, gateway = rng.choice(clients), rng.choice(gateways)
        action = rng.random()
        if action < 0.5 or not client.owned:
            await client.heartbeat(gateway)
        elif action < 0.85:
            both = [client.commit(gateway, rng.choice(list(client.owned)))]
            other = rng.choice(clients)
            if other is not client and rng.random() < 0.5:
                both.append(other.heartbeat(rng.choice(gateways)))
            commits += (await asyncio.gather(*both))[0] == "NONE"
        elif action < 0.95:
            name = rng.choice(clients).name
            if gateway.timer("session", name) is not None:
                await gateway.end("session", name)
        else:
            gateways[gateways.index(gateway)] = FakeGateway(cluster)  # it ended, with its memory
        check()
    for _ in range(4):  # clients agree on one gateway in the end, and all partitions are read
        for each in clients:
            while await each.heartbeat(gateways[0]) != "NONE":
                pass
    assert sorted(p for each in clients for p in each.owned) == list(range(PARTITIONS))
    return commits


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_of_a_former_owner_sets_nothing_back(cluster, seed):
    assert asyncio.run(run_at_random(cluster, seed, 60)) > 5
