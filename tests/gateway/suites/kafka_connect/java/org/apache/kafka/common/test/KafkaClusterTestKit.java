package org.apache.kafka.common.test;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

import kafka.server.BrokerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.mockito.Mockito;

import sparklog.GatewayCluster;
import sparklog.NotApplicable;

/**
 * Gateways in the place of the brokers that Kafka's class of this name starts for the tests of Kafka
 * Connect. It has to come before that class on the class path.
 */
public final class KafkaClusterTestKit implements AutoCloseable {
    private final GatewayCluster cluster;
    private final MockFaultHandler faults = new MockFaultHandler("gateways");

    private KafkaClusterTestKit(GatewayCluster cluster) {
        this.cluster = cluster;
    }

    /** The brokers that a test asks for. */
    public static final class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> properties = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            properties.put(key, String.valueOf(value));
            return this;
        }

        public KafkaClusterTestKit build() {
            String protocols = properties.getOrDefault("listener.security.protocol.map", "");
            if (protocols.contains("SSL")) {
                throw new NotApplicable("It speaks TLS with stores of keys in Java's format.");
            }
            ClusterConfig config = ClusterConfig.defaultBuilder()
                .setTypes(java.util.Set.of(Type.CO_KRAFT))
                .setBrokers(nodes.brokerNodes().size())
                .setServerProperties(properties)
                .build();
            return new KafkaClusterTestKit(new GatewayCluster(config, true));
        }
    }

    public void format() {
    }

    public void startup() {
        cluster.start();
    }

    public void waitForReadyBrokers() {
        cluster.waitForReadyBrokers();
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    /** Returns brokers that can be asked whether they run, and can be stopped and started. */
    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> found = new TreeMap<>();
        cluster.brokers().forEach((id, broker) -> found.put(id, serverOf(broker)));
        return found;
    }

    private static BrokerServer serverOf(KafkaBroker broker) {
        return Mockito.mock(BrokerServer.class, Mockito.withSettings().stubOnly().defaultAnswer(call ->
            KafkaBroker.class.getMethod(call.getMethod().getName(), call.getMethod().getParameterTypes())
                .invoke(broker, call.getArguments())));
    }

    @Override
    public void close() {
        cluster.stop();
    }
}
