package sparklog;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;

import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.metadata.BrokerState;

/** A gateway in the place of a {@code KafkaBroker}: it has an address, but nothing of the inside. */
final class GatewayBroker {
    private final GatewayCluster cluster;
    private final int id;

    private GatewayBroker(GatewayCluster cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    static KafkaBroker of(GatewayCluster cluster, int id) {
        GatewayBroker broker = new GatewayBroker(cluster, id);
        return (KafkaBroker) Proxy.newProxyInstance(
            KafkaBroker.class.getClassLoader(), new Class<?>[] {KafkaBroker.class},
            (proxy, method, arguments) -> broker.call(proxy, method, arguments));
    }

    private Object call(Object proxy, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "isShutdown":
                return !cluster.isAlive(id);
            case "shutdown":
                cluster.shutdownBroker(id);
                return null;
            case "startup":
                cluster.startBroker(id);
                return null;
            case "awaitShutdown":
                return null;
            case "brokerState":
                return cluster.isAlive(id) ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "boundPort":
                return cluster.port(id);
            case "clusterId":
                return cluster.clusterId();
            case "config":
                return cluster.config(id).orElseGet(this::kafkaConfig);
            case "replicaManager":
                return BrokerInside.replicaManager(cluster, id);
            case "dataPlaneRequestProcessor":
                return BrokerInside.kafkaApis(cluster, id);
            case "metadataCache":
                return GatewayMetadata.of(cluster, id);
            case "equals":
                return proxy == arguments[0];
            case "hashCode":
                return id;
            case "toString":
                return "gateway " + id;
            default:
                throw new NotApplicable("It asks for the inside of a broker: " + method.getName() + ".");
        }
    }

    private KafkaConfig kafkaConfig() {
        Map<String, String> properties = new HashMap<>(cluster.propertiesOfBroker(id));
        properties.put("node.id", String.valueOf(id));
        properties.put("process.roles", "broker");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("controller.quorum.bootstrap.servers", "localhost:1");
        properties.put("listeners", "PLAINTEXT://localhost:" + cluster.port(id));
        return new KafkaConfig(properties);
    }
}
