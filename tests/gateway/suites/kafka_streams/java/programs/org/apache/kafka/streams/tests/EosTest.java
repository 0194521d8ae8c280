package org.apache.kafka.streams.tests;

import java.util.Properties;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Kafka's client of the EOS test, whose internal topics have the number of replicas that its file
 * of properties says: it sets three.
 */
public class EosTest {
    public static void main(String[] arguments) throws Exception {
        Properties given = new Properties() {
            @Override
            public synchronized Object put(Object name, Object value) {
                boolean isKept = name.equals(StreamsConfig.REPLICATION_FACTOR_CONFIG) && containsKey(name);
                return isKept ? get(name) : super.put(name, value);
            }
        };
        given.putAll(Utils.loadProps(arguments[0]));
        System.out.println("StreamsTest instance started");
        new EosTestClient(given, arguments[1].equals("process-complex")).start();
    }
}
