package sparklog;

import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;

import java.io.File;
import java.io.IOException;

import net.bytebuddy.ByteBuddy;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.implementation.StubMethod;
import net.bytebuddy.pool.TypePool;

/**
 * Writes a class of Kafka's tests in Scala into a folder, with two methods that do nothing:
 * {@code createOffsetsTopic}, as groups are in no topic, and {@code ensureConsistentKRaftMetadata},
 * which waits until brokers have the metadata of the controller. Gateways read those of the root.
 */
public final class PatchedHarness {
    public static void main(String[] arguments) throws IOException {
        ClassFileLocator files = ClassFileLocator.ForClassLoader.ofSystemLoader();
        new ByteBuddy()
            .redefine(TypePool.Default.of(files).describe("kafka.integration.KafkaServerTestHarness").resolve(), files)
            .method(namedOneOf("createOffsetsTopic", "ensureConsistentKRaftMetadata"))
            .intercept(StubMethod.INSTANCE)
            .make()
            .saveIn(new File(arguments[0]));
    }
}
