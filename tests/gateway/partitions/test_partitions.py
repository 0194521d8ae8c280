"""The metadata of requests: they go on in the order in which they came."""

import asyncio
from typing import Any

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.config import GatewayConfig
from spark_log.gateway.partitions import Partitions, WaitingFetch


class SlowReads:
    """Calls that end when a test says so."""

    def __init__(self):
        self.waiting = []

    async def run(self, call, *arguments):
        may_end = asyncio.get_running_loop().create_future()
        self.waiting.append(may_end)
        await may_end
        return call(*arguments)

    def end(self):
        self.waiting.pop(0).set_result(None)


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_that_wait_for_metadata_keep_their_order(tmp_path):
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic("known")])
    cluster = Cluster(root)
    cluster.image()
    admin.create_topics([NewTopic("new")])
    done = []

    async def test():
        reads = SlowReads()
        config = GatewayConfig.parse({"metadata.max.age.ms": 600_000})
        partitions = Partitions(cluster, config, reads.run)

        async def request(number, topic):
            image = await partitions.image_in_order(lambda image: image.find(topic) is not None)
            done.append((number, image.find(topic) is not None))

        tasks = []
        for number, topic in enumerate(["known", "new", "known", "new"]):
            tasks.append(asyncio.create_task(request(number, topic)))
            await settle()
        assert done == [(0, True)]
        reads.end()
        # What arrives before those that waited have gone on waits behind them.
        tasks.append(asyncio.create_task(request(4, "new")))
        await asyncio.gather(*tasks)
        assert done == [(number, True) for number in range(5)]
        partitions.close()

    asyncio.run(test())


def test_a_burst_of_requests_for_an_unknown_topic_reads_the_metadata_twice_at_most(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("known")])
    cluster = Cluster(root)
    cluster.image()
    began = []

    async def run(call, *arguments):
        began.append(call)
        await asyncio.sleep(0)
        return call(*arguments)

    async def test():
        config = GatewayConfig.parse({"metadata.max.age.ms": 600_000})
        partitions = Partitions(cluster, config, run)
        images = await asyncio.gather(
            *(
                partitions.image_in_order(lambda image: image.find("no") is not None)
                for _ in range(20)
            )
        )
        assert [image.find("no") for image in images] == [None] * 20
        partitions.close()

    asyncio.run(test())
    assert len(began) <= 2


def test_partitions_of_deleted_topics_are_dropped_whoever_reads_the_metadata(tmp_path):
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic("gone"), NewTopic("kept")])
    cluster = Cluster(root)

    async def test():
        async def run(call, *arguments):
            return call(*arguments)

        partitions = Partitions(cluster, GatewayConfig.parse({}), run)
        image = await partitions.refresh()
        opened: dict[str, Any] = {}
        for name in ("gone", "kept"):
            opened[name] = partitions.get(image.topic(name), 0)
            await opened[name].fetch(0, 100, "read_uncommitted")
        fetch = WaitingFetch()
        opened["gone"].add_waiting(fetch)
        admin.delete_topics(["gone"])
        cluster.image()  # by a request for metadata, say
        assert partitions.get(partitions.known_image.topic("kept"), 0) is opened["kept"]
        assert partitions.opened == 1
        assert await fetch.wait(0), "its client is told"
        partitions.close()

    asyncio.run(test())


def test_a_partition_moves_to_its_new_stripe_also_if_the_settings_are_as_before(tmp_path):
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic("t", topic_configs={"stripes": 2})])

    async def test():
        async def run(call, *arguments):
            return call(*arguments)

        partitions = Partitions(Cluster(root), GatewayConfig.parse({}), run)
        image = await partitions.refresh()
        opened = partitions.get(image.topic("t"), 0)
        assert opened is not None
        before = opened.stripe
        for count in (3, 2):
            admin.alter_stripes({"t": count})
        image = await partitions.refresh()
        assert partitions.get(image.topic("t"), 0) is opened
        assert opened.stripe is not None
        assert opened.stripe is not before
        partitions.close()

    asyncio.run(test())
