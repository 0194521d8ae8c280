package sparklog;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.FindCoordinatorRequestData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.requests.FindCoordinatorRequest.CoordinatorType;
import org.apache.kafka.common.requests.FindCoordinatorResponse;
import org.apache.kafka.common.requests.HeartbeatRequest;
import org.apache.kafka.common.requests.HeartbeatResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

/** Gateways of a root of their own, one for each broker that a test asks for. */
public final class GatewayCluster implements ClusterInstance {
    private static final AtomicInteger ROOTS = new AtomicInteger();

    /** The number of groups of which, in all likelihood, each gateway coordinates one. */
    private static final int GROUPS = 100;

    private static final Set<String> INTERNAL_TOPICS = Set.of("__consumer_offsets", "__transaction_state");

    private final ClusterConfig config;
    private final boolean isCombined;
    private final Path root;
    private final Map<Integer, Integer> ports = new TreeMap<>();
    private final Map<Integer, Integer> pids = new HashMap<>();
    private final Map<Integer, KafkaBroker> brokers = new LinkedHashMap<>();
    private final Map<Integer, KafkaConfig> configs = new HashMap<>();
    private ServerProperties properties;
    private boolean isStarted;
    private boolean isStopped;

    public GatewayCluster(ClusterConfig config, boolean isCombined) {
        this.config = config;
        this.isCombined = isCombined;
        this.root = Path.of(System.getProperty("gateway.roots"), "root-" + ROOTS.incrementAndGet());
    }

    @Override
    public void start() {
        if (isStarted) {
            return;
        }
        isStarted = true;
        properties = new ServerProperties(config);
        config.features().forEach((feature, level) -> {
            if (level != feature.defaultLevel(config.metadataVersion())) {
                throw new NotApplicable("It asks for " + feature.featureName() + "=" + level + ": gateways have one level of it.");
            }
        });
        Map<String, Object> prepared = new HashMap<>(Map.of(
            "root", root.toString(), "brokers", config.numBrokers(), "cluster", properties.ofTheCluster()));
        if (isSasl()) {
            prepared.put("users_file", usersFile());
            prepared.put("users", Map.of(
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
                JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD));
        }
        GatewayHost.prepare(prepared);
        List<Integer> ids = IntStream.range(0, config.numBrokers()).boxed().toList();
        List<Integer> free = freePorts(ids.size());
        ids.forEach(id -> ports.put(id, free.get(id)));
        List<Integer> started = GatewayHost.start(ids.stream().map(this::arguments).toList());
        ids.forEach(id -> {
            pids.put(id, started.get(id));
            brokers.put(id, GatewayBroker.of(this, id));
        });
        waitForReadyBrokers();
    }

    @Override
    public void stop() {
        isStopped = true;
        pids.values().forEach(pid -> GatewayHost.end(pid, false));
        pids.clear();
    }

    @Override
    public boolean started() {
        return isStarted;
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    @Override
    public void shutdownBroker(int id) {
        Integer pid = pids.remove(id);
        if (pid != null) {
            GatewayHost.end(pid, true);
            waitForReadyBrokers(); // as with Kafka, whose controller has then told the other brokers
        }
    }

    @Override
    public void startBroker(int id) {
        if (isAlive(id)) {
            return;
        }
        pids.put(id, GatewayHost.start(List.of(arguments(id))).get(0));
        waitForReadyBrokers();
    }

    /** Sets what {@code KafkaBroker.config()} returns; before the start. */
    public void setConfig(int id, KafkaConfig found) {
        configs.put(id, found);
    }

    Optional<KafkaConfig> config(int id) {
        return Optional.ofNullable(configs.get(id));
    }

    /** Returns what a gateway says about brokers and topics. */
    MetadataResponse metadata(int id) {
        try {
            return IntegrationTestUtils.connectAndReceive(MetadataRequest.Builder.allTopics().build(), ports.get(id));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns the configs that a topic has by itself. */
    Properties topicConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties found = new Properties();
        try (Admin admin = admin()) {
            admin.describeConfigs(Set.of(resource)).all().get().get(resource).entries().stream()
                .filter(each -> each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(each -> found.put(each.name(), each.value()));
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return found;
    }

    boolean isAlive(int id) {
        return pids.containsKey(id);
    }

    int port(int id) {
        return ports.get(id);
    }

    Map<String, String> propertiesOfBroker(int id) {
        return properties.ofBroker(id);
    }

    private List<String> arguments(int id) {
        Map<String, String> settings = new TreeMap<>(Map.of(
            "broker.id", String.valueOf(id), "broker.join.delay.ms", "0", "broker.heartbeat.interval.ms", "250",
            "super.users", "User:ANONYMOUS")); // as at a broker without an authorizer
        settings.putAll(properties.ofGateway(id));
        if (isSasl()) {
            settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
            settings.put("security.protocol", "SASL_PLAINTEXT");
            settings.put("sasl.users.file", usersFile());
        }
        List<String> found = new ArrayList<>(List.of("--create", "--root", root.toString(), "--listen", "localhost:" + ports.get(id)));
        settings.forEach((key, value) -> found.addAll(List.of("--override", key + "=" + value)));
        return found;
    }

    private boolean isSasl() {
        return config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT;
    }

    private String usersFile() {
        return root + "-users";
    }

    private static List<Integer> freePorts(int count) {
        List<ServerSocket> sockets = new ArrayList<>();
        try {
            for (int i = 0; i < count; i++) {
                sockets.add(new ServerSocket(0));
            }
            for (ServerSocket each : sockets) {
                each.close();
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        return sockets.stream().map(ServerSocket::getLocalPort).toList();
    }

    // What gateways know.

    @Override
    public void waitForReadyBrokers() {
        if (isSasl()) {
            return; // a request without a password has no answer; clients wait for what they need
        }
        awaitMetadata(metadata -> metadata.brokers().stream().map(Node::id).collect(Collectors.toSet()).equals(pids.keySet()),
            "All gateways know each other");
        awaitAtAll(this::coordinates, "Every gateway coordinates groups");
    }

    /** Whether a gateway has become active, and knows that the others know it. */
    private boolean coordinates(int id) {
        try {
            List<String> keys = IntStream.range(0, GROUPS).mapToObj(each -> "ready-" + each).toList();
            var request = new FindCoordinatorRequestData().setKeyType(CoordinatorType.GROUP.id()).setCoordinatorKeys(keys);
            FindCoordinatorResponse found = IntegrationTestUtils.connectAndReceive(new FindCoordinatorRequest.Builder(request).build(), ports.get(id));
            return found.coordinators().stream().filter(each -> each.nodeId() == id).findFirst().map(each -> {
                var heartbeat = new HeartbeatRequestData().setGroupId(each.key()).setMemberId("nobody");
                try {
                    HeartbeatResponse answer = IntegrationTestUtils.connectAndReceive(new HeartbeatRequest.Builder(heartbeat).build(), ports.get(id));
                    return answer.error() == Errors.UNKNOWN_MEMBER_ID;
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }).orElse(false);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void createTopic(String name, int partitions, short replicas, Map<String, String> configs) throws InterruptedException {
        if (INTERNAL_TOPICS.contains(name)) {
            return; // tests create them so that they need not wait for it later
        }
        Map<String, String> all = new HashMap<>(properties.ofNewTopics());
        all.putAll(configs);
        ClusterInstance.super.createTopic(name, partitions, replicas, all);
    }

    @Override
    public int getLeaderBrokerId(TopicPartition partition) throws ExecutionException, InterruptedException {
        if (INTERNAL_TOPICS.contains(partition.topic())) {
            throw new NotApplicable("It asks for the leader of " + partition.topic() + ": groups and transactions are in no topic.");
        }
        return ClusterInstance.super.getLeaderBrokerId(partition);
    }

    @Override
    public void ensureConsistentMetadata() {
        waitForReadyBrokers();
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (isSasl()) {
            TestUtils.waitForCondition(() -> {
                try (var admin = admin()) {
                    return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size() == partitions;
                } catch (ExecutionException | InterruptedException error) {
                    return false;
                }
            }, "The topic " + topic + " is there");
            return;
        }
        awaitMetadata(metadata -> metadata.topicMetadata().stream().anyMatch(each ->
            each.topic().equals(topic) && each.error() == Errors.NONE && each.partitionMetadata().size() == partitions
                && each.partitionMetadata().stream().allMatch(one -> one.error == Errors.NONE)),
            "All gateways know the topic " + topic);
    }

    @Override
    public void waitTopicDeletion(String topic) {
        awaitMetadata(metadata -> metadata.topicMetadata().stream().noneMatch(each -> each.topic().equals(topic)),
            "No gateway knows the topic " + topic);
    }

    private void awaitMetadata(Predicate<MetadataResponse> isFulfilled, String what) {
        awaitAtAll(id -> isFulfilled.test(metadata(id)), what);
    }

    private void awaitAtAll(IntPredicate isFulfilled, String what) {
        try {
            TestUtils.waitForCondition(() -> Set.copyOf(pids.keySet()).stream().allMatch(id -> {
                try {
                    return isFulfilled.test(id);
                } catch (IllegalStateException error) {
                    return false;
                }
            }), 60_000, what);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    // What is said about the cluster.

    @Override
    public String bootstrapServers() {
        return ports.values().stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return brokers;
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return List.copyOf(ports.values());
    }

    @Override
    public Set<Integer> brokerIds() {
        return new HashSet<>(ports.keySet());
    }

    @Override
    public Type type() {
        return isCombined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public Set<org.apache.kafka.clients.consumer.GroupProtocol> supportedGroupProtocols() {
        return Set.of(org.apache.kafka.clients.consumer.GroupProtocol.values());
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // What a root does not have.

    @Override
    public Map<Integer, ControllerServer> controllers() {
        throw noController();
    }

    @Override
    public Set<Integer> controllerIds() {
        throw noController();
    }

    @Override
    public ListenerName controllerListenerName() {
        throw noController();
    }

    @Override
    public String bootstrapControllers() {
        throw noController();
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        throw noController();
    }

    @Override
    public String clusterId() {
        return metadata(0).clusterId();
    }

    @Override
    public List<Authorizer> authorizers() {
        throw new NotApplicable("It asks for ACLs of an authorizer, a class of Java.");
    }

    @Override
    public void waitAcls(AclBindingFilter filter, java.util.Collection<AccessControlEntry> entries) {
        authorizers();
    }

    @Override
    public <K, V> org.apache.kafka.clients.consumer.ShareConsumer<K, V> shareConsumer(
        Map<String, Object> configs,
        org.apache.kafka.common.serialization.Deserializer<K> keys,
        org.apache.kafka.common.serialization.Deserializer<V> values
    ) {
        throw new NotApplicable("It asks for a share group (KIP-932).");
    }

    private static NotApplicable noController() {
        return new NotApplicable("It asks for a controller: gateways have none.");
    }
}
