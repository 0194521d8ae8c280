package sparklog;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.File;
import java.io.IOException;

import net.bytebuddy.ByteBuddy;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.implementation.StubMethod;
import net.bytebuddy.pool.TypePool;

/**
 * Writes a class of Kafka's tests in Scala into a folder, with a method that does nothing:
 * {@code createOffsetsTopic}, which each test calls. Groups are in no topic.
 */
public final class WithoutOffsetsTopic {
    public static void main(String[] arguments) throws IOException {
        ClassFileLocator files = ClassFileLocator.ForClassLoader.ofSystemLoader();
        new ByteBuddy()
            .redefine(TypePool.Default.of(files).describe("kafka.integration.KafkaServerTestHarness").resolve(), files)
            .method(named("createOffsetsTopic"))
            .intercept(StubMethod.INSTANCE)
            .make()
            .saveIn(new File(arguments[0]));
    }
}
