package org.apache.spark.sql.kafka010;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * What Spark's tests of its Kafka connector ask of a cluster, by gateways instead of a broker.
 *
 * <p>It stands before the class of this name in Spark's test jar on the class path, and has its
 * methods as Scala compiles them. Each object has a cluster of its own: a process of the program
 * in the system property {@code cluster.command}, which prints the addresses, applies retention
 * for each line "clean" that it reads, and ends when its input ends.
 */
public class KafkaTestUtils {
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    /** Settings of a broker that are those of a topic in the gateways' root. */
    private static final Map<String, String> TOPIC_SETTINGS =
        Map.of("log.retention.bytes", "retention.bytes", "log.retention.ms", "retention.ms");

    private final scala.collection.immutable.Map<String, Object> brokerProps;
    private Process cluster;
    private BufferedReader answers;
    private Writer commands;
    private Admin admin;
    private String address;
    private Map<String, String> topicConfigs = Map.of();

    public KafkaTestUtils(
        scala.collection.immutable.Map<String, Object> brokerProps, boolean secure) {
        if (secure) {
            throw new UnsupportedOperationException("gateways have no Kerberos");
        }
        this.brokerProps = brokerProps;
    }

    /** The settings of the broker that a test needs; a test may override it to add some. */
    public Properties brokerConfiguration() {
        Properties settings = new Properties();
        settings.putAll(CollectionConverters.asJava(brokerProps));
        return settings;
    }

    public void setup() throws IOException {
        String given = System.getProperty("cluster.command");
        List<String> command = new ArrayList<>(List.of(given.split("\n")));
        topicConfigs = new HashMap<>();
        brokerConfiguration().forEach((name, value) -> {
            command.add(name + "=" + value);
            String ofTopic = TOPIC_SETTINGS.get(name);
            if (ofTopic != null) {
                topicConfigs.put(ofTopic, value.toString());
            }
        });
        cluster = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        answers = new BufferedReader(new InputStreamReader(cluster.getInputStream()));
        commands = new OutputStreamWriter(cluster.getOutputStream());
        address = answers.readLine();
        if (address == null) {
            throw new IllegalStateException("the cluster has not started");
        }
        admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    public void teardown() throws IOException, InterruptedException {
        if (admin != null) {
            admin.close();
        }
        if (cluster != null) {
            commands.close();
            cluster.waitFor();
        }
        address = null;
    }

    public String brokerAddress() {
        if (address == null) {
            throw new AssertionError("no cluster runs: setup has not been called, or teardown has");
        }
        return address;
    }

    public String clientPrincipal() {
        throw new UnsupportedOperationException("gateways have no Kerberos");
    }

    public String clientKeytab() {
        throw new UnsupportedOperationException("gateways have no Kerberos");
    }

    public void createTopic(String topic) throws Exception {
        createTopic(topic, 1, false);
    }

    public void createTopic(String topic, int partitions, boolean overwrite) throws Exception {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(topicConfigs);
        while (true) {
            try {
                admin.createTopics(Set.of(wanted)).all().get();
                break;
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException)) {
                    throw error;
                }
                if (!overwrite) {
                    break; // Spark's class does not ask for the answer
                }
                deleteTopic(topic);
            }
        }
        await(topic + " exists", () -> partitionCount(topic) >= partitions);
    }

    public boolean createTopic$default$3() {
        return false;
    }

    /** Delete a topic, again if a consumer has created it anew meanwhile, as Spark's class does. */
    public void deleteTopic(String topic) throws Exception {
        await(topic + " is deleted", () -> {
            try {
                admin.deleteTopics(Set.of(topic)).all().get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw new IllegalStateException(error);
                }
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            return partitionCount(topic) == 0;
        });
    }

    public void addPartitions(String topic, int partitions) throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions)));
        await(topic + " has more partitions", () -> partitionCount(topic) >= partitions);
    }

    public scala.collection.immutable.Seq<Tuple2<String, Object>> getAllTopicsAndPartitionSize()
        throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        List<Tuple2<String, Object>> found = new ArrayList<>();
        admin.describeTopics(names).allTopicNames().get().forEach(
            (name, topic) -> found.add(new Tuple2<>(name, topic.partitions().size())));
        return CollectionConverters.asScala(found).toSeq();
    }

    public scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> sendMessages(
        String topic, String[] messages) throws Exception {
        return sendMessages(topic, messages, Option.empty());
    }

    public scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> sendMessages(
        String topic, String[] messages, Option<Object> partition) throws Exception {
        Integer number = partition.isDefined() ? (Integer) partition.get() : null;
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        for (String each : messages) {
            records.add(new ProducerRecord<>(topic, number, null, each));
        }
        return send(records);
    }

    public scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> sendMessage(
        ProducerRecord<String, String> record) throws Exception {
        return send(List.of(record));
    }

    public scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> sendMessages(
        scala.collection.immutable.Seq<ProducerRecord<String, String>> records) throws Exception {
        return send(CollectionConverters.asJava(records));
    }

    public scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> sendMessages(
        ProducerRecord<String, String>[] records) throws Exception {
        return send(List.of(records));
    }

    /** Send each record after the one before it was acknowledged, as Spark's class does. */
    private scala.collection.immutable.Seq<Tuple2<String, RecordMetadata>> send(
        List<ProducerRecord<String, String>> records) throws Exception {
        List<Tuple2<String, RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerConfiguration())) {
            for (ProducerRecord<String, String> each : records) {
                RecordMetadata metadata = producer.send(each).get(10, TimeUnit.SECONDS);
                sent.add(new Tuple2<>(each.value(), metadata));
            }
        }
        return CollectionConverters.asScala(sent).toSeq();
    }

    public void withTransactionalProducer(
        Function1<KafkaProducer<String, String>, BoxedUnit> function) {
        Properties settings = producerConfiguration();
        settings.put("transactional.id", UUID.randomUUID().toString());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            function.apply(producer);
        }
    }

    @SuppressWarnings("deprecation") // the partitioner of Spark's class
    private Properties producerConfiguration() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokerAddress());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("acks", "all");
        settings.put(
            "partitioner.class",
            org.apache.kafka.clients.producer.internals.DefaultPartitioner.class.getName());
        return settings;
    }

    public void cleanupLogs() throws IOException {
        commands.write("clean\n");
        commands.flush();
        String answer = answers.readLine();
        if (!"cleaned".equals(answer)) {
            throw new IllegalStateException("retention was not applied: " + answer);
        }
    }

    public scala.collection.immutable.Map<TopicPartition, Object> getEarliestOffsets(
        scala.collection.immutable.Set<String> topics) throws Exception {
        return offsets(topics, OffsetSpec.earliest());
    }

    public scala.collection.immutable.Map<TopicPartition, Object> getLatestOffsets(
        scala.collection.immutable.Set<String> topics) throws Exception {
        return offsets(topics, OffsetSpec.latest());
    }

    private scala.collection.immutable.Map<TopicPartition, Object> offsets(
        scala.collection.immutable.Set<String> topics, OffsetSpec spec) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new LinkedHashMap<>();
        admin.describeTopics(CollectionConverters.asJava(topics)).allTopicNames().get().forEach(
            (name, topic) -> topic.partitions().forEach(
                each -> asked.put(new TopicPartition(name, each.partition()), spec)));
        Map<TopicPartition, Object> found = new LinkedHashMap<>();
        admin.listOffsets(asked).all().get().forEach(
            (partition, result) -> found.put(partition, result.offset()));
        return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(found));
    }

    public void waitUntilOffsetAppears(TopicPartition partition, long offset) {
        scala.collection.immutable.Set<String> topic =
            CollectionConverters.asScala(Set.of(partition.topic())).toSet();
        await(partition + " has the offset " + offset, () -> {
            try {
                Option<Object> end = getLatestOffsets(topic).get(partition);
                return end.isDefined() && (Long) end.get() >= offset;
            } catch (Exception error) {
                return false;
            }
        });
    }

    public ListConsumerGroupsResult listConsumerGroups() {
        return admin.listConsumerGroups();
    }

    /** The number of partitions; 0 if the topic does not exist. */
    private int partitionCount(String topic) {
        try {
            TopicDescription found =
                admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void await(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + PATIENCE + ": " + what);
            }
            try {
                Thread.sleep(15);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
