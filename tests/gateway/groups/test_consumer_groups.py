"""Groups of the consumer protocol without a socket: timers, the fence, and two gateways at once."""

import asyncio
import random

import pytest

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.coordinator import ClassicMember as ClassicGroupMember
from spark_log.coordinator import Member, OffsetsTable
from spark_log.gateway.groups import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroups,
    ConsumerHeartbeat,
    GroupCoordinators,
    GroupError,
    JoinRequest,
    MemberIdentity,
)
from spark_log.types import OffsetAndMetadata, TopicPartition

PARTITIONS = 4
MOST_HEARTBEATS = 100
"""More heartbeats than a client sends until a gateway has taken it in."""


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


async def _on_a_thread(call, *args):
    return await asyncio.to_thread(call, *args)


class FakeGateway:
    """The groups of a gateway whose timers end when a test says so.

    Attributes:
        may_run: lets its calls of the storage begin.
        may_return: lets them return.
        has_run: a call waits for that.
    """

    def __init__(self, cluster):
        self.timers = []
        self.is_coordinator = True
        self.may_run, self.may_return, self.has_run = (asyncio.Event() for _ in range(3))
        self.may_run.set()
        self.may_return.set()
        self.groups = ConsumerGroups(
            cluster,
            self._run_blocking,
            is_coordinator=lambda _: self.is_coordinator,
            call_later=self._call_later,
        )

    async def _run_blocking(self, call, *args):
        await self.may_run.wait()
        result = await _on_a_thread(call, *args)
        if not self.may_return.is_set():
            self.has_run.set()
            await self.may_return.wait()
        return result

    def _call_later(self, delay_s, expire):
        timer = Timer(delay_s, expire)
        self.timers.append(timer)
        return timer

    def timer(self, kind, name=""):
        """Return the timer that is set for a member, or None."""
        self.timers = [each for each in self.timers if each.is_set]
        return next((each for each in self.timers if each.expire.args[0] == (kind, name)), None)

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
        acquired: how often it got each partition.
        last_owner: the client that got each partition last, and how often it had; of all clients.
    """

    def __init__(self, cluster, name, last_owner=None):
        self.last_owner = {} if last_owner is None else last_owner
        self.table = OffsetsTable(cluster)
        self.topic_id = cluster.image().find("t").topic_id
        self.name = name
        self.epoch = 0
        self.owned = {}
        self.acquired = {}

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
        self.acquired[partition] = self.acquired.get(partition, 0) + 1
        self.last_owner[partition] = self.name, self.acquired[partition]
        found = self.table.fetch("g").get(TopicPartition("t", partition))
        return 0 if found is None else found.offset

    def read(self, partition, records=1):
        """Read records; return the commit that may be sent for them."""
        self.owned[partition] += records
        offsets = {TopicPartition("t", partition): OffsetAndMetadata(self.owned[partition], "", -1)}
        return self.epoch, offsets

    async def commit(self, gateway, partition, records=1):
        """Read and commit; return the error."""
        return await self.send(gateway, self.read(partition, records))

    async def send(self, gateway, commit):
        return (await gateway.groups.commit("g", self.name, None, *commit)).name


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
        assert gateway.timer("rebalance", "a") is None  # it has not been told
        await a.heartbeat(gateway)
        timer = gateway.timer("rebalance", "a")
        assert timer.delay_s == 60
        a.take(range(PARTITIONS))  # it is late
        await a.heartbeat(gateway)
        assert gateway.timer("rebalance", "a") is timer
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
        assert await a.heartbeat(gateway) == "NOT_COORDINATOR"  # so that one gateway sees all
        gateway.is_coordinator = True
        assert await a.heartbeat(gateway) == "NONE"
        assert len(a.owned) == PARTITIONS

    asyncio.run(run())


def test_a_gateway_that_clients_are_not_sent_to_commits_nothing(cluster, gateway, clients):
    async def run():
        a, *_ = clients
        await settle(gateway, a)
        other = FakeGateway(cluster)
        t0 = TopicPartition("t", 0)

        async def commit(at, offset):
            return await at.groups.commit(
                "g", a.name, None, a.epoch, {t0: OffsetAndMetadata(offset)}
            )

        assert await commit(other, 7) is GroupError.NONE
        gateway.is_coordinator = False
        assert await commit(gateway, 5) is GroupError.NOT_COORDINATOR
        turns = [True, False]  # it stands still after it has accepted the request
        gateway.groups._is_coordinator = lambda _: turns.pop(0)  # noqa: SLF001
        assert await commit(gateway, 5) is GroupError.COORDINATOR_NOT_AVAILABLE
        gateway.groups._is_coordinator = lambda _: True  # noqa: SLF001
        late = await gateway.groups.commit(
            "g", a.name, None, a.epoch, {t0: OffsetAndMetadata(5)}, lambda _: False
        )
        assert late is GroupError.COORDINATOR_NOT_AVAILABLE  # it has the group again, since when?
        assert OffsetsTable(cluster).fetch("g")[t0].offset == 7

    asyncio.run(run())


def test_a_group_has_timeouts_of_its_own_within_a_check(cluster, gateway, clients):
    async def run():
        a, *_ = clients
        await settle(gateway, a)
        assert gateway.timer("session", "a").delay_s == 45
        timeouts = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": 7000}
        Admin(cluster.root).alter_configs([ConfigResource("group", "g", timeouts)])
        await gateway.end("check")
        request = ConsumerHeartbeat(Member("a"), a.epoch)
        assert (await gateway.groups.heartbeat("g", request)).interval_ms == 7000
        assert gateway.timer("session", "a").delay_s == 50

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


def test_a_member_releases_nothing_before_it_has_learned_what_it_has(gateway, clients):
    """librdkafka says everything again while it takes partitions, and names those of before."""

    async def run():
        a, b, _ = clients
        everything = {"rebalance_timeout_ms": 60_000, "topics": ("t",)}
        assert await a.heartbeat(gateway) == "NONE"  # its callback has not taken them yet
        taken, a.owned = a.owned, {}
        assert await b.heartbeat(gateway) == "NONE"
        assert await a.heartbeat(gateway, **everything) == "NONE"
        a.owned = taken
        await b.heartbeat(gateway)
        assert not b.owned
        assert await a.commit(gateway, PARTITIONS - 1) == "NONE"
        await a.heartbeat(gateway)  # names all, and is told to revoke
        await b.heartbeat(gateway)
        assert not b.owned
        await a.heartbeat(gateway, **everything)  # releases, if it has not learned more meanwhile
        await b.heartbeat(gateway)
        assert not b.owned
        without_news = ConsumerHeartbeat(Member("a"), a.epoch)
        assert (await gateway.groups.heartbeat("g", without_news)).error is GroupError.NONE
        await b.heartbeat(gateway)
        assert len(a.owned) == len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


class TakingClient:
    """A member that sends what it is told to send, for the time while it takes partitions.

    Attributes:
        owned: the partitions in the last answer.
    """

    def __init__(self, cluster, gateway):
        self.topic_id = cluster.image().find("t").topic_id
        self.gateway = gateway
        self.epoch = 0
        self.owned = ()

    async def say(self, owned=None, *, everything=False):
        """Send a heartbeat that names partitions, or none if they are unchanged."""
        named = {self.topic_id: frozenset(owned)} if owned else {}
        request = ConsumerHeartbeat(
            Member("a"),
            self.epoch,
            rebalance_timeout_ms=60_000 if everything else None,
            topics=("t",) if everything else None,
            owned=None if owned is None else named,
        )
        answer = await self.gateway.groups.heartbeat("g", request)
        assert answer.error is GroupError.NONE
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.get(self.topic_id, ())


@pytest.mark.parametrize("is_loaded", [False, True], ids=["told here", "told elsewhere"])
def test_what_a_member_is_about_to_take_is_not_released_by_what_it_said_before(
    cluster, gateway, clients, is_loaded
):
    """It lost its coordinator, says everything again, and then nothing while it takes them."""

    async def run():
        a, b = TakingClient(cluster, gateway), clients[1]
        await a.say([], everything=True)
        assert len(a.owned) == PARTITIONS
        if is_loaded:
            a.gateway = FakeGateway(cluster)
        assert await b.heartbeat(a.gateway) == "NONE"
        await a.say([], everything=True)
        for _ in range(10):
            await a.say()
            await b.heartbeat(a.gateway)
            assert not b.owned
        await a.say(range(PARTITIONS))  # it has taken them
        await a.say(a.owned)
        await b.heartbeat(a.gateway)
        assert len(a.owned) == len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


def test_what_a_member_never_took_is_released_once_it_knows_that_it_has_it_no_more(
    cluster, gateway, clients
):
    async def run():
        a, b = TakingClient(cluster, gateway), clients[1]
        await a.say([], everything=True)
        assert len(a.owned) == PARTITIONS
        assert await b.heartbeat(gateway) == "NONE"
        await a.say()  # it is told what is left, before it has begun to take anything
        assert len(a.owned) == PARTITIONS // 2
        await a.say(a.owned)
        await b.heartbeat(gateway)
        assert len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


async def share(gateway, a, b):
    """Let two members share the topic; the first one has nothing more to say."""
    await a.say([], everything=True)
    await a.say(range(PARTITIONS))
    assert await b.heartbeat(gateway) == "NONE"
    await a.say()
    await a.say(a.owned)
    await b.heartbeat(gateway)
    assert len(a.owned) == len(b.owned) == PARTITIONS // 2


async def leave(gateway, client):
    request = ConsumerHeartbeat(Member(client.name), LEAVE_EPOCH)
    assert (await gateway.groups.heartbeat("g", request)).error is GroupError.NONE


def test_what_a_member_was_never_told_of_is_released_by_its_next_heartbeat(
    cluster, gateway, clients
):
    """It has nothing to say: its client never had these partitions, and has none to give up."""

    async def run():
        a, (_, b, c) = TakingClient(cluster, gateway), clients
        await share(gateway, a, b)
        await leave(gateway, b)
        assert await c.heartbeat(gateway) == "NONE"
        assert not c.owned
        await a.say()
        await c.heartbeat(gateway)
        assert len(a.owned) == len(c.owned) == PARTITIONS // 2
        assert gateway.timer("rebalance", "a") is None

    asyncio.run(run())


def test_what_another_gateway_told_a_member_is_released_by_the_member_alone(
    cluster, gateway, clients
):
    """The first gateway still has the group in memory, and has not told the member of anything."""

    async def run():
        a, (_, b, c) = TakingClient(cluster, gateway), clients
        await share(gateway, a, b)
        await leave(gateway, b)
        a.gateway = FakeGateway(cluster)
        await a.say()
        assert len(a.owned) == PARTITIONS
        a.gateway = gateway
        assert await c.heartbeat(gateway) == "NOT_COORDINATOR"
        for _ in range(10):
            assert await c.heartbeat(gateway) == "NONE"
            await a.say()  # it takes them
            assert not c.owned
        await a.say(range(PARTITIONS))
        await a.say(a.owned)
        await c.heartbeat(gateway)
        assert len(a.owned) == len(c.owned) == PARTITIONS // 2

    asyncio.run(run())


def test_a_release_that_its_gateway_did_not_live_to_see_is_confirmed_at_the_next_one(
    cluster, gateway, clients
):
    """The log says that the member had taken what it is to revoke, so it will not take it now."""

    async def run():
        a, b = TakingClient(cluster, gateway), clients[1]
        await a.say([], everything=True)
        await a.say(range(PARTITIONS))
        assert await b.heartbeat(gateway) == "NONE"
        await a.say()  # it is told what is left, and gives up the rest
        a.gateway = other = FakeGateway(cluster)
        await a.say(a.owned, everything=True)
        await b.heartbeat(other)
        assert not b.owned
        await a.say()
        await b.heartbeat(other)
        assert len(a.owned) == len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


def test_a_gateway_that_tells_a_member_what_it_has_named_writes_nothing(cluster, gateway, clients):
    async def run():
        a, (_, b, _) = TakingClient(cluster, gateway), clients
        await share(gateway, a, b)
        known = a.epoch
        a.gateway = other = FakeGateway(cluster)
        await a.say(a.owned, everything=True)
        assert await b.heartbeat(other) == "NONE"
        assert (a.epoch, b.epoch) == (known, known)

    asyncio.run(run())


def test_a_static_member_whose_successor_is_refused_expires(cluster, gateway):
    async def run():
        async def say(name, epoch, **fields):
            member = Member(name, "i")
            answer = await gateway.groups.heartbeat(
                "g", ConsumerHeartbeat(member, epoch, rebalance_timeout_ms=1000, **fields)
            )
            return answer.error.name

        assert await say("a", 0, topics=("t",)) == "NONE"
        assert await say("a", LEAVE_STATIC_EPOCH) == "NONE"
        assert await say("b", 0, regex="(") == "INVALID_REGULAR_EXPRESSION"
        await gateway.end("session", "a")
        assert not gateway.groups.has_loaded("g")

    asyncio.run(run())


def test_a_member_commits_nothing_that_another_member_has(gateway, clients):
    async def run():
        a, b, _ = clients
        await settle(gateway, a, b)
        (foreign, *_) = b.owned
        assert await b.commit(gateway, foreign, 5) == "NONE"
        a.owned[foreign] = 0  # it knows its epoch, and has not given up what it had before
        assert await a.commit(gateway, foreign) == "STALE_MEMBER_EPOCH"
        assert await b.commit(gateway, foreign) == "NONE"

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


def test_a_member_that_joins_again_commits_with_its_new_epoch_alone(gateway, clients):
    async def run():
        a, *_ = clients
        await settle(gateway, a)
        late = a.read(0)
        a.epoch = 0
        assert await a.heartbeat(gateway) == "NONE"
        assert await a.send(gateway, late) == "STALE_MEMBER_EPOCH"
        assert await a.commit(gateway, 0) == "NONE"

    asyncio.run(run())


def test_a_member_is_told_its_partitions_after_an_earlier_request_got_the_answer(gateway, clients):
    async def run():
        a, b, _ = clients
        await settle(gateway, a)
        assert await b.heartbeat(gateway) == "NONE"
        assert not b.owned
        await a.heartbeat(gateway)  # revokes
        await a.heartbeat(gateway)  # releases
        await gateway.groups.heartbeat("g", ConsumerHeartbeat(Member("b"), b.epoch))
        assert await b.heartbeat(gateway) == "NONE"
        assert len(b.owned) == PARTITIONS // 2

    asyncio.run(run())


class ClassicMember:
    """A client of the classic protocol that is alone in the group, at a gateway of its own."""

    def __init__(self, cluster):
        self.groups = GroupCoordinators(cluster, _on_a_thread)
        self.generation = -1
        self._identity = MemberIdentity("")

    async def join(self):
        """Return the answer's error."""
        protocols = (("range", b""),)
        member = ClassicGroupMember("", None, "c", "", 10_000, 10_000, protocols)
        answer = await self.groups.join("g", JoinRequest(member, "consumer", False, True))
        if answer.error is GroupError.NONE:
            self.generation = answer.generation
            self._identity = MemberIdentity(answer.member_id)
            protocol, given = ("consumer", "range"), {answer.member_id: b""}
            await self.groups.sync("g", self._identity, self.generation, protocol, given)
        return answer.error.name

    async def commit(self, partition, offset):
        offsets = {TopicPartition("t", partition): OffsetAndMetadata(offset, "", -1)}
        error = await self.groups.commit("g", self._identity, self.generation, offsets)
        return error.name

    async def leave(self):
        (error,) = (await self.groups.leave("g", [self._identity])).errors
        return error.name


def test_an_empty_group_changes_its_protocol_both_ways_and_keeps_its_offsets(
    cluster, gateway, clients
):
    """As with Kafka's ``group.consumer.migration.policy=disabled``, one with members does not."""

    async def run():
        a, *_ = clients
        classic = ClassicMember(cluster)
        assert await classic.join() == "NONE"
        assert await a.heartbeat(gateway) == "GROUP_ID_NOT_FOUND"
        assert await classic.commit(0, 3) == "NONE"
        assert await classic.leave() == "NONE"
        await settle(gateway, a)
        assert a.owned == {0: 3, 1: 0, 2: 0, 3: 0}
        assert a.epoch > classic.generation
        assert await classic.join() == "INCONSISTENT_GROUP_PROTOCOL"
        assert await classic.commit(0, 4) == "UNKNOWN_MEMBER_ID"
        assert await a.commit(gateway, 0) == "NONE"
        await gateway.groups.heartbeat("g", ConsumerHeartbeat(Member("a"), LEAVE_EPOCH))
        assert await classic.join() == "NONE"
        assert classic.generation > a.epoch
        assert a.table.fetch("g")[TopicPartition("t", 0)].offset == 4
        assert await a.commit(gateway, 0) == "GROUP_ID_NOT_FOUND"
        classic.groups.close()

    asyncio.run(run())


class World:
    """Clients that come to two gateways at random, with commits that may arrive late.

    Attributes:
        commits: the number of commits that were accepted.
    """

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.gateways = [FakeGateway(cluster) for _ in range(2)]
        self._owner: dict[int, tuple[str, int]] = {}
        self.clients = [Client(cluster, name, self._owner) for name in "abc"]
        self.commits = 0
        self._table = OffsetsTable(cluster)
        self._newest = dict.fromkeys(range(PARTITIONS), 0)
        self._late = []
        self._sent_late = None

    async def run(self, steps):
        """Run some steps; then let the clients agree on one gateway.

        Checks that no commit of a former owner sets back what another one has committed, and that
        all partitions are read in the end.
        """
        actions = (self.heartbeat, self.commit, self.delay, self.send_late, self.expire, self.crash)
        for _ in range(steps):
            self._sent_late = None
            (action,) = self.rng.choices(actions, (45, 25, 10, 10, 7, 3))
            await action(self.rng.choice(self.clients), self.rng.choice(self.gateways))
            for tp, found in self._table.fetch("g").items():
                is_own = self._sent_late == (tp.partition, self._owner.get(tp.partition))
                assert is_own or found.offset >= self._newest[tp.partition], f"{tp} was set back"
                self._newest[tp.partition] = found.offset
        for _ in range(4):
            for each in self.clients:
                for _ in range(MOST_HEARTBEATS):
                    if await each.heartbeat(self.gateways[0]) == "NONE":
                        break
                else:
                    raise AssertionError(f"no heartbeat of {MOST_HEARTBEATS} is answered")
        owned = sorted(partition for each in self.clients for partition in each.owned)
        assert owned == list(range(PARTITIONS))

    async def heartbeat(self, client, gateway):
        await client.heartbeat(gateway)

    async def commit(self, client, gateway):
        if client.owned:
            sent = [client.commit(gateway, self._partition(client), self.rng.randint(1, 5))]
            if self.rng.random() < 0.5:  # at the same time
                other = self.rng.choice(self.clients)
                sent.append(other.heartbeat(self.rng.choice(self.gateways)))
            self.commits += (await asyncio.gather(*sent))[0] == "NONE"

    async def delay(self, client, _):
        if client.owned:
            partition = self._partition(client)
            commit = client.read(partition, self.rng.randint(1, 5))
            self._late.append((client, partition, client.acquired[partition], commit))

    async def send_late(self, _, gateway):
        if self._late:
            late = self._late.pop(self.rng.randrange(len(self._late)))
            client, partition, acquired, commit = late
            # A member may set back its own commits, as in Kafka, if nobody has begun since.
            self._sent_late = partition, (client.name, acquired)
            await client.send(gateway, commit)

    async def expire(self, client, gateway):
        if gateway.timer("session", client.name) is not None:
            await gateway.end("session", client.name)

    async def crash(self, _, gateway):
        self.gateways[self.gateways.index(gateway)] = FakeGateway(self.cluster)

    def _partition(self, client):
        return self.rng.choice(list(client.owned))


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_of_a_former_owner_sets_nothing_back(cluster, seed):
    world = World(cluster, seed)
    asyncio.run(world.run(100))
    assert world.commits > 5


def test_a_member_that_an_old_request_brought_back_is_fenced_with_its_old_epoch(cluster):
    """Others have had its partitions since: what it is about to take is theirs."""

    async def test():
        gateway, client = FakeGateway(cluster), Client(cluster, "a")
        await client.heartbeat(gateway)
        known = client.epoch
        await Client(cluster, "b").heartbeat(gateway)
        await gateway.end("session", "a")
        assert (await _join(gateway, client)).epoch > known  # a copy, which arrives late
        client.owned, client.epoch = {}, known
        assert await client.heartbeat(gateway) == "FENCED_MEMBER_EPOCH"

    asyncio.run(test())


def _join(gateway, client):
    request = ConsumerHeartbeat(
        Member(client.name), 0, rebalance_timeout_ms=60_000, topics=("t",), owned={}
    )
    return asyncio.ensure_future(gateway.groups.heartbeat("g", request))


async def _pass_on():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_join_and_its_repeats_are_one(cluster):
    """The clients of a group on slow storage would else join again for ever."""

    async def test():
        gateway, client, joins = FakeGateway(cluster), Client(cluster, "a"), []
        await client.heartbeat(gateway)
        gateway.may_run.clear()
        for _ in range(10):
            joins.append(_join(gateway, client))
            await _pass_on()
        gateway.may_run.set()
        answers = await asyncio.gather(*joins)
        assert {each.error for each in answers} == {GroupError.NONE}
        # The epoch is a new one, so that commits from before the join are refused.
        assert {each.epoch for each in answers} == {client.epoch + 1}
        assert answers[-1].assignment
        later = await _join(gateway, client)
        assert later.epoch == client.epoch + 2, "the others were answered: this is no repeat"

    asyncio.run(test())


def test_a_repeated_join_is_answered_as_of_after_the_repeat(cluster):
    async def test():
        gateway, other, client = FakeGateway(cluster), FakeGateway(cluster), Client(cluster, "a")
        await client.heartbeat(gateway)
        gateway.may_return.clear()
        join = _join(gateway, client)
        await gateway.has_run.wait()  # the log has the join, and another gateway goes on there
        await Client(cluster, "b").heartbeat(other)
        repeat = _join(gateway, client)
        await _pass_on()
        gateway.may_return.set()
        assert (await repeat).error is GroupError.NOT_COORDINATOR
        assert (await join).error is GroupError.NOT_COORDINATOR

    asyncio.run(test())


def test_a_join_after_another_request_of_the_member_is_no_repeat(cluster):
    async def test():
        gateway, client = FakeGateway(cluster), Client(cluster, "a")
        await client.heartbeat(gateway)
        gateway.may_run.clear()
        joins = [_join(gateway, client)]
        await _pass_on()
        request = ConsumerHeartbeat(Member(client.name), LEAVE_EPOCH)
        leave = asyncio.ensure_future(gateway.groups.heartbeat("g", request))
        await _pass_on()
        joins.append(_join(gateway, client))
        await _pass_on()
        gateway.may_run.set()
        before, after = await asyncio.gather(*joins)
        assert (await leave).error is GroupError.NONE
        assert after.epoch > before.epoch + 1
        error = await gateway.groups.check_member("g", client.name, after.epoch)
        assert error is GroupError.NONE

    asyncio.run(test())
