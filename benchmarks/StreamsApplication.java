import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * An application of Kafka Streams whose results can be checked from outside, record by record.
 *
 * <p>Keys and values of all topics are text. Nothing is cached, so each change is a record of the
 * output topic:
 *
 * <ul>
 *   <li>word-count: the words of the input's values are counted. Output: word, its count so far.
 *       Words pass a repartition topic; counts are in a store with a changelog.
 *   <li>table-join: two tables, joined by their keys. Output: key, left value + right value.
 *   <li>stream-join: the records of a stream, whose values are "key item", joined to a table by
 *       that key. Output: key, item + value of the table. The stream passes a repartition topic.
 *   <li>tumbling: the records of each key are counted in windows of ten seconds. Output: key@start
 *       in ms, the count when the window has closed, once.
 *   <li>session: the same for sessions that end after five seconds without a record of the key.
 *       Output: key@start-end.
 * </ul>
 *
 * <p>It writes its changes of state to stdout, and ends on SIGTERM.
 */
public class StreamsApplication {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration GAP = Duration.ofSeconds(5);
    private static final Duration CLOSE = Duration.ofSeconds(60);

    public static void main(String[] arguments) {
        if (arguments.length < 7) {
            System.err.println(
                "StreamsApplication TOPOLOGY BOOTSTRAP_SERVERS INPUT[,INPUT] OUTPUT APPLICATION_ID"
                    + " STATE_DIRECTORY PROCESSING_GUARANTEE [SETTING=VALUE]...");
            System.exit(2);
        }
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, arguments[0], arguments[2].split(","), arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setStateListener((now, before) -> say("STATE " + now));
        streams.setUncaughtExceptionHandler(error -> {
            say("EXCEPTION " + error);
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            say(streams.close(CLOSE) ? "CLOSED" : "NOT CLOSED");
        }));
        streams.start();
    }

    private static void build(
        StreamsBuilder builder, String topology, String[] inputs, String output) {
        switch (topology) {
            case "word-count":
                KStream<String, String> lines = builder.stream(inputs[0]);
                lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                    .groupBy((key, word) -> word)
                    .count()
                    .toStream()
                    .mapValues(count -> count.toString())
                    .to(output);
                return;
            case "table-join":
                KTable<String, String> left = builder.table(inputs[0]);
                KTable<String, String> right = builder.table(inputs[1]);
                left.join(right, (one, other) -> one + "+" + other).toStream().to(output);
                return;
            case "stream-join":
                KStream<String, String> items = builder.stream(inputs[0]);
                KTable<String, String> table = builder.table(inputs[1]);
                items.map((key, value) -> KeyValue.pair(value.split(" ")[0], value.split(" ")[1]))
                    .join(table, (item, of) -> item + "+" + of)
                    .to(output);
                return;
            case "tumbling":
                once(
                    grouped(builder, inputs[0])
                        .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
                        .count())
                    .map((in, count) -> KeyValue.pair(
                        in.key() + "@" + in.window().start(), count.toString()))
                    .to(output);
                return;
            case "session":
                once(
                    grouped(builder, inputs[0])
                        .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(GAP))
                        .count())
                    .map((in, count) -> KeyValue.pair(
                        in.key() + "@" + in.window().start() + "-" + in.window().end(),
                        count.toString()))
                    .to(output);
                return;
            default:
                throw new IllegalArgumentException(topology + " is not a topology");
        }
    }

    private static KGroupedStream<String, String> grouped(StreamsBuilder builder, String input) {
        KStream<String, String> records = builder.stream(input);
        return records.groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
    }

    private static KStream<Windowed<String>, Long> once(KTable<Windowed<String>, Long> counts) {
        return counts
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[4]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[6]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("auto.offset.reset", "earliest");
        for (int at = 7; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        return settings;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
