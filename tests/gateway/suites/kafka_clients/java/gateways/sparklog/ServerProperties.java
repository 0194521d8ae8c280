package sparklog;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;

/** What the server properties of a test mean for gateways and their root. */
final class ServerProperties {
    private static final int FIRST_CONTROLLER = 3000;

    private static final Set<String> OF_A_GATEWAY = Set.of(
        "auto.create.topics.enable", "broker.rack", "connections.max.idle.ms", "max.connections",
        "num.partitions", "queued.max.request.bytes", "sasl.enabled.mechanisms", "socket.request.max.bytes");

    private static final Set<String> OF_THE_CLUSTER = Set.of(
        "auto.leader.rebalance.enable", "default.replication.factor", "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms", "group.initial.rebalance.delay.ms", "group.max.session.timeout.ms",
        "group.max.size", "group.min.session.timeout.ms", "min.insync.replicas", "transaction.max.timeout.ms",
        "transactional.id.expiration.ms", "unclean.leader.election.enable");

    /** What the log does not have, by the property that asks for it. */
    private static final Map<String, String> NOT_APPLICABLE = Map.ofEntries(
        Map.entry("alter.config.policy.class.name", "It has a policy for configs, a class of Java."),
        Map.entry("authorizer.class.name", "It has ACLs of an authorizer, a class of Java."),
        Map.entry("client.quota.callback.class", "It has a callback for quotas, a class of Java."),
        Map.entry("create.topic.policy.class.name", "It has a policy for new topics, a class of Java."),
        Map.entry("group.consumer.assignors", "It has an assignor for KIP-848, a class of Java in the broker."),
        Map.entry("group.share.assignors", "It asks for a share group (KIP-932)."),
        Map.entry("group.share.partition.max.record.locks", "It asks for a share group (KIP-932)."),
        Map.entry("log.segment.bytes", "It has a default of topics' configs in the brokers' or the controllers' properties."),
        Map.entry("metric.reporters", "It asks for a broker's telemetry plugin, a class of Java (KIP-714)."),
        Map.entry("producer.id.expiration.check.interval.ms", "It expects that ids of producers expire within seconds: spark-log clean forgets them."));

    private final ClusterConfig config;

    ServerProperties(ClusterConfig config) {
        this.config = config;
        Map<String, String> all = new HashMap<>(config.serverProperties());
        config.perServerOverrideProperties().values().forEach(all::putAll);
        all.forEach((key, value) -> {
            String reason = NOT_APPLICABLE.getOrDefault(key + "=" + value, NOT_APPLICABLE.get(key));
            if (reason != null) {
                throw new NotApplicable(reason);
            }
        });
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT && config.brokerSecurityProtocol() != SecurityProtocol.SASL_PLAINTEXT) {
            throw new NotApplicable("It speaks " + config.brokerSecurityProtocol() + " with stores of keys in Java's format.");
        }
    }

    /** Returns the settings of the cluster. */
    Map<String, String> ofTheCluster() {
        Map<String, String> found = new TreeMap<>(config.serverProperties());
        config.perServerOverrideProperties().values().forEach(found::putAll);
        found.keySet().retainAll(OF_THE_CLUSTER);
        return found;
    }

    /** Returns the settings of a gateway; what only the controllers have is that of all gateways. */
    Map<String, String> ofGateway(int id) {
        Map<String, String> found = new TreeMap<>();
        config.perServerOverrideProperties().forEach((server, properties) -> {
            if (server >= FIRST_CONTROLLER) {
                found.putAll(properties);
            }
        });
        found.putAll(config.serverProperties());
        found.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        found.keySet().retainAll(OF_A_GATEWAY);
        return found;
    }

    /** Returns the configs of topics that Kafka takes from its brokers' properties. */
    Map<String, String> ofNewTopics() {
        String maxBytes = config.serverProperties().get("message.max.bytes");
        return maxBytes == null ? Map.of() : Map.of("max.message.bytes", maxBytes);
    }

    /** Returns the properties that a broker's {@code KafkaConfig} is made of. */
    Map<String, String> ofBroker(int id) {
        Map<String, String> found = new TreeMap<>(config.serverProperties());
        found.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        return found;
    }
}
