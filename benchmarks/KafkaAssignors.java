import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Reads groups as JSON, one a line, and prints what Kafka's assignors make of them. */
public class KafkaAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                Map<String, List<TopicPartition>> assignment = assign(JSON.readTree(line));
                for (Map.Entry<String, List<TopicPartition>> entry : assignment.entrySet()) {
                    ArrayNode list = answer.putArray(entry.getKey());
                    for (TopicPartition partition : entry.getValue())
                        list.addArray().add(partition.topic()).add(partition.partition());
                }
            } catch (RuntimeException error) {
                answer.removeAll();
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        out.flush();
    }

    private static Map<String, List<TopicPartition>> assign(JsonNode group) {
        // A new one every time: the sticky ones remember the highest generation they have seen.
        AbstractPartitionAssignor assignor = assignor(group.get("assignor").asText());
        Map<String, List<PartitionInfo>> partitions = new HashMap<>();
        group.get("partitions").properties().forEach(topic -> {
            List<PartitionInfo> infos = new ArrayList<>();
            Node[] none = new Node[0];
            while (infos.size() < topic.getValue().asInt())
                infos.add(new PartitionInfo(
                    topic.getKey(), infos.size(), Node.noNode(), none, none));
            partitions.put(topic.getKey(), infos);
        });
        Map<String, Subscription> subscriptions = new TreeMap<>();
        group.get("members").properties().forEach(member ->
            subscriptions.put(member.getKey(),
                subscription(assignor, member.getKey(), member.getValue())));
        return assignor.assignPartitions(partitions, subscriptions);
    }

    private static AbstractPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static Subscription subscription(
            AbstractPartitionAssignor assignor, String id, JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(each ->
            owned.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        int generation = member.get("generation").asInt();
        // The member's own assignor tells what it owns; here one of the same class does.
        AbstractPartitionAssignor own = assignor(assignor.name());
        own.onAssignment(new Assignment(owned),
            new ConsumerGroupMetadata("group", generation, id, Optional.empty()));
        ByteBuffer userData = own.subscriptionUserData(new HashSet<>(topics));
        Subscription subscription = new Subscription(
            topics, userData, owned, generation, Optional.empty());
        subscription.setGroupInstanceId(text(member.get("instance")));
        return subscription;
    }

    private static Optional<String> text(JsonNode node) {
        return node.isNull() ? Optional.empty() : Optional.of(node.asText());
    }
}
