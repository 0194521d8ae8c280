import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

/**
 * Writes the record batches of tests/gateway/record_batches/bytes with Kafka's own classes.
 *
 * java -cp 'kafka-clients-4.1.0.jar:lz4-java-1.8.0.jar:snappy-java-1.1.10.7.jar:zstd-jni-1.5.6-10.jar:slf4j-api-1.7.36.jar' \
 *     MakeBatches.java bytes
 *
 * kafka_records.py has the same records.
 */
public class MakeBatches {
    static final long TIME = 1_700_000_000_000L;

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static SimpleRecord record(long time, String key, String value, Header... headers) {
        return new SimpleRecord(time, bytes(key), bytes(value), headers);
    }

    static SimpleRecord[] edgeCases() {
        return new SimpleRecord[] {
            record(TIME + 5, "key", "value"),
            record(TIME, null, "earlier, without a key"),
            record(TIME + 1_000_000, "tombstone", null),
            record(TIME - 1_000_000_000_000L, "", ""),
            record(TIME, null, null),
            record(TIME, "headers", "three", new RecordHeader("a", bytes("1")),
                new RecordHeader("a", bytes("2")), new RecordHeader("größe", null)),
            record(TIME, "x".repeat(63), "y".repeat(64), new RecordHeader("", new byte[0])),
            record(TIME, "x".repeat(8191), "y".repeat(8192)),
            record(-1, "no", "timestamp"),
        };
    }

    static SimpleRecord[] many() {
        SimpleRecord[] records = new SimpleRecord[600];
        for (int i = 0; i < records.length; i++)
            records[i] = record(TIME + i * 3, i % 7 == 0 ? null : "key-" + i, "value ".repeat(i % 20) + i);
        return records;
    }

    static void write(Path directory, String name, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        Files.write(directory.resolve(name), data);
    }

    static MemoryRecords batch(byte magic, CompressionType type, TimestampType timestampType,
            long logAppendTime, long offset, SimpleRecord[] records) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 22);
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, magic, Compression.of(type).build(),
            timestampType, offset, logAppendTime);
        for (SimpleRecord each : records)
            builder.append(each);
        return builder.build();
    }

    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        for (CompressionType type : CompressionType.values()) {
            for (byte magic = 0; magic <= 2; magic++) {
                if (type == CompressionType.ZSTD && magic < 2)
                    continue;
                String name = "java-v" + magic + "-" + type.name + ".bin";
                write(directory, name, batch(magic, type, TimestampType.CREATE_TIME, -1, 0, many()));
            }
        }
        write(directory, "java-edge-cases.bin", batch((byte) 2, CompressionType.NONE,
            TimestampType.CREATE_TIME, -1, 42, edgeCases()));
        write(directory, "java-append-time.bin", batch((byte) 2, CompressionType.NONE,
            TimestampType.LOG_APPEND_TIME, TIME + 7, 42, edgeCases()));
        write(directory, "java-v1-append-time.bin", batch((byte) 1, CompressionType.GZIP,
            TimestampType.LOG_APPEND_TIME, TIME + 7, 0, many()));

        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        MemoryRecordsBuilder producer = new MemoryRecordsBuilder(buffer, (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 100, -1, 4321, (short) 7, 2147483647, true, false, 5, 1 << 20);
        producer.append(record(TIME, "a", "1"));
        producer.append(record(TIME + 1, "b", "2"));
        write(directory, "java-transactional.bin", producer.build());

        // Gaps, as the cleaner leaves them.
        ByteBuffer gaps = ByteBuffer.allocate(1 << 20);
        MemoryRecordsBuilder compacted = MemoryRecords.builder(gaps, (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 1000, -1);
        compacted.appendWithOffset(1003, record(TIME, "a", "1"));
        compacted.appendWithOffset(1004, record(TIME + 1, "b", "2"));
        compacted.appendWithOffset(1090, record(TIME + 2, "c", "3"));
        compacted.overrideLastOffset(1100);
        write(directory, "java-gaps.bin", compacted.build());

        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.COMMIT, ControlRecordType.ABORT})
            write(directory, "java-" + type.name().toLowerCase() + ".bin", MemoryRecords.withEndTransactionMarker(
                77, TIME, 5, 4321, (short) 8, new EndTransactionMarker(type, 0)));
    }
}
