// Tests of kafkajs, whose package has none of its own. BROKERS in the environment has the gateways.

import assert from "node:assert/strict"
import { randomUUID } from "node:crypto"
import test from "node:test"

import kafkajs from "kafkajs"
import lz4 from "lz4js"
import SnappyCodec from "kafkajs-snappy"

const { AssignerProtocol, CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})

const kafka = new Kafka({
  brokers: process.env.BROKERS.split(","),
  clientId: "kafkajs-tests",
  logLevel: logLevel.NOTHING,
})

async function newTopic(numPartitions = 1, configEntries = []) {
  const topic = `kafkajs_${randomUUID()}`
  await withAdmin((admin) =>
    admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true }),
  )
  return topic
}

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

async function withProducer(config, use) {
  const producer = kafka.producer(config)
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

// Read records of a topic in a group, until as many as `count` have come.
async function read(topic, count, { groupId = randomUUID(), seconds = 30, ...config } = {}) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200, ...config })
  const found = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async (each) => void found.push(each) })
    await until(() => found.length >= count, seconds)
  } finally {
    await consumer.disconnect()
  }
  return found
}

async function until(holds, seconds = 30) {
  const end = Date.now() + seconds * 1000
  while (!(await holds())) {
    assert(Date.now() < end, `it did not happen within ${seconds} s`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const text = (each) => each.message.value.toString()

for (const codec of ["None", "GZIP", "Snappy", "LZ4"]) {
  for (const idempotent of [false, true]) {
    const kind = idempotent ? "an idempotent producer" : "a producer"
    test(`records of ${kind} with the codec ${codec} have all that was sent`, async () => {
      const topic = await newTopic()
      const messages = Array.from({ length: 200 }, (_, number) => ({
        key: number % 5 === 0 ? null : `key ${number}`,
        value: number % 7 === 0 ? null : `value ${number}`.repeat(9),
        timestamp: String(1_700_000_000_000 + number),
        headers: { number: String(number), twice: ["a", "b"] },
      }))
      await withProducer({ idempotent }, async (producer) => {
        const compression = CompressionTypes[codec]
        const [{ baseOffset }] = await producer.send({ topic, messages, compression, acks: -1 })
        assert.equal(baseOffset, "0")
      })
      const found = await read(topic, messages.length)
      assert.deepEqual(
        found.map(({ message }) => ({
          offset: message.offset,
          key: message.key && message.key.toString(),
          value: message.value && message.value.toString(),
          timestamp: message.timestamp,
          number: message.headers.number.toString(),
          twice: message.headers.twice.map(String),
        })),
        messages.map(({ headers, ...sent }, number) => ({
          ...sent,
          offset: String(number),
          number: headers.number,
          twice: headers.twice,
        })),
      )
    })
  }
}

test("a group goes on where it has committed", async () => {
  const topic = await newTopic()
  const groupId = randomUUID()
  await withProducer({}, (producer) =>
    producer.send({ topic, messages: Array.from({ length: 10 }, (_, n) => ({ value: `${n}` })) }),
  )
  await read(topic, 10, { groupId })
  await withAdmin(async (admin) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.equal(partitions[0].offset, "10")
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "6" }] })
  })
  const found = await read(topic, 4, { groupId })
  assert.deepEqual(found.map(text), ["6", "7", "8", "9"])
})

test("members share partitions, and take those of one that leaves", async () => {
  const topic = await newTopic(4)
  const groupId = randomUUID()
  const owned = new Map()
  const members = []
  for (const name of ["a", "b"]) {
    const consumer = kafka.consumer({
      groupId,
      maxWaitTimeInMs: 200,
      heartbeatInterval: 300,
      rebalanceTimeout: 3000,
    })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
      owned.set(name, payload.memberAssignment[topic] ?? []),
    )
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ eachMessage: async () => {} })
    members.push(consumer)
  }
  const shared = () => [...(owned.get("a") ?? []), ...(owned.get("b") ?? [])].sort().join()
  await until(() => owned.get("a")?.length === 2 && shared() === "0,1,2,3")
  const [described] = await withAdmin(async (admin) => (await admin.describeGroups([groupId])).groups)
  assert.equal(described.state, "Stable")
  const assigned = described.members.flatMap(
    (each) => AssignerProtocol.MemberAssignment.decode(each.memberAssignment).assignment[topic],
  )
  assert.deepEqual(assigned.sort(), [0, 1, 2, 3])
  await members[1].disconnect()
  await until(() => owned.get("a").length === 4)
  await members[0].disconnect()
})

test("a consumer moves over a long row of records that were aborted", async () => {
  const topic = await newTopic()
  const transactionalId = randomUUID()
  await withProducer({ transactionalId, maxInFlightRequests: 1, idempotent: true }, async (producer) => {
    for (let number = 0; number < 20; number++) {
      const transaction = await producer.transaction()
      const messages = Array.from({ length: 50 }, () => ({ value: "aborted".repeat(100) }))
      await transaction.send({ topic, messages })
      await transaction.abort()
    }
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: "committed" }] })
    await transaction.commit()
  })
  const found = await read(topic, 1, { maxBytesPerPartition: 10_000 })
  assert.deepEqual(found.map(text), ["committed"])
})

test("offsets are committed with their transaction", async () => {
  const topic = await newTopic()
  const consumerGroupId = randomUUID()
  const topics = [{ topic, partitions: [{ partition: 0, offset: "7" }] }]
  const committed = async () => {
    const groups = await withAdmin((admin) =>
      admin.fetchOffsets({ groupId: consumerGroupId, topics: [topic] }),
    )
    return groups[0].partitions[0].offset
  }
  const config = { transactionalId: randomUUID(), maxInFlightRequests: 1, idempotent: true }
  await withProducer(config, async (producer) => {
    const first = await producer.transaction()
    await first.send({ topic, messages: [{ value: "first" }] })
    await first.sendOffsets({ consumerGroupId, topics })
    await first.abort()
    assert.equal(await committed(), "-1")
    const second = await producer.transaction()
    await second.send({ topic, messages: [{ value: "second" }] })
    await second.sendOffsets({ consumerGroupId, topics })
    await second.commit()
    await until(async () => (await committed()) === "7")
  })
  assert.deepEqual((await read(topic, 1)).map(text), ["second"])
})

test("topics are created, altered and deleted", async () => {
  const topic = await newTopic(2, [{ name: "retention.ms", value: "12345" }])
  await withAdmin(async (admin) => {
    assert((await admin.listTopics()).includes(topic))
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(topics[0].partitions.length, 5)
    const resource = { type: 2, name: topic }
    const value = async () => {
      const { resources } = await admin.describeConfigs({ resources: [resource] })
      return resources[0].configEntries.find((each) => each.configName === "retention.ms").configValue
    }
    assert.equal(await value(), "12345")
    const configEntries = [{ name: "retention.ms", value: "777" }]
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
    assert.equal(await value(), "777")
    await admin.deleteTopics({ topics: [topic] })
    assert(!(await admin.listTopics()).includes(topic))
  })
})

test("offsets are found by time, and records deleted up to one", async () => {
  const topic = await newTopic()
  const now = Date.now()
  const messages = Array.from({ length: 10 }, (_, n) => ({
    value: `${n}`,
    timestamp: String(now + n * 1000),
  }))
  await withProducer({}, (producer) => producer.send({ topic, messages }))
  await withAdmin(async (admin) => {
    const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, now + 3500)
    assert.equal(found.offset, "4")
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "6" }] })
    const [{ low, high }] = await admin.fetchTopicOffsets(topic)
    assert.deepEqual([low, high], ["6", "10"])
  })
  assert.deepEqual((await read(topic, 4)).map(text), ["6", "7", "8", "9"])
})

test("groups are listed and deleted, and the cluster is described", async () => {
  const topic = await newTopic()
  const groupId = randomUUID()
  await withProducer({}, (producer) => producer.send({ topic, messages: [{ value: "x" }] }))
  await read(topic, 1, { groupId })
  await withAdmin(async (admin) => {
    assert((await admin.listGroups()).groups.some((each) => each.groupId === groupId))
    await admin.deleteGroups([groupId])
    assert(!(await admin.listGroups()).groups.some((each) => each.groupId === groupId))
    const { brokers, clusterId, controller } = await admin.describeCluster()
    assert.equal(brokers.length, process.env.BROKERS.split(",").length)
    assert(brokers.some((each) => each.nodeId === controller))
    assert(clusterId)
  })
})
