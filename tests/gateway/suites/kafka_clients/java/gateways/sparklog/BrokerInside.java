package sparklog;

import kafka.cluster.Partition;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

import scala.Option;

/** What tests ask of the inside of a broker, and a gateway can say. */
final class BrokerInside {
    private BrokerInside() {
    }

    /** Returns handlers of requests, of which only what they know about the cluster can be asked. */
    static KafkaApis kafkaApis(GatewayCluster cluster, int id) {
        return Mockito.mock(KafkaApis.class, call -> switch (call.getMethod().getName()) {
            case "metadataCache" -> GatewayMetadata.of(cluster, id);
            case "clusterId" -> cluster.clusterId();
            default -> throw inside(call);
        });
    }

    /** Returns replicas, of which only which partitions the gateway serves can be asked. */
    static ReplicaManager replicaManager(GatewayCluster cluster, int id) {
        return Mockito.mock(ReplicaManager.class, call -> {
            if (!call.getMethod().getName().equals("onlinePartition")) {
                throw inside(call);
            }
            TopicPartition partition = call.getArgument(0);
            boolean leads = GatewayMetadata.of(cluster, id).getLeaderAndIsr(partition.topic(), partition.partition())
                .filter(found -> found.leader() == id).isPresent();
            return Option.apply(leads ? led() : null);
        });
    }

    private static Partition led() {
        return Mockito.mock(Partition.class, call -> {
            if (!call.getMethod().getName().equals("leaderLogIfLocal")) {
                throw inside(call);
            }
            return Option.apply(Mockito.mock(UnifiedLog.class, log -> {
                throw inside(log);
            }));
        });
    }

    private static NotApplicable inside(InvocationOnMock call) {
        return new NotApplicable("It asks for the inside of a broker: " + call.getMethod().getDeclaringClass().getSimpleName() + "."
            + call.getMethod().getName() + ".");
    }
}
