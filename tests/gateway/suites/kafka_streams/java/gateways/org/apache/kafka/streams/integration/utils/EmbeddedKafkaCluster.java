package org.apache.kafka.streams.integration.utils;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;

import sparklog.GatewayCluster;

/** Gateways in the place of the brokers that Kafka's integration tests of Streams start. */
public class EmbeddedKafkaCluster {
    private static final Map<String, String> DEFAULTS = Map.of(
        "auto.create.topics.enable", "true",
        "group.initial.rebalance.delay.ms", "0",
        "group.min.session.timeout.ms", "0");

    /** Configs of topics by the property that is their default in Kafka's brokers. */
    private static final Map<String, String> OF_TOPICS =
        Map.of("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms");

    /** The tests' clock. That of the gateways is the machine's. */
    public final MockTime time;

    private final GatewayCluster cluster;
    private final int brokers;
    private final Map<String, String> ofTopics = new HashMap<>();

    public EmbeddedKafkaCluster(int numBrokers) {
        this(numBrokers, new Properties());
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig) {
        this(numBrokers, brokerConfig, Map.of());
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig, long mockTimeMillisStart) {
        this(numBrokers, brokerConfig, Map.of(), mockTimeMillisStart, System.nanoTime());
    }

    public EmbeddedKafkaCluster(int numBrokers, Properties brokerConfig, Map<Integer, Map<String, String>> overrides) {
        this(numBrokers, brokerConfig, overrides, System.currentTimeMillis(), System.nanoTime());
    }

    public EmbeddedKafkaCluster(
        int numBrokers,
        Properties brokerConfig,
        Map<Integer, Map<String, String>> overrides,
        long mockTimeMillisStart,
        long mockTimeNanoStart
    ) {
        Map<String, String> settings = new HashMap<>(DEFAULTS);
        brokerConfig.forEach((key, value) -> settings.put(key.toString(), value.toString()));
        OF_TOPICS.forEach((property, config) -> {
            if (settings.containsKey(property)) {
                ofTopics.put(config, settings.get(property));
            }
        });
        ClusterConfig config = ClusterConfig.defaultBuilder()
            .setBrokers(numBrokers)
            .setServerProperties(settings)
            .setPerServerProperties(overrides)
            .build();
        cluster = new GatewayCluster(config, true);
        brokers = numBrokers;
        time = new MockTime(mockTimeMillisStart, mockTimeNanoStart);
    }

    public void start() {
        cluster.start();
    }

    public void verifyClusterReadiness() {
        cluster.waitForReadyBrokers();
    }

    public void stop() {
        cluster.stop();
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public boolean sslEnabled() {
        return false;
    }

    // Topics.

    public void createTopics(String... topics) throws InterruptedException {
        for (String each : topics) {
            createTopic(each);
        }
    }

    public void createTopic(String topic) {
        createTopic(topic, 1);
    }

    public void createTopic(String topic, int partitions) {
        createTopic(topic, partitions, 1, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication) throws InterruptedException {
        createTopic(topic, partitions, replication, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication, Map<String, String> topicConfig) {
        if (replication > brokers) {
            throw new InvalidReplicationFactorException(replication + " replicas of " + brokers + " brokers");
        }
        try (Admin admin = createAdminClient()) {
            Map<String, String> configs = new HashMap<>(ofTopics);
            configs.putAll(topicConfig);
            NewTopic created = new NewTopic(topic, partitions, (short) replication).configs(configs);
            ignoring(TopicExistsException.class, () -> admin.createTopics(List.of(created)).all().get());
            TestUtils.waitForCondition(() -> admin.listTopics().names().get().contains(topic), topic + " is there");
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public void deleteTopics(String... topics) {
        for (String each : topics) {
            deleteTopic(each);
        }
    }

    public void deleteTopic(String topic) {
        try (Admin admin = createAdminClient()) {
            ignoring(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(Set.of(topic)).all().get());
        }
    }

    public void deleteAllTopics() {
        try (Admin admin = createAdminClient()) {
            ignoring(UnknownTopicOrPartitionException.class, () ->
                admin.deleteTopics(admin.listTopics().names().get()).all().get());
        }
    }

    public void waitForRemainingTopics(long timeoutMs, String... topics) throws InterruptedException {
        Set<String> remaining = new HashSet<>(Arrays.asList(topics));
        TestUtils.waitForCondition(() -> {
            Set<String> found = getAllTopicsInCluster().stream()
                .filter(each -> !each.startsWith("__")).collect(Collectors.toSet());
            return found.equals(remaining);
        }, timeoutMs, "Only these topics remain: " + remaining);
    }

    public Set<String> getAllTopicsInCluster() {
        try (Admin admin = createAdminClient()) {
            return get(() -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        }
    }

    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = createAdminClient()) {
            Properties found = new Properties();
            get(() -> admin.describeConfigs(Set.of(resource)).all().get()).get(resource).entries()
                .forEach(entry -> found.put(entry.name(), entry.value()));
            return found;
        }
    }

    // Clients.

    public Admin createAdminClient() {
        return Admin.create(new HashMap<String, Object>(clientDefaultConfig()));
    }

    public Map<String, String> clientDefaultConfig() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrapServers()));
    }

    public void produce(Map<String, Object> producerProps, String topic, Integer partition, String key, String value) {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(producerProps, bytes, bytes)) {
            byte[] ofKey = key == null ? null : key.getBytes();
            byte[] ofValue = value == null ? null : value.getBytes();
            get(() -> producer.send(new ProducerRecord<>(topic, partition, ofKey, ofValue)).get());
        }
    }

    public KafkaConsumer<byte[], byte[]> createConsumer(Map<String, Object> consumerProps) {
        Map<String, Object> settings = new HashMap<>(clientDefaultConfig());
        settings.put("group.id", UUID.randomUUID().toString());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.putAll(consumerProps);
        return new KafkaConsumer<>(settings);
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(Map<String, Object> consumerProps, String... topics) {
        return createConsumerAndSubscribeTo(consumerProps, null, topics);
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(
        Map<String, Object> consumerProps, ConsumerRebalanceListener listener, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(consumerProps);
        if (listener == null) {
            consumer.subscribe(Arrays.asList(topics));
        } else {
            consumer.subscribe(Arrays.asList(topics), listener);
        }
        return consumer;
    }

    // Groups of Streams (KIP-1071).

    public void setGroupSessionTimeout(String group, int sessionTimeoutMs) {
        ofStreamsGroups();
    }

    public void setGroupHeartbeatTimeout(String group, int heartbeatIntervalMs) {
        ofStreamsGroups();
    }

    public void setGroupStandbyReplicas(String group, int numStandbyReplicas) {
        ofStreamsGroups();
    }

    public void setGroupStreamsInitialRebalanceDelay(String group, int initialRebalanceDelayMs) {
        ofStreamsGroups();
    }

    private static void ofStreamsGroups() {
        // Tests set them for both protocols; those with Streams' own are left out.
    }

    private static <T> T get(Callable<T> of) {
        try {
            return of.call();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void ignoring(Class<? extends Exception> expected, Callable<?> of) {
        try {
            of.call();
        } catch (ExecutionException error) {
            if (!expected.isInstance(error.getCause())) {
                throw new IllegalStateException(error.getCause());
            }
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
