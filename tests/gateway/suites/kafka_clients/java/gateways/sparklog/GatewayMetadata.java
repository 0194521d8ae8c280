package sparklog;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataCache;

/** What a gateway says about the cluster, in the place of a broker's {@code MetadataCache}. */
final class GatewayMetadata {
    private final GatewayCluster cluster;
    private final MetadataResponse found;

    private GatewayMetadata(GatewayCluster cluster, int id) {
        this.cluster = cluster;
        this.found = cluster.metadata(id);
    }

    static MetadataCache of(GatewayCluster cluster, int id) {
        return (MetadataCache) Proxy.newProxyInstance(
            MetadataCache.class.getClassLoader(), new Class<?>[] {MetadataCache.class},
            (proxy, method, arguments) -> new GatewayMetadata(cluster, id).call(method, arguments));
    }

    private Object call(Method method, Object[] arguments) {
        switch (method.getName()) {
            case "getAllTopics":
                return found.topicMetadata().stream().map(MetadataResponse.TopicMetadata::topic).collect(Collectors.toSet());
            case "hasAliveBroker":
                return node((Integer) arguments[0]).isPresent();
            case "getAliveBrokerNodes":
            case "getBrokerNodes":
                return List.copyOf(found.brokers());
            case "getAliveBrokerNode":
                return node((Integer) arguments[0]);
            case "contains":
                return arguments[0] instanceof TopicPartition partition
                    ? partition(partition.topic(), partition.partition()).isPresent()
                    : topic((String) arguments[0]).isPresent();
            case "getTopicId":
                return topic((String) arguments[0]).map(MetadataResponse.TopicMetadata::topicId).orElse(Uuid.ZERO_UUID);
            case "getTopicName":
                return found.topicMetadata().stream().filter(each -> each.topicId().equals(arguments[0]))
                    .map(MetadataResponse.TopicMetadata::topic).findFirst();
            case "topicNamesToIds":
                Map<String, Uuid> ids = new HashMap<>();
                found.topicMetadata().forEach(each -> ids.put(each.topic(), each.topicId()));
                return ids;
            case "topicIdsToNames":
                Map<Uuid, String> names = new HashMap<>();
                found.topicMetadata().forEach(each -> names.put(each.topicId(), each.topic()));
                return names;
            case "topicConfig":
                return cluster.topicConfig((String) arguments[0]);
            case "numPartitions":
                return topic((String) arguments[0]).map(each -> each.partitionMetadata().size());
            case "getLeaderAndIsr":
                return partition((String) arguments[0], (Integer) arguments[1]).map(each -> new LeaderAndIsr(
                    each.leaderId.orElse(-1), each.leaderEpoch.orElse(0), each.inSyncReplicaIds, LeaderRecoveryState.RECOVERED, 0));
            case "getPartitionLeaderEndpoint":
                return partition((String) arguments[0], (Integer) arguments[1]).flatMap(each -> node(each.leaderId.orElse(-1)));
            default:
                throw new NotApplicable("It asks for the inside of a broker: MetadataCache." + method.getName() + ".");
        }
    }

    private Optional<Node> node(int id) {
        return found.brokers().stream().filter(each -> each.id() == id).findFirst();
    }

    private Optional<MetadataResponse.TopicMetadata> topic(String name) {
        return found.topicMetadata().stream().filter(each -> each.topic().equals(name) && each.error() == Errors.NONE).findFirst();
    }

    private Optional<MetadataResponse.PartitionMetadata> partition(String topic, int number) {
        return topic(topic).flatMap(found ->
            found.partitionMetadata().stream().filter(each -> each.partition() == number && each.error == Errors.NONE).findFirst());
    }
}
